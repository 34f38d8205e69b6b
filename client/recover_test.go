package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// hangVar has the test program hold a session's lock, in this directory, and do
// nothing, as a guardian that hangs.
const hangVar = "MUR_CLIENT_TEST_HANG"

func hang(path string, noted bool) int {
	dir, err := sessiondir.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lock, ok, err := dir.LockGuardian()
	if err != nil || !ok {
		fmt.Fprintln(os.Stderr, "cannot have the lock:", ok, err)
		return 1
	}
	if self, err := procs.Self(); noted && err == nil {
		err = sessiondir.NoteHolder(lock, self, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	fmt.Println("held")
	<-time.After(2 * patience)
	lock.Close()
	return 1
}

// hanging starts a process that holds the lock of a session without a guardian.
func (b *bench) hanging(s *Session, noted bool) (pid int, done <-chan error) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hangVar+"="+s.Dir())
	if noted {
		cmd.Env = append(cmd.Env, hangVar+"_NOTED=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan error, 1)
	if _, err := out.Read(make([]byte, 16)); err != nil {
		b.t.Fatalf("it does not hold the lock: %v", err)
	}
	go func() { ended <- cmd.Wait() }()
	return cmd.Process.Pid, ended
}

// leave has the session's guardian leave, as one does that has nothing to do.
func (b *bench) leave(s *Session) {
	b.t.Helper()
	if err := s.dismiss(b.ctx()); err != nil {
		b.t.Fatal(err)
	}
	if err := s.WaitGone(b.ctx()); err != nil {
		b.t.Fatal(err)
	}
}

func TestAGuardianThatHangsIsKilledOnlyWhenItIsForced(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "read x; exit 6")
	b.leave(s)
	pid, ended := b.hanging(s, true)
	if _, err := s.Recover(b.ctx(), RecoverOptions{}); CodeOf(err) != CodeUnreachable {
		t.Errorf("without force: %v", err)
	}
	if _, err := s.Recover(b.ctx(), RecoverOptions{Upgrade: true}); CodeOf(err) != CodeUnreachable {
		t.Errorf("upgrade without force: %v", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it was ended without force: %v", err)
	default:
	}
	r, err := s.Recover(b.ctx(), RecoverOptions{Force: true})
	if err != nil || r.Killed != pid || r.Status.GuardianPID == pid || r.Status.State != StateRunning {
		t.Errorf("forced: %+v, %v", r, err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	if n, err := s.Input(b.ctx(), []byte("\r")); n != 1 || err != nil {
		t.Errorf("input: %d, %v", n, err)
	}
	if end, err := s.WaitEnd(b.ctx()); err != nil || *end.ExitCode != 6 {
		t.Errorf("%+v, %v", end.Record, err)
	}
}

func TestNobodyIsKilledWhoIsNotIdentified(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 300")
	b.leave(s)
	pid, ended := b.hanging(s, false)
	if r, err := s.Recover(b.ctx(), RecoverOptions{Force: true}); CodeOf(err) != CodeUnreachable || r.Killed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it was killed: %v", err)
	default:
	}
	syscall.Kill(pid, syscall.SIGKILL)
	<-ended
	if r, err := s.Recover(b.ctx(), RecoverOptions{}); err != nil || !r.Started {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAStoppedGuardianIsContinued(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 300")
	st, err := s.fromFiles()
	if err != nil {
		t.Fatal(err)
	}
	stop(t, st.GuardianPID)
	r, err := s.Recover(b.ctx(), RecoverOptions{Force: true})
	if err != nil || r.Continued != st.GuardianPID || r.Killed != 0 || r.Status.GuardianPID != st.GuardianPID {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatACrashLeftIsSettledOnce(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 300")
	st, err := s.fromFiles()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recover(b.ctx(), RecoverOptions{}); err != nil || !r.Idle() {
		t.Errorf("with nothing to settle: %+v, %v", r, err)
	}
	// The owner does not answer, so the term stays begun.
	stop(t, st.OwnerPID)
	op := NewMutationID()
	ctx, cancel := context.WithCancel(b.ctx())
	answered := make(chan error, 1)
	go func() {
		_, err := s.Term(ctx, op, 0)
		answered <- err
	}()
	outcome := func() Outcome {
		o, err := s.Operation(op)
		if err != nil {
			return ""
		}
		return o.Outcome
	}
	eventually(t, "the term is begun", func() bool { return outcome() == OutcomePending })
	cancel()
	<-answered
	hit(st.GuardianPID, syscall.SIGKILL)
	eventually(t, "the guardian is gone", func() bool { return outcome() == OutcomeUnknown })
	hit(st.OwnerPID, syscall.SIGKILL)
	if err := s.follow(b.ctx(), func(st Status) (bool, error) { return !st.OwnerAlive, nil }); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recover(b.ctx(), RecoverOptions{})
	if err != nil || !r.Started || len(r.Settled) != 1 || r.Settled[0] != op || r.Status.State != StateLost {
		t.Errorf("%+v, %v", r, err)
	}
	o, err := s.Operation(op)
	if err != nil || o.Outcome != OutcomeDone || o.Answer.(*ControlAnswer).Delivery == Delivered {
		t.Errorf("%+v, %v", o, err)
	}
	if r, err := s.Recover(b.ctx(), RecoverOptions{}); err != nil || !r.Idle() {
		t.Errorf("once more: %+v, %v", r, err)
	}
	if again, err := s.Term(b.ctx(), op, 0); err != nil || !again.Replayed || again.Answer != *o.Answer.(*ControlAnswer) {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if _, err := s.Operation(NewMutationID()); CodeOf(err) != CodeNotFound {
		t.Errorf("one that never was: %v", err)
	}
}

func TestAnUpgradeOfAnIdleSessionTakesTheOwnerAlong(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 300")
	b.leave(s)
	r, err := s.Recover(b.ctx(), RecoverOptions{Upgrade: true})
	if err != nil || !r.Upgraded || r.Status.GuardianPID == 0 || r.Status.State != StateRunning {
		t.Errorf("%+v, %v", r, err)
	}
}
