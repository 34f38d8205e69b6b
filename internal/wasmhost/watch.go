package wasmhost

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	abandonAfter = 500 * time.Millisecond // a stopped guest that has not unwound by then never will
	gentleFor    = 20 * time.Second       // how long a SIGTERM lets a guest finish with its files
)

// watch is the goroutine that ends a run from outside: by a signal, a limit, or the caller's context.
type watch struct {
	r         *run
	ctx       context.Context
	begin     chan struct{} // closed at the guest's first instruction, where its limits start to count
	abandoned chan struct{} // closed when the guest is given up
	done      chan struct{}
	wg        sync.WaitGroup

	// Of the goroutine alone.
	terms       int
	cpuAtStart  time.Duration
	deadline    <-chan time.Time
	cpu         <-chan time.Time
	patience    <-chan time.Time // ticks once the guest is stopped
	lastCalls   uint64
	gentleUntil time.Time
}

func (r *run) startWatch(ctx context.Context) *watch {
	w := &watch{r: r, ctx: ctx, begin: make(chan struct{}), abandoned: make(chan struct{}), done: make(chan struct{})}
	w.wg.Go(w.loop)
	return w
}

func (w *watch) began() { close(w.begin) }

func (w *watch) end() {
	close(w.done)
	w.wg.Wait()
}

func (w *watch) loop() {
	stop := w.r.stop
	begin, signals, canceled, stopped := w.begin, w.r.cfg.Signals, w.ctx.Done(), stop.stopped
	for {
		select {
		case <-w.done:
			return
		case <-begin:
			begin = nil
			w.startLimits()
		case sig, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			w.signal(sig)
		case <-canceled:
			canceled = nil
			stop.stop(ending{Canceled, 143, "the run was canceled"}, true)
		case <-w.deadline:
			stop.stop(ending{DeadlineOver, 1, fmt.Sprintf("the deadline of %s has passed", w.r.limits.Deadline)}, true)
		case <-w.cpu:
			w.checkCPU()
		case <-stopped:
			stopped = nil
			w.lastCalls, w.gentleUntil = stop.calls.Load(), time.Now().Add(gentleFor)
			w.patience = time.After(abandonAfter)
		case <-w.patience:
			if w.hopeless() {
				close(w.abandoned)
				return
			}
			w.patience = time.After(abandonAfter)
		}
	}
}

func (w *watch) startLimits() {
	if d := w.r.limits.Deadline; d > 0 {
		w.deadline = time.After(d)
	}
	if s := w.r.limits.CPUSeconds; s > 0 {
		w.cpuAtStart = cpuTime()
		w.cpu = time.After(cpuLeft(s, w.cpuAtStart))
	}
}

// checkCPU ends the guest at its processor limit, or comes back when it could be reached.
func (w *watch) checkCPU() {
	seconds := w.r.limits.CPUSeconds
	left := cpuLeft(seconds, w.cpuAtStart)
	if left > cpuStep {
		w.cpu = time.After(left)
		return
	}
	w.r.stop.stop(ending{CPUOver, 1, fmt.Sprintf("the limit of %d s of processor time was reached", seconds)}, true)
}

// hopeless says whether a stopped guest is to be given up: it had time to unwind, or makes no host calls at all. A
// gentle stop that has taken too long becomes a hard one.
func (w *watch) hopeless() bool {
	stop := w.r.stop
	calls := stop.calls.Load()
	spins := calls == w.lastCalls && calls%2 == 0
	w.lastCalls = calls
	if stop.hard.Load() || spins {
		return true
	}
	if time.Now().After(w.gentleUntil) {
		stop.stop(ending{}, true)
	}
	return false
}

// signal does what a signal means. Only SIGTERM is gentle, and only once.
func (w *watch) signal(sig os.Signal) {
	switch sig {
	case unix.SIGINT:
		w.r.stop.stop(ending{Interrupted, 130, ""}, true)
	case unix.SIGQUIT:
		w.r.stop.stop(ending{Quit, 131, ""}, true)
	case unix.SIGHUP:
		w.r.stop.stop(ending{HungUp, 129, ""}, true)
	case unix.SIGTERM:
		w.terms++
		w.r.stop.stop(ending{Terminated, 143, ""}, w.terms > 1)
	}
}

const cpuStep = 10 * time.Millisecond

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuLeft is the least time in which the rest of the limit can be used up.
func cpuLeft(seconds int64, start time.Duration) time.Duration {
	left := time.Duration(seconds)*time.Second - (cpuTime() - start)
	return max(left/time.Duration(runtime.NumCPU()), cpuStep)
}
