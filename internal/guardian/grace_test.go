package guardian_test

import (
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func TestAGraceOutlivesItsGuardian(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`trap 'echo no' TERM; (trap '' TERM HUP; echo up; exec sleep 500) & while :; do sleep 0.05; done`)
	a.waitOutput("up")
	id := newID()
	term := func(l *link, ms uint64) protocol.Response {
		return l.call(protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: id, GraceMS: ms})
	}
	first := term(l, 1000)
	if got := decode[protocol.ControlAnswer](t, first); got.Delivery != protocol.Delivered {
		t.Errorf("%+v", got)
	}
	kill(t, s)
	l = s.reach()
	if again := term(l, 1000); !again.Replayed || again.Error != nil {
		t.Errorf("the same again: %+v", again)
	}
	if other := term(l, 2000); other.Error == nil || other.Error.Code != protocol.CodeConflict {
		t.Errorf("with another grace: %+v", other)
	}
	final := s.final()
	if r := final.Record; r.ExitSignal != int(syscall.SIGKILL) || r.AskedBy != id.String() || r.Reason != "" {
		t.Errorf("%+v", r)
	}
	eventually(t, "the sweep to be accounted for", func() bool {
		now := l.status()
		return now.GroupConsumed && now.TargetTerminated && now.TerminalSessionEnded && now.GraceUntil == 0
	})
	if r := l.call(protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: newID(), GraceMS: protocol.MaxGraceMS + 1}); r.Error == nil || r.Error.Code != protocol.CodeInvalid {
		t.Errorf("a grace of more than a week: %+v", r.Error)
	}
}

func TestAGraceIsShown(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`trap 'echo no' TERM; echo up; while :; do sleep 0.05; done`)
	a.waitOutput("up")
	decode[protocol.ControlAnswer](t, l.call(protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: newID(), GraceMS: 3_600_000}))
	eventually(t, "the grace", func() bool { return l.status().GraceUntil != 0 })
	decode[protocol.SweepAnswer](t, l.sweep(newID()))
	if now := l.status(); now.GraceUntil != 0 || now.State == lifecycle.Running {
		t.Errorf("%+v", now.Durable)
	}
}
