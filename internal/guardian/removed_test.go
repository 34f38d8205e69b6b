package guardian_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// family is who serves a session.
type family struct{ guardian, owner, target procs.Identity }

func (s *session) family(target int) (f family) {
	s.t.Helper()
	var err error
	if f.owner, _, err = s.dir.Holder(sessiondir.OwnerLock); err != nil {
		s.t.Fatal(err)
	}
	s.guardianPID() // it has noted itself
	if f.guardian, _, err = s.dir.Holder(sessiondir.GuardianLock); err != nil {
		s.t.Fatal(err)
	}
	if f.target, err = procs.Of(target); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { // what a failed test leaves cannot be found by its locks any more
		for _, id := range []procs.Identity{f.owner, f.guardian, f.target} {
			if living(id) {
				s.t.Errorf("process %d is left", id.PID)
				syscall.Kill(id.PID, syscall.SIGKILL)
			}
		}
	})
	return f
}

func living(id procs.Identity) bool {
	now, err := procs.Of(id.PID)
	return err == nil && now == id
}

// remove removes the session's directory as a person does.
func (s *session) remove() {
	s.t.Helper()
	if err := os.RemoveAll(s.dir.Path()); err != nil {
		s.t.Fatal(err)
	}
}

func TestATakenSocketIsBoundAgain(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("sleep 100")
	path := filepath.Join(s.dir.Path(), sessiondir.GuardianSocket)
	for _, take := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.Rename(path, path+".away") },
		func() error { return os.Rename(path+".away", path) }, // it is that of no listener any more
	} {
		before, err := peersock.FileOf(s.dir.File(), sessiondir.GuardianSocket)
		if err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another socket", func() bool {
			now, err := peersock.FileOf(s.dir.File(), sessiondir.GuardianSocket)
			return err == nil && now != before
		})
		if got := s.reach().status(); got.State != lifecycle.Running {
			t.Errorf("%+v", got.Durable)
		}
	}
	if got := l.status(); got.State != lifecycle.Running { // who was connected stays so
		t.Errorf("%+v", got.Durable)
	}
	os.Remove(path + ".away")
}

func TestARemovedDirectoryHangsUpAfterTheLastClient(t *testing.T) {
	s := newSession(t)
	told := filepath.Join(t.TempDir(), "told")
	a := s.attach(protocol.AttachRequest{})
	l := s.dial()
	answer := l.run(fmt.Sprintf(`trap 'echo hangup >%s; exit 0' HUP; echo up; while read x; do echo "got $x"; done`, told))
	a.waitOutput("up")
	f := s.family(answer.TargetPID)
	s.remove()
	eventually(t, "the session to be called not durable", func() bool { return l.status().NotDurable != "" })
	if text := l.status().NotDurable; !strings.Contains(text, "removed") {
		t.Errorf("not durable: %q", text)
	}
	// Whoever is there is served on; what would have to be recorded is refused.
	if r := l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget); r.Error == nil || r.Error.Code != protocol.CodeNotDurable {
		t.Errorf("a signal: %+v", r.Error)
	}
	if r := l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("still\n")}); r.Error != nil {
		t.Errorf("input: %+v", r.Error)
	}
	a.waitOutput("got still")
	l.conn.Close()
	a.conn.Close()
	eventually(t, "the end of all", func() bool { return !living(f.guardian) && !living(f.owner) && !living(f.target) })
	if text, err := os.ReadFile(told); err != nil || string(text) != "hangup\n" {
		t.Errorf("the target was told %q, %v", text, err)
	}
}

func TestTheEndIsToldToWhoeverIsConnectedToARemovedDirectory(t *testing.T) {
	s := newSession(t)
	a := s.attach(protocol.AttachRequest{})
	l := s.dial()
	f := s.family(l.run("echo up; read go; echo bye; exit 3").TargetPID)
	a.waitOutput("up")
	s.remove()
	eventually(t, "the session to be called not durable", func() bool { return l.status().NotDurable != "" })
	if r := l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("go\n")}); r.Error != nil {
		t.Fatal(r.Error)
	}
	got := a.toEnd()
	if r := got.end.Record; r == nil || r.ExitCode == nil || *r.ExitCode != 3 || !strings.Contains(string(got.output), "bye") {
		t.Errorf("%q, %+v", got.output, got.end)
	}
	l.conn.Close()
	eventually(t, "the end of all", func() bool { return !living(f.guardian) && !living(f.owner) })
}

// The first piece of output needs a file, which can never be made.
func TestOutputThatHasNoFileToGoToHangsUp(t *testing.T) {
	s := newSession(t)
	path, open := gate(t)
	a := s.attach(protocol.AttachRequest{})
	l := s.dial()
	f := s.family(l.run(fmt.Sprintf("read x <%s; echo up; exec sleep 500", path)).TargetPID)
	s.remove()
	eventually(t, "the session to be called not durable", func() bool { return l.status().NotDurable != "" })
	open()
	if got := a.toEnd(); got.end.Error == nil || got.end.Error.Code != protocol.CodeLeaving {
		t.Errorf("%+v", got.end)
	}
	eventually(t, "the end of all", func() bool { return !living(f.guardian) && !living(f.owner) && !living(f.target) })
}

func TestARemovedDirectoryHangsUpOnAnIdleSession(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	answer := l.run("sleep 100")
	f := s.family(answer.TargetPID)
	if r := l.call(protocol.LeaveRequest{Head: l.head(protocol.OpLeave)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	l.conn.Close()
	eventually(t, "the guardian to leave", func() bool { return !living(f.guardian) })
	s.remove()
	eventually(t, "the end of all", func() bool { return !living(f.owner) && !living(f.target) })
}

func TestWhatIgnoresTheHangupOfARemovedDirectoryGoesOn(t *testing.T) {
	s := newSession(t)
	path, open := gate(t)
	l := s.dial()
	told := filepath.Join(t.TempDir(), "told")
	// Its terminal is gone: what it says there fails.
	answer := l.run(fmt.Sprintf("trap '' HUP; read x <%s; echo lost || echo no terminal >%s", path, told))
	f := s.family(answer.TargetPID)
	l.conn.Close()
	s.remove()
	eventually(t, "the guardian to leave", func() bool { return !living(f.guardian) })
	if !living(f.target) || !living(f.owner) {
		t.Error("it was ended")
	}
	open()
	eventually(t, "the end of all", func() bool { return !living(f.owner) && !living(f.target) })
	if text, err := os.ReadFile(told); err != nil || string(text) != "no terminal\n" {
		t.Errorf("it was left with its terminal: %q, %v", text, err)
	}
}
