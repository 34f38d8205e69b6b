package owner

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-8e62c83d/mur/internal/output"
)

// The capture of a guardian that is gone is free at once; one that lives on
// without a channel keeps it.
const (
	aloneFirst = 10 * time.Millisecond
	aloneMost  = time.Second
)

// alone captures the output in a guardian's stead, so that the target never
// blocks and nothing of its output is lost.
type alone struct {
	capture  atomic.Pointer[output.Capture] // nil while somebody else captures
	stopping atomic.Bool
	stopped  chan struct{} // closed to end it
	done     chan struct{} // closed at its end
	history  int64         // bytes
}

func captureAlone(in *inherited, history int64) *alone {
	a := &alone{history: history, stopped: make(chan struct{}), done: make(chan struct{})}
	go a.run(in.dir, in.captured())
	return a
}

func (a *alone) run(dir *os.File, from *captured) {
	defer close(a.done)
	for wait := aloneFirst; !a.stopping.Load(); wait = min(2*wait, aloneMost) {
		if c, err := a.open(dir, from); err == nil {
			a.capture.Store(c)
			if a.stopping.Load() {
				c.Stop() // it was not there yet when the others were stopped
			}
			_ = c.Run() // until Stop, or until it has to be begun anew
			a.capture.Store(nil)
		}
		select {
		case <-a.stopped:
		case <-time.After(wait):
		}
	}
}

func (a *alone) open(session *os.File, from *captured) (*output.Capture, error) {
	dir, err := openOutput(session)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return output.NewCapture(dir, from.master, from.pipeR, from.pipeW, output.Options{History: a.history})
}

// stop ends the capture for somebody else to go on; what it could not write stays
// in pipe and terminal.
func (a *alone) stop() {
	a.stopping.Store(true)
	close(a.stopped)
	if c := a.capture.Load(); c != nil {
		c.Stop()
	}
	<-a.done
}

// finish ends the capture once terminal and pipe are empty. false: it still holds
// bytes that it could not write. Without one, somebody else captures.
func (a *alone) finish() bool {
	c := a.capture.Load()
	if c == nil {
		return true
	}
	if c.State().Err != nil {
		return false
	}
	a.stopping.Store(true)
	_ = c.Sync() // the bytes are in the log; this is for the power loss
	c.Stop()
	return true
}
