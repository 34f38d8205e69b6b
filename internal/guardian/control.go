package guardian

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// silence is how long an owner may leave a control unanswered before it is
	// continued, and lastChance how long one that was continued still has.
	silence    = 5 * time.Second
	lastChance = time.Second
	// sweepReach is how long it may take to begin a sweep, and sweepPatience to
	// prove it.
	sweepReach    = 3 * time.Second
	sweepPatience = 15 * time.Second
)

// controls is what waits for the owner. One is outstanding at a time: the owner
// never has to queue.
type controls struct {
	seq     uint64
	pending []pendingControl
	taken   string // the mutation of the sweep that the owner has begun
}

type pendingControl struct {
	mutation protocol.MutationID
	control  ownerlink.Control
	sent     bool
}

// termTarget asks the target's group to end; after grace the owner sweeps.
func (s *session) termTarget(m *mutation, grace time.Duration) {
	switch {
	case grace > protocol.MaxGraceMS*time.Millisecond:
		s.refuse(m, protocol.Refuse(protocol.CodeInvalid, "cannot term: the grace is longer than a week"))
	case s.state.State == lifecycle.New:
		s.refuse(m, notStarted(m))
	case s.undecided():
		s.hold(m)
	case s.ownerless() || s.state.State == lifecycle.Exited || s.state.State.Final():
		s.step(lifecycle.Event{Kind: lifecycle.Account})
		s.settleNow(m, protocol.ControlAnswer{MutationID: m.id, Delivery: s.afterEnd()})
	default:
		if grace > 0 {
			s.signals[m.id] = sessiondir.SignalIntent{Grace: grace}
			s.otherwise(func(*protocol.Error) { delete(s.signals, m.id) })
		}
		if s.admit(m, func() { s.enqueue(m.id, ownerlink.Control{Kind: ownerlink.ControlTerm, Grace: grace}) }) {
			s.asked(m)
		}
	}
}

// asked notes who asks a living target to end.
func (s *session) asked(m *mutation) {
	s.step(lifecycle.Event{Kind: lifecycle.Ask, ID: m.id.String()})
}

// ends tells whether a signal ends a process that does not handle it (signal(7)).
func ends(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGURG, syscall.SIGWINCH,
		syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		return false
	}
	return true
}

// afterEnd is what became of a signal that has no target any more.
func (s *session) afterEnd() protocol.Delivery {
	if s.state.State == lifecycle.Lost {
		return protocol.NotDelivered
	}
	return protocol.NotNeeded
}

// signalTarget sends one signal to a target that runs.
func (s *session) signalTarget(m *mutation, r *protocol.SignalRequest) {
	group := r.Group
	if group == "" {
		group = protocol.GroupForeground
	}
	known := group == protocol.GroupForeground || group == protocol.GroupTarget || group == protocol.GroupAll
	switch {
	case r.Signal < 1 || r.Signal > 64 || unix.SignalName(syscall.Signal(r.Signal)) == "" && r.Signal < 34:
		s.refuse(m, protocol.Refuse(protocol.CodeInvalid, fmt.Sprintf("cannot signal: there is no signal %d", r.Signal)))
	case !known:
		s.refuse(m, protocol.Refuse(protocol.CodeInvalid, fmt.Sprintf("cannot signal: there is no group %q", r.Group)))
	case s.state.State == lifecycle.New:
		s.refuse(m, notStarted(m))
	case s.undecided():
		s.hold(m)
	case s.ownerless() || !s.state.State.Alive() && s.state.State != lifecycle.Starting:
		s.refuse(m, protocol.Refuse(protocol.CodeNotRunning, "cannot signal: the target has ended"))
	default:
		s.signals[m.id] = sessiondir.SignalIntent{Signal: r.Signal, Group: group}
		s.otherwise(func(*protocol.Error) { delete(s.signals, m.id) })
		admitted := s.admit(m, func() {
			s.enqueue(m.id, ownerlink.Control{Kind: ownerlink.ControlSignal, Signal: r.Signal, Group: group})
		})
		if sig := syscall.Signal(r.Signal); admitted && ends(sig) {
			s.asked(m)
		}
	}
}

// sweepSession ends every process of the session.
func (s *session) sweepSession(m *mutation) {
	switch {
	case s.state.State == lifecycle.New:
		s.refuse(m, notStarted(m))
	case s.undecided() && (s.launch == nil || !s.launch.answered):
		s.hold(m)
	case s.undecided():
		s.admit(m, func() { s.sweepUnreported(m.id) })
	case s.ownerless():
		s.admit(m, func() { s.search(m.id) })
	default:
		if s.admit(m, func() { s.enqueue(m.id, ownerlink.Control{Kind: ownerlink.ControlSweep}) }) {
			s.asked(m)
		}
	}
}

// sweepUnreported ends an owner that never reported and cannot be asked: its end is
// the evidence.
func (s *session) sweepUnreported(id protocol.MutationID) {
	s.queue.seq++
	s.queue.pending = append(s.queue.pending, pendingControl{
		mutation: id, control: ownerlink.Control{Kind: ownerlink.ControlSweep, Seq: s.queue.seq}, sent: true,
	})
	s.after(silence, unanswered{seq: s.queue.seq})
	s.killOwner()
}

// sweptBefore answers a sweep that has no owner to ask. Only what the owner made
// durable proves anything: that its sweep, or its leaving by itself, came after
// the kernel had told it that no child is left.
func (s *session) sweptBefore(id protocol.MutationID) protocol.SweepAnswer {
	answer := protocol.SweepAnswer{MutationID: id, Proved: s.state.GroupConsumed, Processes: []protocol.Swept{}}
	if r := s.state.Record; r != nil && (r.Result == lifecycle.ResultLaunchFailed || r.Result == lifecycle.ResultNeverStarted) {
		answer.Proved = true // nothing was ever there
	}
	if o, err := s.dir.Outcome(); err == nil && o != nil && o.Childless {
		answer.Proved = true
	}
	if !answer.Proved {
		answer.Partial = "the owner is gone: whether a process of the session is left cannot be told"
	}
	return answer
}

// ownerless tells that no owner exists, or can appear.
func (s *session) ownerless() bool { return s.owner == nil && !s.seeking }

func notStarted(m *mutation) *protocol.Error {
	return protocol.Refuse(protocol.CodeNotStarted, "cannot "+string(m.op)+": the session has no target yet")
}

// enqueue gives a control to the owner after those before it.
func (s *session) enqueue(id protocol.MutationID, c ownerlink.Control) {
	s.queue.seq++
	c.Seq = s.queue.seq
	if id != (protocol.MutationID{}) {
		c.Mutation = id.String()
	}
	s.queue.pending = append(s.queue.pending, pendingControl{mutation: id, control: c})
	patience := completionPatience // also if it never comes to be sent
	if s.seeking {
		patience = silence
	}
	s.after(patience, unanswered{seq: c.Seq})
	s.sendNext()
}

// sendNext sends the first control if none is outstanding.
func (s *session) sendNext() {
	if s.seeking {
		return
	}
	if s.owner == nil {
		// It went between admission and now: its end settles what is pending.
		s.after(0, ownerWentBefore{})
		return
	}
	if len(s.queue.pending) == 0 || s.queue.pending[0].sent {
		return
	}
	p := &s.queue.pending[0]
	p.sent = true
	conn, control := s.owner.conn, p.control
	if control.Kind == ownerlink.ControlSweep {
		s.after(sweepReach, unanswered{seq: control.Seq, reach: true})
		s.after(sweepPatience, unanswered{seq: control.Seq})
	} else {
		s.after(silence, unanswered{seq: control.Seq})
	}
	if conn.TrySend(control) {
		return
	}
	go func() {
		if err := conn.Send(control, silence); err != nil {
			s.log.Warn("cannot reach the owner", "error", err)
			s.post(unsent{control.Seq})
		}
	}()
}

// unsent is a control that did not reach the channel: it is sent again.
type unsent struct{ seq uint64 }

func (e unsent) handle(s *session) {
	if len(s.queue.pending) > 0 && s.queue.pending[0].control.Seq == e.seq {
		s.queue.pending[0].sent = false
		s.after(time.Second, resend{})
	}
}

// resend sends what waits.
type resend struct{}

func (resend) handle(s *session) {
	if s.owner != nil {
		s.sendNext()
	}
}

// ownerWentBefore settles controls that were admitted when the owner had just gone.
type ownerWentBefore struct{}

func (ownerWentBefore) handle(s *session) {
	if s.ownerless() {
		s.queue.ownerGone(s)
		s.finishRetirement()
	}
}

// unanswered is the end of the owner's time for one control. First the owner is
// continued, in case somebody has stopped it; then it is reported. What it says
// later still completes the control.
type unanswered struct {
	seq       uint64
	reach     bool // it was only to be begun
	continued bool
}

func (e unanswered) handle(s *session) {
	for _, p := range s.queue.pending {
		if p.control.Seq != e.seq || s.ownerless() || e.reach && s.queue.taken == p.control.Mutation {
			continue
		}
		if !e.continued {
			e.continued = true
			s.continueOwner()
			s.after(lastChance, e)
			return
		}
		s.board.silent.Store(true)
		s.then(func(bool) {
			s.fail(p.mutation, protocol.Refuse(protocol.CodeOwnerNotResponding,
				"cannot tell the outcome: the owner did not answer; repeat with the same operation id"))
		})
		return
	}
}

// controlled completes the outstanding control with the owner's answer.
func (s *session) controlled(a ownerlink.Answer) {
	// An owner goes on saying its last answer, to a later guardian too, whose
	// numbers begin anew: only the mutation tells them apart.
	if len(s.queue.pending) == 0 || s.queue.pending[0].control.Seq != a.Seq || s.queue.pending[0].control.Mutation != a.Mutation {
		return
	}
	p := s.queue.pending[0]
	s.queue.pending = s.queue.pending[1:]
	if p.control.Kind == ownerlink.ControlRelease {
		s.then(func(bool) { s.sendNext() })
		return
	}
	switch {
	case a.Sweep != nil:
		report := *a.Sweep
		report.MutationID = p.mutation
		if report.Processes == nil {
			report.Processes = []protocol.Swept{}
		}
		s.step(lifecycle.Event{Kind: lifecycle.Account})
		if report.Proved {
			s.step(lifecycle.Event{Kind: lifecycle.Consume})
		}
		s.complete(p.mutation, report)
	default:
		s.complete(p.mutation, protocol.ControlAnswer{MutationID: p.mutation, Delivery: a.Delivery, Errno: a.Errno})
	}
	s.then(func(bool) { s.sendNext() })
}

// delivered is what became of a signal whose owner is gone without an answer: what
// it has recorded. One that was sent in the instant of its death may have arrived
// all the same.
func (s *session) delivered(id protocol.MutationID) protocol.Delivery {
	if o, err := s.dir.Outcome(); err == nil && o != nil && slices.Contains(o.Delivered, id.String()) {
		return protocol.Delivered
	}
	return protocol.NotDelivered
}

// ownerGone completes everything that still waited for an owner that is no more.
func (q *controls) ownerGone(s *session) {
	pending := q.pending
	q.pending = nil
	for _, p := range pending {
		switch p.control.Kind {
		case ownerlink.ControlRelease:
		case ownerlink.ControlSweep:
			s.then(func(bool) { s.search(p.mutation) })
		default:
			s.complete(p.mutation, protocol.ControlAnswer{MutationID: p.mutation, Delivery: s.delivered(p.mutation)})
		}
	}
}
