package owner_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func signal(sig unix.Signal, group protocol.SignalGroup) ownerlink.Control {
	return ownerlink.Control{Kind: ownerlink.ControlSignal, Signal: int(sig), Group: group, Mutation: mutation()}
}

func TestEachMutationIsCarriedOutOnce(t *testing.T) {
	g := start(t, sh(`trap 'n=$((n+1)); echo "USR1 $n."' USR1; trap 'echo TERM; exit 8' TERM; echo up; while :; do read x; [ "$x" = end ] && break; done; echo "n=$n."; while :; do read x; done`))
	g.awaitRunning()
	g.awaitOutput("up")
	c := signal(unix.SIGUSR1, protocol.GroupTarget)
	for range 5 {
		if a := g.control(c); a.Delivery != protocol.Delivered || a.Mutation != c.Mutation {
			t.Fatalf("%+v", a)
		}
	}
	g.awaitOutput("USR1 1.")
	g.control(signal(unix.SIGUSR1, protocol.GroupForeground))
	g.awaitOutput("USR1 2.")
	g.write("end\n")
	g.awaitOutput("n=2.")
	g.control(signal(unix.SIGUSR1, protocol.GroupAll))
	g.awaitOutput("USR1 3.")
	term := ownerlink.Control{Kind: ownerlink.ControlTerm, Mutation: mutation()}
	if a := g.control(term); a.Delivery != protocol.Delivered {
		t.Errorf("%+v", a)
	}
	if exit := g.awaitExit(); exit.Code != 8 {
		t.Errorf("%+v", exit)
	}
	if o := g.outcome(); len(o.Applied) != 4 || o.Applied[0] != c.Mutation || o.Applied[3] != term.Mutation {
		t.Errorf("applied: %v", o.Applied)
	}
}

func TestControlsAfterTheEnd(t *testing.T) {
	g := start(t, sh("(trap '' HUP; exec sleep 300) & sleep 0.1"))
	g.awaitDrain()
	if a := g.control(ownerlink.Control{Kind: ownerlink.ControlTerm, Mutation: mutation()}); a.Delivery != protocol.NotNeeded {
		t.Errorf("term: %+v", a)
	}
	if a := g.control(signal(unix.SIGKILL, protocol.GroupAll)); a.Delivery != protocol.NotDelivered {
		t.Errorf("signal: %+v", a)
	}
	sweep := ownerlink.Control{Kind: ownerlink.ControlSweep, Mutation: mutation()}
	if a := g.control(sweep); !a.Sweep.Proved || len(a.Sweep.Processes) != 1 {
		t.Errorf("sweep: %+v", a.Sweep)
	}
	g.awaitEnd()
}

func TestImpossibleSignalsAreRefused(t *testing.T) {
	g := start(t, sh("read x"))
	g.awaitRunning()
	for _, c := range []ownerlink.Control{
		signal(99, protocol.GroupTarget), signal(99, protocol.GroupForeground), signal(99, protocol.GroupAll),
		signal(unix.SIGUSR1, "nobody"),
	} {
		if a := g.control(c); a.Delivery != protocol.NotDelivered || a.Errno != int(unix.EINVAL) {
			t.Errorf("%+v: %+v", c, a)
		}
	}
	if a := g.control(ownerlink.Control{Kind: "nonsense", Mutation: mutation()}); a.Delivery != protocol.NotDelivered || a.Errno == 0 {
		t.Errorf("%+v", a)
	}
	g.write("\n")
	if exit := g.awaitExit(); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
}

func TestStoppedTargetIsSeenAndResumed(t *testing.T) {
	g := start(t, sh("echo up; read x; exit 4"))
	g.awaitRunning()
	g.awaitOutput("up")
	stopped := func(want bool) {
		t.Helper()
		g.await("stopped or not", func(s ownerlink.State) bool { return s.Outcome.Stopped == want })
	}
	g.control(signal(unix.SIGSTOP, protocol.GroupTarget))
	stopped(true)
	g.control(signal(unix.SIGCONT, protocol.GroupTarget))
	stopped(false)
	// A storm is told a few times only, and its end is right.
	for range 100 {
		g.control(signal(unix.SIGSTOP, protocol.GroupTarget))
		g.control(signal(unix.SIGCONT, protocol.GroupTarget))
	}
	g.control(signal(unix.SIGSTOP, protocol.GroupTarget))
	stopped(true)
	changes := 0
	for i := 1; i < len(g.seen); i++ {
		if g.seen[i].Stopped != g.seen[i-1].Stopped {
			changes++
		}
	}
	if changes > 30 {
		t.Errorf("%d changes were recorded", changes)
	}
	g.control(ownerlink.Control{Kind: ownerlink.ControlTerm, Mutation: mutation()})
	if exit := g.awaitExit(); exit.Signal != int(unix.SIGTERM) {
		t.Errorf("a stopped target after term: %+v", exit)
	}
}

func TestSignalsCannotBeTurnedAgainstTheOwner(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 to play the target")
	}
	// The target moves into the owner's own group and makes it the foreground.
	l := launch("/usr/bin/env", "python3", "-c", `import os, signal, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.setpgid(0, os.getppid()); os.tcsetpgrp(0, os.getppid()); print("moved", flush=True); time.sleep(300)`)
	g := start(t, l)
	g.awaitRunning()
	g.awaitOutput("moved")
	if a := g.control(signal(unix.SIGKILL, protocol.GroupForeground)); a.Delivery != protocol.Delivered {
		t.Errorf("%+v", a)
	}
	if exit := g.awaitExit(); exit.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd()
}

func TestSweepLeavesNothing(t *testing.T) {
	g := start(t, sh(`trap '' TERM HUP
sleep 301 & nohup sleep 302 >/dev/null 2>&1 &
setsid sleep 303 & (setsid sh -c '(sleep 304 & exec sleep 305) &' &)
sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &
sh -c 'kill -STOP $$' &
setsid sh -c 'exec 0<&- 1>&- 2>&-; cd /; exec env -i /bin/sleep 306' &
sh -c 'while :; do (exit 0); done' &
i=0; while [ $i -lt 30 ]; do sleep 307 & i=$((i+1)); done
sleep 0.2; echo ready; wait; while :; do sleep 1; done`))
	pid := g.awaitRunning()
	g.awaitOutput("ready")
	before, err := procs.Descendants(g.cmd.Process.Pid)
	must(t, err)
	a := g.control(ownerlink.Control{Kind: ownerlink.ControlSweep, Mutation: mutation()})
	if !a.Sweep.Proved || a.Sweep.Partial != "" || len(a.Sweep.Processes) < 38 {
		t.Errorf("%d of %d: %+v", len(a.Sweep.Processes), len(before), a.Sweep)
	}
	if p := a.Sweep.Processes[0]; p.PID != pid || p.How != "target" || !p.Gone {
		t.Errorf("%+v", p)
	}
	for _, p := range before {
		if unix.Kill(p, 0) == nil {
			t.Errorf("%d lives", p)
		}
	}
	if exit := g.awaitExit(); exit.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd()
	if o := g.outcome(); !o.Consumed || o.Exit == nil || o.Drain == nil {
		t.Errorf("%+v", o)
	}
}

func TestInteractiveShellHasJobControl(t *testing.T) {
	for _, shell := range []string{"bash", "dash"} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed: it is what is tested", shell)
			}
			args := []string{"-i"}
			if shell == "bash" {
				args = []string{"--norc", "--noprofile", "-i"}
			}
			l := launch(path, args...)
			l.Env["PS1"], l.Env["HOME"] = "$ ", protocol.Bytes(t.TempDir())
			g := start(t, l)
			shellPID := strconv.Itoa(g.awaitRunning())
			g.awaitOutput("$ ")
			run := func(line, want string) {
				t.Helper()
				_, err := g.master.Write([]byte(line))
				must(t, err)
				g.awaitOutput(want)
			}
			run("echo a$((1+1))b\n", "a2b")
			run("sleep 100\n", "sleep 100")
			// Before its exec the job may still ignore what a terminal sends.
			eventually(t, "sleep is in the foreground", func() bool {
				fg, err := unix.IoctlGetInt(int(g.master.Fd()), unix.TIOCGPGRP)
				name, err2 := procs.Name(fg)
				return err == nil && err2 == nil && name == "sleep"
			})
			run("\x1a", "topped")
			run("jobs; echo c$((1+2))d\n", "c3d")
			run("bg; echo e$((2+2))f\n", "e4f")
			run("fg\n", "sleep 100")
			eventually(t, "sleep is in the foreground again", func() bool {
				fg, err := unix.IoctlGetInt(int(g.master.Fd()), unix.TIOCGPGRP)
				return err == nil && strconv.Itoa(fg) != shellPID
			})
			run("\x03", "^C")
			run("echo g$((2+3))h\n", "g5h")
			run("exit 33\n", "exit")
			if exit := g.awaitExit(); exit.Code != 33 {
				t.Errorf("%+v", exit)
			}
			g.awaitEnd()
			for _, bad := range []string{"job control", "cannot set terminal", "Inappropriate"} {
				if out := g.output(); strings.Contains(out, bad) {
					t.Errorf("%q in %q", bad, out)
				}
			}
		})
	}
}

func TestLoneTargetStoppedByItsTerminal(t *testing.T) {
	g := start(t, launch("/bin/cat"))
	g.awaitRunning()
	g.write("x\n")
	g.awaitOutput("x\r\nx")
	g.write("\x1a")
	g.await("stopped", func(s ownerlink.State) bool { return s.Outcome.Stopped })
	g.control(signal(unix.SIGCONT, protocol.GroupForeground))
	g.await("continued", func(s ownerlink.State) bool { return !s.Outcome.Stopped })
	g.write("\x04")
	if exit := g.awaitExit(); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	g.awaitEnd()
}
