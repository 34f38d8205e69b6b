package owner_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func TestExitCodes(t *testing.T) {
	for _, code := range []int{0, 1, 2, 7, 126, 127, 128, 137, 254, 255} {
		g := start(t, sh(fmt.Sprintf("echo hoge; exit %d", code)))
		exit := g.awaitExit()
		if exit.Code != code || exit.Signal != 0 || exit.Core || exit.Duration <= 0 || exit.Usage == nil || exit.Usage.MaxRSSBytes == 0 {
			t.Errorf("exit %d: %+v", code, exit)
		}
		drain := g.awaitDrain()
		g.awaitEnd()
		g.stopCapture()
		if out := g.output(); out != "hoge\r\n" || drain.EndOffset != int64(len(out)) {
			t.Errorf("output %q, end %d", out, drain.EndOffset)
		}
		if drain.State != lifecycle.DrainEOF || drain.Holders != 0 || drain.Descendants != 0 {
			t.Errorf("drain: %+v", drain)
		}
		if o := g.outcome(); o.Exit == nil || o.Exit.Code != code || o.Drain == nil || o.Running == nil || !o.Launching {
			t.Errorf("recorded: %+v", o)
		}
	}
}

// fatalSignals are those whose default action ends a process.
func fatalSignals() []unix.Signal {
	var all []unix.Signal
	for s := unix.Signal(1); s <= 31; s++ {
		switch s {
		case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGWINCH:
		default:
			all = append(all, s)
		}
	}
	return append(all, 34, 64)
}

func TestFatalSignals(t *testing.T) {
	core := []unix.Signal{
		unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGSYS,
	}
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	cores := !strings.HasPrefix(string(pattern), "|") && !strings.Contains(string(pattern), "/")
	for _, sig := range fatalSignals() {
		l := launch("/bin/sh", "-c", `ulimit -c unlimited; exec sh -c 'kill -$0 $$; sleep 60' "$0"`, strconv.Itoa(int(sig)))
		l.Cwd = []byte(t.TempDir())
		g := start(t, l)
		exit := g.awaitExit()
		if exit.Signal != int(sig) || exit.Code != 0 {
			t.Errorf("signal %d: %+v", sig, exit)
		}
		if cores && exit.Core != slices.Contains(core, sig) {
			t.Errorf("signal %d: core %v", sig, exit.Core)
		}
		g.awaitEnd()
	}
}

func TestHeldTerminalIsReportedAndSwept(t *testing.T) {
	g := start(t, sh("(trap '' HUP; exec sleep 300) & sleep 0.2; exit 7"))
	if exit := g.awaitExit(); exit.Code != 7 {
		t.Fatalf("%+v", exit)
	}
	drain := g.awaitDrain()
	if drain.State != lifecycle.DrainEmpty || drain.Holders != 1 || drain.Descendants != 1 {
		t.Errorf("drain: %+v", drain)
	}
	if !g.running() {
		t.Fatal("the owner has left its descendant")
	}
	a := g.control(ownerlink.Control{Kind: ownerlink.ControlSweep, Mutation: mutation()})
	if a.Sweep == nil || !a.Sweep.Proved || len(a.Sweep.Processes) != 1 {
		t.Fatalf("%+v", a.Sweep)
	}
	if p := a.Sweep.Processes[0]; p.Name != "sleep" || p.How != "orphan" || p.Signal != 9 || !p.Gone {
		t.Errorf("%+v", p)
	}
	g.awaitEnd()
	if o := g.outcome(); !o.Consumed || o.Exit.Code != 7 || len(o.Applied) != 1 {
		t.Errorf("recorded: %+v", o)
	}
}

func TestEndlessBackgroundWriterCutsTheDrain(t *testing.T) {
	g := start(t, sh("(trap '' HUP; exec yes) & sleep 0.1; exit 3"))
	if exit := g.awaitExit(); exit.Code != 3 {
		t.Fatalf("%+v", exit)
	}
	drain := g.awaitDrain()
	// A look between two of its writes may find the terminal empty.
	if drain.State != lifecycle.DrainCut && drain.State != lifecycle.DrainEmpty || drain.Holders != 1 {
		t.Errorf("drain: %+v", drain)
	}
	at := g.capture.End()
	eventually(t, "output goes on after the end", func() bool { return g.capture.End() > at+1<<20 })
	if a := g.control(ownerlink.Control{Kind: ownerlink.ControlSweep, Mutation: mutation()}); !a.Sweep.Proved {
		t.Errorf("%+v", a.Sweep)
	}
	g.awaitEnd()
}

func TestDrainWaitsWhileNothingCanBeCaptured(t *testing.T) {
	g := start(t, sh("read x; i=0; while [ $i -lt 200 ]; do echo 0123456789; i=$((i+1)); done; exit 5"))
	g.awaitRunning()
	g.stopCapture()
	g.write("\n")
	g.awaitExit()
	if g.last.Outcome.Drain != nil {
		t.Fatalf("drained: %+v", g.last.Outcome.Drain)
	}
	buf := make([]byte, 4096)
	var got []byte
	for g.last.Outcome.Drain == nil && len(got) < 2402 {
		n, err := g.master.Read(buf)
		must(t, err)
		got = append(got, buf[:n]...)
	}
	if drain := g.awaitDrain(); drain.State != lifecycle.DrainEOF {
		t.Errorf("drain: %+v", drain)
	}
	if want := "\r\n" + strings.Repeat("0123456789\r\n", 200); string(got) != want {
		t.Errorf("%d bytes", len(got))
	}
	g.awaitEnd()
}

func TestOrphansAreReapedAndNeverTakenForTheTarget(t *testing.T) {
	g := start(t, sh(`i=0; while [ $i -lt 200 ]; do (exec sh -c "(exit $((i % 100))) & exit 0"); i=$((i+1)); done; echo made; read x; exit 42`))
	pid := g.awaitRunning()
	g.awaitOutput("made")
	eventually(t, "no child but the target", func() bool {
		children, err := procs.Children(g.cmd.Process.Pid)
		return err == nil && len(children) == 1 && children[0] == pid
	})
	g.write("\n")
	if exit := g.awaitExit(); exit.Code != 42 {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd()
}

func TestSettingsOfTheTerminalAreRestored(t *testing.T) {
	g := start(t, sh("(trap '' HUP; exec sleep 300) & stty raw -echo; echo set; read x"))
	g.awaitOutput("set")
	echo := func() bool {
		tio, err := unix.IoctlGetTermios(int(g.master.Fd()), unix.TCGETS)
		must(t, err)
		return tio.Lflag&unix.ECHO != 0 && tio.Lflag&unix.ICANON != 0
	}
	if echo() {
		t.Fatal("the target has not set its terminal")
	}
	g.control(ownerlink.Control{Kind: ownerlink.ControlSignal, Group: protocol.GroupTarget, Signal: int(unix.SIGKILL), Mutation: mutation()})
	g.awaitExit()
	if !echo() {
		t.Error("not restored")
	}
}

func TestReleaseHangsUpAndLeaves(t *testing.T) {
	g := start(t, sh("sleep 300 & echo $!; trap '' HUP; (setsid sleep 300 & exec sleep 0.1); exit 0"))
	g.awaitDrain()
	pid, err := strconv.Atoi(strings.TrimSpace(g.awaitOutput("\n")))
	must(t, err)
	left, err := procs.Descendants(g.cmd.Process.Pid)
	must(t, err)
	g.release()
	g.awaitEnd()
	eventually(t, "the terminal's group is hung up", func() bool { return unix.Kill(pid, 0) == unix.ESRCH || field(t, pid, "State")[0] == 'Z' })
	for _, p := range left {
		unix.Kill(p, unix.SIGKILL)
	}
}

func TestKilledOwnerTakesItsTargetWithIt(t *testing.T) {
	g := start(t, sh("trap '' HUP TERM; echo up; while :; do sleep 1; done"))
	pid := g.awaitRunning()
	g.awaitOutput("up")
	g.cmd.Process.Kill()
	<-g.ended
	eventually(t, "the target is gone", func() bool { s := field(t, pid, "State"); return s == "" || s[0] == 'Z' })
	if o := g.outcome(); o.Running == nil || o.Exit != nil {
		t.Errorf("%+v", o)
	}
}

func TestTheOwnerIsUnaffectedByTerminalSignals(t *testing.T) {
	g := start(t, sh("read x; exit 9"))
	g.awaitRunning()
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGTTOU, unix.SIGTTIN, unix.SIGTSTP} {
		for range 20 {
			must(t, unix.Kill(-g.cmd.Process.Pid, sig))
		}
	}
	g.write("\n")
	if exit := g.awaitExit(); exit.Code != 9 {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd()
}

func TestCapsuleReports(t *testing.T) {
	// printf of a frame of lifecycle.Report: length, then deterministic CBOR.
	frame := func(r lifecycle.Report) string {
		b, err := protocol.AppendFrame(nil, r)
		must(t, err)
		var s strings.Builder
		for _, c := range b {
			fmt.Fprintf(&s, "\\%03o", c)
		}
		return s.String()
	}
	running := "printf '" + frame(lifecycle.Report{Running: true}) + "' >&3;"
	refused := "printf '" + frame(lifecycle.Report{Refused: &lifecycle.Failure{Stage: "grants", Message: "no"}}) + "' >&3;"
	reason := "printf '" + frame(lifecycle.Report{Reason: "guest trap"}) + "' >&3;"
	for name, c := range map[string]struct {
		script string
		want   lifecycle.Report
		reason string
	}{
		"runs and says why it ended": {running + reason + "exit 1", lifecycle.Report{Running: true, Reason: "guest trap"}, "guest trap"},
		"runs":                       {running + "exit 1", lifecycle.Report{Running: true}, ""},
		"refused":                    {refused + "exit 1", lifecycle.Report{Refused: &lifecycle.Failure{Stage: "grants", Message: "no"}}, ""},
		"says nothing":               {"exit 1", lifecycle.Report{Closed: true}, ""},
		"closes early":               {"exec 3>&-; read x; exit 1", lifecycle.Report{Closed: true}, ""},
		"garbage":                    {"echo garbage >&3; exit 1", lifecycle.Report{Closed: true}, ""},
		"held by another":            {running + "sleep 300 & exit 1", lifecycle.Report{Running: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := sh(c.script)
			l.Report = true
			g := start(t, l)
			g.await("reported", func(s ownerlink.State) bool { return s.Outcome.Report != nil })
			g.write("\n")
			exit := g.awaitExit()
			if exit.Code != 1 || exit.Reason != c.reason {
				t.Errorf("exit %+v", exit)
			}
			got := g.outcome().Report
			if got == nil || fmt.Sprintf("%+v %+v", *got, got.Refused) != fmt.Sprintf("%+v %+v", c.want, got.Refused) && got.Refused == nil {
				t.Errorf("report %+v, want %+v", got, c.want)
			}
			if c.want.Refused != nil && (got.Refused == nil || *got.Refused != *c.want.Refused) {
				t.Errorf("report %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTheExitDoesNotWaitForTheDisk(t *testing.T) {
	g := start(t, sh("read x; exit 6"))
	g.awaitRunning()
	dir := int(g.dir.File().Fd())
	// The file is gone and its name is taken: neither an append nor a new file works.
	must(t, unix.Unlinkat(dir, "outcome", 0))
	must(t, unix.Mkdirat(dir, "outcome", 0o700))
	g.write("\n")
	g.await("not durable", func(s ownerlink.State) bool { return s.NotDurable != "" })
	if g.last.Outcome.Exit != nil {
		t.Errorf("reported before it is durable: %+v", g.last.Outcome)
	}
	if a := g.control(ownerlink.Control{Kind: ownerlink.ControlTerm, Mutation: mutation()}); a.Delivery != protocol.NotNeeded {
		t.Errorf("%+v", a)
	}
	if !g.running() {
		t.Fatal("left with its record")
	}
	must(t, unix.Unlinkat(dir, "outcome", unix.AT_REMOVEDIR))
	began := time.Now()
	if exit := g.awaitExit(); exit.Code != 6 {
		t.Errorf("%+v", exit)
	}
	g.await("durable again", func(s ownerlink.State) bool { return s.NotDurable == "" })
	t.Logf("durable again after %v", time.Since(began))
	g.awaitEnd()
	if o := g.outcome(); o.Exit == nil || o.Exit.Code != 6 || o.Running == nil || !o.Launching || len(o.Applied) != 1 || o.Drain == nil {
		t.Errorf("%+v", o)
	}
}
