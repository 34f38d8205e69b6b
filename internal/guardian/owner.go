package guardian

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// owner is the guardian's hold on the owner process.
type owner struct {
	id      procs.Identity
	pidfd   *procs.PidFD
	conn    *ownerlink.Conn
	capture *output.Capture
	master  *os.File
	pipes   [2]*os.File
	// heard is closed when all that was said on the channel was posted.
	heard atomic.Pointer[chan struct{}]
}

// close gives everything back once the owner is gone. Closing the last master
// hangs up on whoever still holds the terminal.
func (o *owner) close() {
	o.conn.Close()
	o.capture.Stop()
	o.pidfd.Close()
	for _, f := range []*os.File{o.master, o.pipes[0], o.pipes[1]} {
		f.Close()
	}
}

// watch turns what the owner says and its end into events.
func (o *owner) watch(s *session) {
	o.hear(s)
	go func() {
		if err := o.capture.Run(); err != nil {
			s.log.Error("capturing has ended", "error", err)
			s.term.capture.Store(nil)
		}
	}()
	go func() {
		if err := o.pidfd.Wait(context.Background()); err != nil {
			s.log.Error("cannot wait for the owner", "error", err)
			return
		}
		gone, _ := procs.Uptime()         // its number is not given to anybody before
		unix.Wait4(o.id.PID, nil, 0, nil) // if it is our child: give the pid back
		// Its last word first: the report of the sweep after which it left, say.
		select {
		case <-*o.heard.Load():
		case <-time.After(flushPatience):
		}
		_, err := o.flush()
		s.post(ownerGone{seen: gone, unwritten: err != nil && !errors.Is(err, output.ErrStopped)})
	}()
}

func (o *owner) hear(s *session) {
	conn, heard := o.conn, make(chan struct{})
	o.heard.Store(&heard)
	go func() {
		defer close(heard)
		for {
			var state ownerlink.State
			err := conn.Receive(&state)
			switch {
			case err == nil && state.Version != ownerlink.Version:
				s.post(ownerFault{"it speaks another version of the channel"})
			case err == nil:
				s.post(ownerSays{state})
			case errors.Is(err, protocol.ErrMalformed):
				s.post(ownerFault{"it sent what is no message"})
			case o.pidfd.Exited():
				return
			default:
				s.post(channelLost{conn})
				return
			}
		}
	}()
}

// ownerFault is an owner that does not keep to the channel. It changes no state:
// only its end or its records do.
type ownerFault struct{ reason string }

func (e ownerFault) handle(s *session) {
	s.log.Error("the owner does not keep to the channel", "reason", e.reason)
}

// ownerSays is the owner's whole state, as of its sending.
type ownerSays struct{ state ownerlink.State }

func (e ownerSays) handle(s *session) {
	outcome := e.state.Outcome
	s.board.silent.Store(false)
	s.continued, s.queue.taken = false, e.state.Taken
	if outcome.Drain != nil && !s.state.State.Final() && s.owner != nil {
		// The exact end is what the log holds once the pipe was emptied into it.
		drain := *outcome.Drain
		outcome.Drain = nil
		go s.owner.measureEnd(s, drain)
	}
	s.advance(outcome)
	if e.state.Answer != nil {
		s.controlled(*e.state.Answer)
	}
}

func (o *owner) measureEnd(s *session, drain lifecycle.DrainReport) {
	if end, err := o.flush(); err == nil {
		drain.EndOffset = end
	}
	o.capture.Sync()
	s.post(drained{drain})
}

// drained says that the target's output is complete and in the log.
type drained struct{ report lifecycle.DrainReport }

func (e drained) handle(s *session) {
	if s.state.State == lifecycle.Exited {
		s.step(lifecycle.Event{Kind: lifecycle.Drain, Drain: &e.report})
	}
}

// advance takes what the owner has made durable into the state and answers the
// start when that decides it.
func (s *session) advance(outcome lifecycle.Outcome) {
	after, effects := lifecycle.Advance(s.state, outcome, time.Now().UnixNano())
	s.take(after, effects)
	if s.launch != nil && !s.starting() {
		s.answerStart()
	}
}

// outputEnd is where the log ends.
func (s *session) outputEnd() int64 {
	if s.owner != nil {
		return s.owner.capture.End()
	}
	reader := openReader(s.dir, s.log)
	if reader == nil {
		return 0
	}
	defer reader.Close()
	_, end, _ := reader.Bounds()
	return end
}

// ownerGone is the owner's death, for whatever reason: what it made durable is
// the truth, and nothing else will come.
type ownerGone struct {
	seen time.Duration // since boot; 0: it was not
	// unwritten: the end of the output has found no room in the log.
	unwritten bool
}

func (e ownerGone) handle(s *session) {
	outcome, err := s.dir.Outcome()
	if err != nil {
		// Without it an exit that is on record would become lost for ever.
		s.log.Error("cannot read the owner's outcome", "error", err)
		s.board.silent.Store(true)
		s.after(time.Second, e)
		return
	}
	s.ownerGone = e.seen
	after, effects := lifecycle.Fold(s.state, lifecycle.Evidence{
		Outcome: outcome, SameBoot: true, Output: s.outputEnd(), Now: time.Now().UnixNano(),
	})
	s.take(after, effects)
	if s.launch != nil {
		s.answerStart()
	}
	s.term.close()
	if o := s.owner; o != nil && e.unwritten {
		s.unwritten = o
		s.board.holding.Store(true)
		go o.empty(s)
	} else if o != nil {
		s.term.forget()
		o.close()
	}
	s.owner, s.seeking = nil, false
	s.board.silent.Store(false)
	s.queue.ownerGone(s)
	s.finishRetirement()
	s.then(func(bool) { s.board.changes.wake() })
}

// empty brings the last output of a dead owner into the log as soon as there is room
// for it: nobody else holds it any more.
func (o *owner) empty(s *session) {
	for {
		select {
		case <-time.After(time.Second):
		case <-s.left:
			return
		}
		if _, err := o.flush(); err == nil || errors.Is(err, output.ErrStopped) {
			o.capture.Sync()
			s.post(emptied{o})
			return
		}
	}
}

// emptied says that the log has got what it had no room for.
type emptied struct{ owner *owner }

func (e emptied) handle(s *session) {
	s.unwritten = nil
	s.board.holding.Store(false)
	s.term.forget()
	e.owner.close()
	s.then(func(bool) { s.board.changes.wake() })
	if s.departs {
		s.after(0, leave{s.successor})
	}
}

// flushPatience bounds how long the end waits for a log that cannot be written.
const flushPatience = 2 * time.Second

// flush brings everything that was captured into the log.
func (o *owner) flush() (end int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	return o.capture.Flush(ctx)
}

// continueOwner continues an owner that does not answer, once: somebody may have
// stopped it.
func (s *session) continueOwner() {
	if s.continued {
		return
	}
	s.continued = true
	s.signalOwner(syscall.SIGCONT)
}

// killOwner ends an owner that cannot be reached otherwise; the kernel ends its
// target.
func (s *session) killOwner() { s.signalOwner(syscall.SIGKILL) }

// signalOwner reaches the owner whether it was taken over or not.
func (s *session) signalOwner(sig syscall.Signal) {
	if s.owner != nil {
		s.owner.pidfd.Signal(sig)
		return
	}
	go func() {
		if err := signalHolder(s.dir, sig); err != nil {
			s.log.Warn("cannot signal the owner", "signal", sig.String(), "error", err)
		}
	}()
}

// signalHolder signals the process that has noted itself in owner.lock.
func signalHolder(dir *sessiondir.Dir, sig syscall.Signal) error {
	id, held, err := dir.Holder(sessiondir.OwnerLock)
	if err != nil || !held {
		return errors.Join(errOwnerGone, err)
	}
	p, err := procs.Open(id)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Signal(sig)
}
