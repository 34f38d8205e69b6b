package owner_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// dies makes g behave as a guardian that is killed: channel and capture end
// together. What it holds of the terminal is closed later, by the test.
func (g *guardian) dies() {
	g.hangUp()
	g.stopCapture()
}

func TestTargetOutlivesItsGuardian(t *testing.T) {
	g := start(t, sh(`echo one; read x; i=0; while [ $i -lt 5000 ]; do echo "line $i"; i=$((i+1)); done; exit 21`))
	g.awaitRunning()
	g.awaitOutput("one")
	g.dies()
	eventually(t, "the owner to give up on guardians", func() bool {
		// Nobody accepts any more, and whoever tries has to know.
		_, err := peersock.Dial(t.Context(), g.dir.File(), sessiondir.GuardianSocket)
		return errors.Is(err, unix.ECONNREFUSED)
	})
	if !g.running() || g.outcome().Exit != nil {
		t.Fatalf("%+v", g.outcome())
	}
	g.write("\n")
	g.awaitEnd()
	o := g.outcome()
	if o.Exit == nil || o.Exit.Code != 21 || o.Drain == nil || o.Drain.State != lifecycle.DrainEOF {
		t.Fatalf("%+v", o)
	}
	out := g.output()
	if !strings.HasSuffix(out, "line 4999\r\n") || strings.Count(out, "line ") != 5000 || o.Drain.EndOffset != int64(len(out)) {
		t.Errorf("%d lines, %d bytes, end %d", strings.Count(out, "line "), len(out), o.Drain.EndOffset)
	}
}

func TestGarbageOnTheChannelEndsNothing(t *testing.T) {
	for name, garbage := range map[string][]byte{
		"no message": []byte("\xff\xff\xff"), "empty": {}, "half a message": {0xa3, 0x63}, "long": make([]byte, 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, sh("echo up; read x; echo bye; exit 13"))
			g.awaitRunning()
			g.awaitOutput("up")
			must(t, g.sendRaw(garbage))
			for range g.states { // until the owner has turned away
			}
			if o := g.outcome(); o.Exit != nil || !g.running() {
				t.Fatalf("%+v", o)
			}
			// The guardian, which lives, goes on capturing.
			g.write("\n")
			g.awaitEnd()
			g.stopCapture()
			if o := g.outcome(); o.Exit == nil || o.Exit.Code != 13 {
				t.Errorf("%+v", o)
			}
			if !strings.HasSuffix(g.output(), "bye\r\n") {
				t.Errorf("%q", g.output())
			}
		})
	}
}

// sendRaw writes one packet that is no message.
func (g *guardian) sendRaw(b []byte) error {
	return ptmx.Control(g.channel, func(fd int) error { return unix.Send(fd, b, unix.MSG_NOSIGNAL) })
}

func TestDescendantsKeepAnAbandonedOwner(t *testing.T) {
	g := start(t, sh("(trap '' HUP; while read x; do echo \"got $x\"; done) </dev/tty & sleep 0.2; exit 2"))
	g.awaitRunning()
	g.dies()
	eventually(t, "the exit is recorded", func() bool { o := g.outcome(); return o.Exit != nil && o.Drain != nil })
	if o := g.outcome(); o.Exit.Code != 2 || o.Drain.Descendants != 1 {
		t.Errorf("%+v %+v", o.Exit, o.Drain)
	}
	g.write("hello\n")
	g.awaitOutput("got hello")
	if !g.running() {
		t.Fatal("left its descendant")
	}
}
