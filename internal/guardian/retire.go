package guardian

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// releasePatience is how long a released owner may take to leave.
const releasePatience = 10 * time.Second

// retireSession acknowledges the final record and lets owner and guardian go.
func (s *session) retireSession(m *mutation) {
	switch {
	case s.state.State == lifecycle.Retired:
		s.settleNow(m, protocol.RetireAnswer{MutationID: m.id, Record: s.state.Record})
		s.then(func(bool) { s.leaveSoon() })
	case s.state.State == lifecycle.New, s.state.State.Final() && s.ownerless():
		s.noteGivenUp()
		s.step(lifecycle.Event{Kind: lifecycle.Retire})
		s.step(lifecycle.Event{Kind: lifecycle.EndTerminal})
		s.settleNow(m, protocol.RetireAnswer{MutationID: m.id, Record: s.state.Record})
	case s.state.State.Final():
		if s.admit(m, func() { s.releaseOwner(m.id) }) {
			s.noteGivenUp()
		}
	default:
		s.refuse(m, protocol.Refuse(protocol.CodeNotEnded,
			"cannot retire: the session is "+string(s.state.State)))
	}
}

// noteGivenUp says in the record what a retirement gives up: output that could not be
// written and that nobody will hold any more, and processes that nobody will watch.
func (s *session) noteGivenUp() {
	var stage string
	var lost []string
	if c := s.term.capture.Load(); c != nil && c.State().Err != nil {
		stage = "output"
		lost = append(lost, "the end of the output could not be written: "+c.State().Err.Error())
	}
	if left := s.survivors(); len(left) > 0 {
		stage = cmp.Or(stage, "processes")
		lost = append(lost, "still alive: "+strings.Join(left, ", "))
	}
	if stage != "" {
		s.step(lifecycle.Event{Kind: lifecycle.FailCleanup, Failure: &lifecycle.Failure{
			Stage: stage, Message: strings.Join(lost, "; "),
		}})
	}
}

// maxLeft bounds how many processes are named.
const maxLeft = 16

// survivors names the processes of the session that are known to live.
func (s *session) survivors() []string {
	var pids []int
	if s.owner != nil {
		pids, _ = procs.Descendants(s.owner.id.PID)
	} else {
		pids = s.grouped()
	}
	var left []string
	for _, pid := range pids {
		id, err := procs.Of(pid)
		if err != nil || !id.Alive() {
			continue
		}
		if len(left) == maxLeft {
			left = append(left, "and more")
			break
		}
		left = append(left, fmt.Sprintf("%d (%s)", pid, named(id).Name))
	}
	return left
}

// releaseOwner tells the owner to leave and waits for its end; one that does not
// leave is ended.
func (s *session) releaseOwner(id protocol.MutationID) {
	s.retiring = append(s.retiring, id)
	s.enqueue(protocol.MutationID{}, ownerlink.Control{Kind: ownerlink.ControlRelease})
	s.after(releasePatience, releaseTooLong{})
}

// releaseTooLong ends an owner that does not leave: a retirement is committed
// and the target is over.
type releaseTooLong struct{}

func (releaseTooLong) handle(s *session) {
	if !s.ownerless() && len(s.retiring) > 0 {
		s.log.Warn("the owner did not leave when released")
		s.killOwner()
	}
}

// finishRetirement completes the retirements that waited for the owner's end.
func (s *session) finishRetirement() {
	if len(s.retiring) == 0 {
		return
	}
	s.step(lifecycle.Event{Kind: lifecycle.Retire})
	s.step(lifecycle.Event{Kind: lifecycle.EndTerminal})
	for _, id := range s.retiring {
		s.complete(id, protocol.RetireAnswer{MutationID: id, Record: s.state.Record})
	}
	s.retiring = nil
}

// leaveSoon ends the guardian once the answers are on their way.
func (s *session) leaveSoon() {
	s.leaving = true
}
