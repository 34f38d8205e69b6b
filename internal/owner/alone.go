package owner

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
)

// The capture of a guardian that is gone is free at once; one that lives on
// without a channel keeps it.
const (
	aloneFirst = 10 * time.Millisecond
	aloneMost  = time.Second
)

// loseGuardian goes on without a guardian. That it is gone, or talks nonsense,
// says nothing about the session: nothing ends and nothing is killed.
func (o *owner) loseGuardian() {
	if o.voice == nil {
		return
	}
	// A guardian that lives learns that nobody listens to it any more.
	o.in.channel.Close()
	close(o.voice.box)
	o.voice = nil
	// Nobody will accept: whoever waits there, or comes, has to know.
	unix.Close(o.in.listener)
	if !o.launched {
		return
	}
	o.commit(lifecycle.OutcomeRecord{GuardianLost: true})
	o.alone = captureAlone(o.in, o.history)
}

// alone captures the output in a guardian's stead, so that the target never
// blocks and nothing of its output is lost.
type alone struct {
	capture  atomic.Pointer[output.Capture] // nil while somebody else captures
	stopping atomic.Bool
	history  int64 // bytes
}

func captureAlone(in *inherited, history int64) *alone {
	a := &alone{history: history}
	go a.run(in)
	return a
}

func (a *alone) run(in *inherited) {
	master := os.NewFile(uintptr(in.master), "ptmx")
	pipeR, pipeW := os.NewFile(uintptr(in.pipeR), "pipe"), os.NewFile(uintptr(in.pipeW), "pipe")
	for wait := aloneFirst; !a.stopping.Load(); wait = min(2*wait, aloneMost) {
		if c, err := a.open(in.dir, master, pipeR, pipeW); err == nil {
			a.capture.Store(c)
			_ = c.Run() // until Stop, or until it has to be begun anew
			a.capture.Store(nil)
		}
		<-time.After(wait)
	}
}

func (a *alone) open(session, master, pipeR, pipeW *os.File) (*output.Capture, error) {
	dir, err := openOutput(session)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return output.NewCapture(dir, master, pipeR, pipeW, output.Options{History: a.history})
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
