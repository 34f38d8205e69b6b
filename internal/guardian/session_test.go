package guardian_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

func TestASessionRunsToItsRecordAndIsRetired(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	if got := l.status().State; got != lifecycle.New {
		t.Fatalf("state %s before the start", got)
	}
	a := s.attach(protocol.AttachRequest{})
	answer := l.run("echo hello; exit 7")
	if answer.State != lifecycle.Running || answer.TargetPID == 0 {
		t.Fatalf("start answered %+v", answer)
	}
	end := a.toEnd()
	if got := string(end.output); got != "hello\r\n" {
		t.Errorf("output %q", got)
	}
	r := end.end.Record
	if r == nil || r.Result != lifecycle.ResultExited || r.ExitCode == nil || *r.ExitCode != 7 {
		t.Fatalf("record %+v", r)
	}
	if r.EndOffset != end.next || r.EndOffset != 7 {
		t.Errorf("end offset %d, the attacher saw %d", r.EndOffset, end.next)
	}
	id := newID()
	retire := protocol.RetireRequest{Head: l.head(protocol.OpRetire), MutationID: id}
	got := decode[protocol.RetireAnswer](t, l.call(retire))
	if diff := cmp.Diff(r, got.Record); diff != "" {
		t.Errorf("the retired record differs:\n%s", diff)
	}
	closed(t, l.conn)
}

func TestStatesComeOnceAndInOrder(t *testing.T) {
	s := newSession(t)
	got := make(chan []lifecycle.Snapshot)
	go func() { got <- s.states() }()
	s.dial().run("exit 3")
	var revision uint64
	for _, snap := range <-got {
		if snap.Revision <= revision {
			t.Errorf("revision %d after %d", snap.Revision, revision)
		}
		revision = snap.Revision
		if snap.State.Final() && (snap.ExitCode == nil || *snap.ExitCode != 3) {
			t.Errorf("final snapshot %+v", snap)
		}
	}
}

func TestTheSameStartTwiceLaunchesOnce(t *testing.T) {
	s := newSession(t)
	l, id := s.dial(), newID()
	first := l.start(id, shell("echo once; read x"))
	second := s.dial().start(id, shell("echo once; read x"))
	if !bytes.Equal(first.OK, second.OK) || !second.Replayed {
		t.Errorf("answers differ: %x, %x", first.OK, second.OK)
	}
	if r := l.start(id, shell("echo other")); r.Error == nil || r.Error.Code != protocol.CodeConflict {
		t.Errorf("other content with the same id: %+v", r.Error)
	}
	if r := l.start(newID(), shell("echo once; read x")); r.Error == nil || r.Error.Code != protocol.CodeConflict || r.Error.Holder != id.String() {
		t.Errorf("a second launch: %+v", r.Error)
	}
	a := s.attach(protocol.AttachRequest{Since: new(int64)})
	if r := l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("\n")}); r.Error != nil {
		t.Fatal(r.Error)
	}
	if got := strings.Count(string(a.toEnd().output), "once"); got != 1 {
		t.Errorf("the target ran %d times", got)
	}
}

func TestAMissingProgramIsALaunchFailureWithStageAndErrno(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	answer := decode[protocol.StartAnswer](t, l.start(newID(), protocol.StartSpec{Program: []byte("/no/such/program")}))
	if answer.State != lifecycle.LaunchFailed || answer.Error == nil || answer.Error.Errno != 2 || answer.Error.Stage != "exec" {
		t.Fatalf("answer %+v %+v", answer, answer.Error)
	}
	if r := s.final().Record; r.Result != lifecycle.ResultLaunchFailed || r.ExitCode != nil || r.Errno != 2 {
		t.Errorf("record %+v", r)
	}
}

// Which numbers the runtime's own descriptors have differs from machine to machine,
// and so do those of all that is opened after them.
func TestAStartDoesNotDependOnDescriptorNumbers(t *testing.T) {
	t.Parallel()
	for extra := range 6 {
		s := makeSession(t)
		cmd := exec.Command(filepath.Join(s.bin, "mur-guardian"), "--session", s.dir.Path(), "--idle", s.idle)
		// No pipe that takes up a number.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		for range extra {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, null)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go cmd.Wait()
		s.guardianPID()
		eventually(t, "the socket", func() bool {
			_, err := os.Lstat(filepath.Join(s.dir.Path(), sessiondir.GuardianSocket))
			return err == nil
		})
		l := s.reach()
		if answer := l.run("exit 0"); answer.State != lifecycle.Running {
			t.Errorf("with %d more descriptors: %+v %+v", extra, answer, answer.Error)
		}
		s.final()
	}
}

func TestAGuardianThatCameTooLateForARetiredSessionGoesSoon(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	l := s.dial()
	l.run("exit 0")
	s.final()
	decode[protocol.RetireAnswer](t, l.retire(newID()))
	closed(t, l.conn)
	gone := func() bool {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		return err == nil && !held
	}
	eventually(t, "the guardian to leave", gone)
	if r := s.startGuardian(); r.Error != nil || r.Already { // it would stay for an hour
		t.Fatalf("%+v", r)
	}
	eventually(t, "the next one to leave", gone)
}
