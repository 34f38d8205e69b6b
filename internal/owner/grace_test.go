package owner_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func term(grace time.Duration) ownerlink.Control {
	return ownerlink.Control{Kind: ownerlink.ControlTerm, Mutation: mutation(), Grace: grace}
}

func TestATargetThatDoesNotEndInItsGraceIsSwept(t *testing.T) {
	g := start(t, sh("trap '' TERM; (trap '' TERM HUP; exec sleep 300) & echo up; while :; do sleep 1; done"))
	g.awaitRunning()
	g.awaitOutput("up")
	c, later := term(200*time.Millisecond), term(time.Hour)
	if a := g.control(later); a.Delivery != protocol.Delivered {
		t.Errorf("%+v", a)
	}
	if a := g.control(c); a.Delivery != protocol.Delivered {
		t.Errorf("%+v", a)
	}
	g.control(term(time.Hour)) // the earliest counts
	if exit := g.awaitExit(); exit.Signal != int(unix.SIGKILL) || exit.AskedBy != c.Mutation {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd() // it leaves: nothing is left
	if o := g.outcome(); o.Grace == nil || o.Grace.By != c.Mutation || o.CleanupRequested != c.Mutation || !o.Consumed {
		t.Errorf("%+v", o)
	}
}

func TestAGraceEndsWithTheTarget(t *testing.T) {
	g := start(t, sh("trap 'exit 4' TERM; (trap '' TERM HUP; echo up; exec sleep 300) & while :; do sleep 0.05; done"))
	g.awaitRunning()
	g.awaitOutput("up")
	c := term(2 * time.Second)
	g.control(c)
	if exit := g.awaitExit(); exit.Code != 4 || exit.AskedBy != c.Mutation {
		t.Errorf("%+v", exit)
	}
	g.awaitDrain()
	// What it has left behind lives until somebody says otherwise.
	<-time.After(2500 * time.Millisecond)
	sweep := g.control(ownerlink.Control{Kind: ownerlink.ControlSweep, Mutation: mutation()})
	if len(sweep.Sweep.Processes) != 1 {
		t.Errorf("%+v", sweep.Sweep)
	}
	if o := g.outcome(); o.CleanupRequested != "" {
		t.Errorf("%+v", o)
	}
	g.awaitEnd()
}

func TestAnExitIsAskedForByATermAndADeathByWhoSentItsSignal(t *testing.T) {
	const script = "trap '' INT; trap 'exit 0' USR1; trap '' TERM; echo up; while :; do sleep 0.05; done"
	for name, asked := range map[string]struct {
		controls []ownerlink.Control
		by       int // -1: nobody
	}{
		"a handled signal":           {[]ownerlink.Control{signal(unix.SIGINT, protocol.GroupTarget), signal(unix.SIGUSR1, protocol.GroupTarget)}, -1},
		"a term before":              {[]ownerlink.Control{term(0), signal(unix.SIGUSR1, protocol.GroupTarget)}, 0},
		"another signal before":      {[]ownerlink.Control{signal(unix.SIGINT, protocol.GroupTarget), signal(unix.SIGQUIT, protocol.GroupTarget)}, 1},
		"a term before its signal":   {[]ownerlink.Control{term(0), signal(unix.SIGKILL, protocol.GroupAll)}, 1},
		"the same signal by another": {[]ownerlink.Control{signal(unix.SIGHUP, protocol.GroupForeground)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, sh(script))
			g.awaitRunning()
			g.awaitOutput("up")
			for _, c := range asked.controls {
				g.control(c)
			}
			want := ""
			if asked.by >= 0 {
				want = asked.controls[asked.by].Mutation
			}
			if exit := g.awaitExit(); exit.AskedBy != want {
				t.Errorf("asked by %q, want %q: %+v", exit.AskedBy, want, exit)
			}
			g.awaitEnd()
		})
	}
}
