package script

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/seed-8e62c83d/mur/client"
)

// rounds is how many starts are cut off; each at another moment.
const rounds = 24

func TestAStartThatIsCutOffLeavesALegalState(t *testing.T) {
	b := newBench(t)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGKILL}
	for i := range rounds {
		op := client.NewMutationID()
		after := time.Duration(rand.IntN(50)) * time.Millisecond
		sig := signals[i%len(signals)]
		if err := b.cutOff(op, sig, after); err != nil {
			t.Errorf("%v after %v: %v", sig, after, err)
		}
	}
}

// cutOff sends a signal to a start on a terminal. Its session is then in a state
// in which the same operation can be finished.
func (b *bench) cutOff(op client.MutationID, sig syscall.Signal, after time.Duration) error {
	bin := os.Getenv(binDirVar)
	env := []string{"MUR_HOME=" + b.home, "HOME=/", "PATH=" + bin + ":/usr/bin:/bin", "TERM=xterm"}
	line := []string{"start", "--op", op.String(), "--size", "80x24", "--clean-env", "--workdir", "/", "--", "/bin/sleep", "100"}
	p, err := startOnPTY(env, "/", append([]string{"mur"}, line...))
	if err != nil {
		return err
	}
	defer p.close()
	<-time.After(after)
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.ended:
		p.over = true
	case <-time.After(patience):
		return fmt.Errorf("mur did not end\n%q", p.output())
	}
	if now, err := p.termios(); sig != syscall.SIGKILL && (err != nil || now != p.before) {
		return fmt.Errorf("the terminal is not as before (%v)", err)
	}
	if out, status, err := b.mur(append([]string{line[0], "-d"}, line[1:]...)...); err != nil || status != 0 {
		return fmt.Errorf("the same again: %d, %v\n%s", status, err, out)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Snapshot(b.t.Context())
	if err != nil || st.State != client.StateRunning {
		return fmt.Errorf("the state is %s, %v", st.State, err)
	}
	return b.done(s)
}

// What a terminal that is closed does to its processes, many times over.
func TestAHangupStormEndsTheViewerAndNothingElse(t *testing.T) {
	b := newBench(t)
	op := client.NewMutationID()
	env := []string{"MUR_HOME=" + b.home, "HOME=/", "PATH=" + os.Getenv(binDirVar) + ":/usr/bin:/bin", "TERM=xterm"}
	p, err := startOnPTY(env, "/", []string{"mur", "start", "--op", op.String(), "--clean-env", "--workdir", "/", "--", "/bin/sleep", "100"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var before client.Status
	eventually(t, "the session to run", func() bool {
		s, err := b.c.Open(client.IDFor(op))
		if err != nil {
			return false
		}
		defer s.Close()
		before, err = s.Snapshot(t.Context())
		return err == nil && before.State == client.StateRunning && before.Live != nil && before.Live.Attached == 1
	})
	group := p.cmd.Process.Pid
	const storm = 200
	for range storm {
		if syscall.Kill(-group, syscall.SIGHUP) != nil { // it has ended, and was reaped
			break
		}
	}
	p.master.Close()
	p.slave.Close()
	p.gone = true
	select {
	case <-p.ended:
		p.over = true
	case <-time.After(patience):
		t.Fatal("the viewer did not end")
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	after, err := s.Snapshot(within(t))
	if err != nil || after.State != client.StateRunning || after.Generation != before.Generation ||
		after.GuardianPID != before.GuardianPID || after.OwnerPID != before.OwnerPID || after.TargetPID != before.TargetPID {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
	if err := b.done(s); err != nil {
		t.Error(err)
	}
}

// TestAViewerWhoseTerminalIsNotReadEndsOnASignal: what it has to say at the end
// has no one to read it, and must not keep it.
func TestAViewerWhoseTerminalIsNotReadEndsOnASignal(t *testing.T) {
	b := newBench(t)
	bin := os.Getenv(binDirVar)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, "mur"), "start", "--clean-env", "--workdir", "/", "--", "/usr/bin/yes")
		cmd.Env = []string{"MUR_HOME=" + b.home, "HOME=/", "PATH=" + bin + ":/usr/bin:/bin", "TERM=xterm"}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		// The first byte is there when it shows the session; then nobody reads.
		if _, err := master.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		cmd.Process.Signal(sig)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%v: it did not end", sig)
			cmd.Process.Kill()
			<-ended
		}
		master.Close()
	}
	ids, err := b.c.IDs()
	if err != nil || len(ids) != 3 {
		t.Fatal(ids, err)
	}
	for _, id := range ids {
		for _, verb := range []string{"sweep", "retire"} {
			if out, status, err := b.mur(verb, id); err != nil || status != 0 {
				t.Errorf("%s: %d, %v\n%s", verb, status, err, out)
			}
		}
	}
}
