package guardian_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// ungroup takes the session's control group away; without it the machine is one that
// has none.
func (s *session) ungroup() {
	s.t.Helper()
	if g := s.group(); g != nil {
		defer g.Close()
		if err := g.Dissolve(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// dissolve takes away what the owner of a session that was not retired has left.
func (s *session) dissolve() {
	o, err := s.dir.Outcome()
	if err != nil || o == nil || o.Cgroup == "" {
		return
	}
	if g, err := cgroup.Open(o.Cgroup); err == nil {
		if err := g.Dissolve(); err != nil {
			s.t.Error(err)
		}
		g.Close()
	}
}

// group is nil where none could be made.
func (s *session) group() *cgroup.Group {
	s.t.Helper()
	o, err := s.dir.Outcome()
	if err != nil || o == nil {
		s.t.Fatal("no outcome: ", err)
	}
	if o.Cgroup == "" {
		return nil
	}
	g, err := cgroup.Open(o.Cgroup)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// The owner's descendants are nobody's after its death; its control group has them
// all, whatever session they have begun.
func TestTheControlGroupProvesASweepAfterTheOwnersDeath(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`setsid sleep 500 & setsid sleep 501 & (trap '' HUP TERM; exec sleep 502) & echo up; wait`)
	a.waitOutput("up")
	g := s.group()
	if g == nil {
		t.Skip("no control group can be made here")
	}
	defer g.Close()
	eventually(t, "all to be in the group", func() bool {
		pids, err := g.Members()
		sleeping := 0
		for _, pid := range pids {
			if name, err := procs.Name(pid); err == nil && name == "sleep" {
				sleeping++
			}
		}
		return err == nil && sleeping == 3
	})
	stranger := exec.Command("sleep", "500")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stranger.Process.Kill(); err != nil {
			t.Error("the stranger is gone: ", err)
		}
		stranger.Wait()
	}()
	if err := syscall.Kill(s.ownerPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner's death to show", func() bool { return l.status().TerminalSessionEnded })
	report := decode[protocol.SweepAnswer](t, l.sweep(newID()))
	if !report.Proved || report.Partial != "" || !l.status().GroupConsumed || len(report.Processes) < 3 {
		t.Errorf("%+v", report)
	}
	for _, p := range report.Processes {
		if !p.Gone || alive(p.PID) {
			t.Errorf("%+v lives", p)
		}
	}
	if again := decode[protocol.SweepAnswer](t, l.sweep(newID())); !again.Proved || len(again.Processes) > 0 {
		t.Errorf("swept again: %+v", again)
	}
	decode[protocol.RetireAnswer](t, l.retire(newID()))
	eventually(t, "the group to be gone", func() bool { _, err := os.Stat(g.Path()); return errors.Is(err, fs.ErrNotExist) })
}

// Whoever retires a session without a sweep learns what goes on, and no control group
// stays behind.
func TestARetirementNamesWhatGoesOn(t *testing.T) {
	for _, ownerDies := range []bool{false, true} {
		s := newSession(t)
		note := filepath.Join(t.TempDir(), "pid")
		l := s.dial()
		l.run(fmt.Sprintf(`setsid sh -c 'echo $$ >%s.new; mv %[1]s.new %[1]s; exec sleep 500' & until test -e %[1]s; do sleep 0.05; done; exit 3`, note))
		s.final()
		text, err := os.ReadFile(note)
		pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
		eventually(t, "the rest to be a sleep", func() bool { name, err := procs.Name(pid); return err == nil && name == "sleep" })
		g := s.group()
		if ownerDies && g == nil {
			t.Skip("without a control group nobody knows what a dead owner has left")
		}
		if ownerDies {
			if err := syscall.Kill(s.ownerPID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the owner's death to show", func() bool { return l.status().TerminalSessionEnded })
		}
		decode[protocol.RetireAnswer](t, l.retire(newID()))
		view, err := s.dir.Read()
		if err != nil {
			t.Fatal(err)
		}
		if f := view.Snapshot.CleanupError; f == nil || f.Stage != "processes" || !strings.Contains(f.Message, fmt.Sprintf("%d (sleep)", pid)) {
			t.Errorf("owner dead %v: %+v", ownerDies, f)
		}
		if !alive(pid) {
			t.Errorf("owner dead %v: it was ended", ownerDies)
		}
		if g == nil {
			continue
		}
		eventually(t, "the group to be gone", func() bool { _, err := os.Stat(g.Path()); return errors.Is(err, fs.ErrNotExist) })
		g.Close()
	}
}

// A guardian that is killed between the two leaves the group; whoever comes next for the
// session takes it away.
func TestAControlGroupThatARetirementHasLeftIsTakenAway(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("exit 0")
	s.final()
	o, err := s.dir.Outcome()
	if err != nil {
		t.Fatal(err)
	}
	if o.Cgroup == "" {
		t.Skip("no control group can be made here")
	}
	decode[protocol.RetireAnswer](t, l.retire(newID()))
	closed(t, l.conn)
	eventually(t, "the first to be gone", func() bool { _, err := os.Stat(o.Cgroup); return errors.Is(err, fs.ErrNotExist) })
	if err := os.Mkdir(o.Cgroup, 0o700); err != nil {
		t.Fatal(err)
	}
	s.reach().conn.Close()
	eventually(t, "the group to be gone", func() bool { _, err := os.Stat(o.Cgroup); return errors.Is(err, fs.ErrNotExist) })
}

func alive(pid int) bool {
	id, err := procs.Of(pid)
	return err == nil && id.Alive()
}

func (s *session) ownerPID() int {
	s.t.Helper()
	id, held, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil || !held || id.PID == 0 {
		s.t.Fatal("no owner: ", held, err)
	}
	return id.PID
}

// scarce is a control group whose members may not use much memory. It is skipped where
// none can be made: the memory controller of version 1, or an own group in version 2
// whose parent gives it on.
func scarce(t *testing.T) (path string) {
	t.Helper()
	const limit = "33554432"
	name := fmt.Sprintf("mur-test-%d", os.Getpid())
	var last error
	for _, c := range []struct{ dir, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		path = filepath.Join(c.dir, name)
		if last = os.Mkdir(path, 0o700); last != nil {
			continue
		}
		t.Cleanup(func() { eventually(t, "the group to be removed", func() bool { return os.Remove(path) == nil }) })
		if last = os.WriteFile(filepath.Join(path, c.file), []byte(limit), 0); last == nil {
			return path
		}
	}
	t.Skipf("no group with little memory can be made: %v", last)
	return ""
}

func TestAKillForWantOfMemoryIsTold(t *testing.T) {
	path := scarce(t)
	s := newSession(t)
	// tail keeps what it reads until there is a line's end.
	s.dial().run(fmt.Sprintf("echo $$ >%s/cgroup.procs && exec tail /dev/zero", path))
	r := s.final().Record
	if r == nil || r.ExitSignal != int(syscall.SIGKILL) || r.AskedBy != "" || !strings.Contains(r.Reason, "for want of memory") {
		t.Errorf("%+v", r)
	}
}
