package owner_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

func TestStartedByHandItRefuses(t *testing.T) {
	cmd := exec.Command(ownerPath())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Run()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(stderr.String(), "started by mur-guardian") {
		t.Errorf("%v: %s", cmd.ProcessState, stderr.String())
	}
	out, err := exec.Command(ownerPath(), "--version").Output()
	if err != nil || !bytes.HasPrefix(out, []byte("mur-owner ")) {
		t.Errorf("--version: %v %q", err, out)
	}
}

func TestTargetInheritsNothing(t *testing.T) {
	probe := `grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | tr '\n' ' '; echo; umask; pwd; tr '\000' '\n' < /proc/$$/environ; stty size; echo done`
	dirty := `import os, signal, sys
for s in range(1, 65):
    if s in (9, 19, 32, 33): continue
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.open("/dev/null", os.O_RDONLY); os.set_inheritable(os.dup2(3, 77), True); os.umask(0o077)
os.execv(sys.argv[1], sys.argv[1:])`
	for name, wrap := range map[string][]string{"clean": nil, "dirty ancestor": {"python3", "-c", dirty}} {
		t.Run(name, func(t *testing.T) {
			if len(wrap) > 0 {
				if _, err := exec.LookPath(wrap[0]); err != nil {
					t.Skip("no python3 to play the ancestor")
				}
			}
			l := sh(probe)
			l.Env["B"], l.Env["A"] = "2", "1"
			g := startThrough(t, l, wrap...)
			g.awaitDrain()
			g.awaitEnd()
			g.stopCapture()
			want := strings.Join([]string{
				"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000",
				"0 1 2 3 ", // 3 is ls's own
				"0022", "/", "A=1", "B=2", "PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "37 101", "done", "",
			}, "\r\n")
			if got := g.output(); got != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}

func TestTheTargetsUmaskIsOnlyTheTargets(t *testing.T) {
	l := sh("umask; read x")
	l.Umask = 0o777
	g := start(t, l)
	if out := g.awaitOutput("\n"); out != "0777\r\n" {
		t.Errorf("the target's is %q", out)
	}
	for _, name := range []string{sessiondir.OutcomeFile, sessiondir.OwnerSocket} {
		info, err := os.Stat(filepath.Join(g.dir.Path(), name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	g.write("\n")
	g.awaitEnd()
}

func TestTargetIsForegroundBeforeItsFirstInstruction(t *testing.T) {
	g := start(t, sh(`read _ _ _ ppid pgrp sid tty tpgid _ < /proc/self/stat; echo "$$ $pgrp $tpgid $sid $ppid."; cat </dev/tty`))
	pid := g.awaitRunning()
	out := g.awaitOutput(".")
	// The shell itself reads the file, so the fields are its own.
	f := strings.Fields(strings.TrimSuffix(strings.TrimSpace(out), "."))
	owner := strconv.Itoa(g.cmd.Process.Pid)
	want := []string{strconv.Itoa(pid), strconv.Itoa(pid), strconv.Itoa(pid), owner, owner}
	if strings.Join(f, " ") != strings.Join(want, " ") {
		t.Errorf("pid pgrp tpgid sid ppid: %v, want %v", f, want)
	}
	// Not before cat runs: a shell that is just starting it may swallow the signal.
	g.write("x\n")
	g.awaitOutput("x\r\nx\r\n")
	g.write("\x03")
	if exit := g.awaitExit(); exit.Signal != int(unix.SIGINT) {
		t.Errorf("after ^C: %+v", exit)
	}
	g.awaitEnd()
}

func TestOwnerNotesItselfAndHidesItsMemory(t *testing.T) {
	g := start(t, sh("read x"))
	g.awaitRunning()
	id, held, err := g.dir.Holder(sessiondir.OwnerLock)
	if err != nil || !held || id.PID != g.cmd.Process.Pid {
		t.Errorf("holder: %+v %v %v", id, held, err)
	}
	if id, _ := procs.Of(g.cmd.Process.Pid); !id.Alive() {
		t.Error("not alive")
	}
	if b := g.last.Build; b == "" || g.last.Version != ownerlink.Version {
		t.Errorf("build %q version %d", b, g.last.Version)
	}
	var st unix.Stat_t
	must(t, unix.Stat(fmt.Sprintf("/proc/%d/fd", g.cmd.Process.Pid), &st))
	if st.Uid != 0 {
		t.Error("its descriptors are open to everything else of its user")
	}
}

func TestLaunchFailures(t *testing.T) {
	tmp := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(tmp, name)
		must(t, os.WriteFile(p, []byte(content), mode))
		return p
	}
	noInterpreter := file("no-interpreter", "#!/no/such/interpreter\n", 0o755)
	noMagic := file("no-magic", "echo hi\n", 0o755)
	plain := file("plain", "#!/bin/sh\n", 0o644)
	in := func(cwd string, l ownerlink.Launch) ownerlink.Launch {
		l.Cwd = []byte(cwd)
		return l
	}
	path := func(path string, l ownerlink.Launch) ownerlink.Launch {
		l.Env = map[protocol.Bytes]protocol.Bytes{"PATH": protocol.Bytes(path)}
		return l
	}
	big := launch("/bin/true", strings.Repeat("x", 200_000))
	cases := map[string]struct {
		l     ownerlink.Launch
		stage string
		errno unix.Errno
		text  string
	}{
		"directory missing":        {in("/no/such", sh("true")), "cwd", unix.ENOENT, "/no/such"},
		"directory is a file":      {in(plain, sh("true")), "cwd", unix.ENOTDIR, plain},
		"not in PATH":              {launch("no-such-program"), "lookup", unix.ENOENT, "no-such-program"},
		"in PATH but not runnable": {path(tmp, launch("plain")), "lookup", unix.EACCES, "plain"},
		"empty program":            {launch(""), "lookup", unix.ENOENT, ""},
		"program missing":          {launch("/no/such/program"), "exec", unix.ENOENT, "/no/such/program"},
		"bad interpreter":          {launch(noInterpreter), "exec", unix.ENOENT, "interpreter"},
		"not executable":           {launch(plain), "exec", unix.EACCES, plain},
		"a directory":              {launch(tmp), "exec", unix.EACCES, tmp},
		"no magic number":          {launch(noMagic), "exec", unix.ENOEXEC, "#!"},
		"argument too long":        {big, "exec", unix.E2BIG, "/bin/true"},
		"NUL within an argument":   {launch("/bin/true", "a\x00b"), "exec", unix.EINVAL, "NUL"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := start(t, c.l)
			s := g.await("failed", func(s ownerlink.State) bool { return s.Outcome.Failure != nil })
			f := s.Outcome.Failure
			if f.Stage != c.stage || f.Errno != int(c.errno) || !strings.Contains(f.Message, c.text) {
				t.Errorf("got %+v, want %s %d", f, c.stage, int(c.errno))
			}
			if o := g.outcome(); o.Failure == nil || o.Running != nil || o.Exit != nil || !o.Launching {
				t.Errorf("recorded: %+v", o)
			}
			g.awaitEnd()
		})
	}
}

func TestProgramIsFoundFromTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "here"), []byte("#!/bin/sh\nexit 12\n"), 0o755))
	for _, program := range []string{"./here", "here"} {
		l := launch(program)
		l.Cwd = []byte(dir)
		l.Env["PATH"] = "/no/such::/usr/bin"
		g := start(t, l)
		if exit := g.awaitExit(); exit.Code != 12 {
			t.Errorf("%s: %+v", program, exit)
		}
		g.awaitEnd()
	}
}

func TestNothingIsLaunchedWithoutARecord(t *testing.T) {
	root, err := sessiondir.OpenRoot(t.TempDir() + "/state")
	must(t, err)
	defer root.Close()
	dir, _, err := root.Create(protocol.NewMutationID(time.Now()), sessiondir.CreateOptions{})
	must(t, err)
	defer dir.Close()
	mark := filepath.Join(t.TempDir(), "ran")
	l := sh("touch " + mark)
	// Enough for the note in owner.lock, too little for an outcome.
	g := startIn(t, dir, l, "prlimit", "--fsize=4096")
	s := g.await("failed", func(s ownerlink.State) bool { return s.Outcome.Failure != nil })
	if f := s.Outcome.Failure; f.Stage != "outcome" || f.Errno != int(unix.EFBIG) || s.NotDurable == "" {
		t.Errorf("%+v, not durable: %q", f, s.NotDurable)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("launched")
	}
	g.release()
	g.awaitEnd()
}

func TestASecondOwnerLaunchesNothing(t *testing.T) {
	l := sh("exit 5")
	first := start(t, l)
	first.awaitEnd()
	first.stopCapture()
	must(t, unix.Unlinkat(int(first.dir.File().Fd()), sessiondir.GuardianSocket, 0))
	second := startIn(t, first.dir, sh("exit 6"))
	s := second.await("failed", func(s ownerlink.State) bool { return s.Outcome.Failure != nil })
	if f := s.Outcome.Failure; f.Stage != "owner" || f.Errno != int(unix.EEXIST) {
		t.Errorf("%+v", f)
	}
	second.awaitEnd()
	if o := first.outcome(); o.Exit == nil || o.Exit.Code != 5 || o.Failure != nil {
		t.Errorf("the outcome was changed: %+v", o)
	}
}
