package shell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A capsule has one thread and nothing takes it away from a goroutine: a loop
// that never waits would keep the shell from ever reading ^C. So whoever asks
// the context of a command for its end, which the interpreter does before
// every statement and our streams do with every read and write, is made to
// wait a little now and then. All wait at the same time, by the clock, because
// the runtime looks for input only when no goroutine can run.
const (
	breathEvery = 40 * time.Millisecond
	breathFor   = 2 * time.Millisecond
	breathLate  = 3 * breathEvery // breathe even outside the common time
)

// foreground is the context of one command at the terminal.
type foreground struct {
	context.Context
	start time.Time
	last  atomic.Int64 // nanoseconds after start of the last breath
	done  chan struct{}
	once  sync.Once
}

func newForeground() *foreground {
	return &foreground{Context: context.Background(), start: time.Now(), done: make(chan struct{})}
}

// interrupt ends the command.
func (f *foreground) interrupt() { f.once.Do(func() { close(f.done) }) }

// Done is closed by interrupt.
func (f *foreground) Done() <-chan struct{} { return f.done }

// Err breathes, and says whether interrupt was called.
func (f *foreground) Err() error {
	f.breathe()
	return f.err()
}

func (f *foreground) err() error {
	select {
	case <-f.done:
		return context.Canceled
	default:
		return nil
	}
}

func (f *foreground) breathe() {
	now := time.Since(f.start)
	last := time.Duration(f.last.Load())
	common := now%breathEvery < breathFor && now > breathFor
	if !common && now-last < breathLate {
		return
	}
	f.last.Store(int64(now))
	time.Sleep(breathFor - now%breathEvery%breathFor)
}
