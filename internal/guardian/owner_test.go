package guardian_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// actAsOwner is the test program in an owner's place, with the manners that the
// file beside it names. It launches nothing and never reports.
func actAsOwner() int {
	exe, err := os.Executable()
	if err != nil {
		return 1
	}
	manners, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "manners"))
	if err != nil {
		return 1
	}
	switch string(manners) {
	case "closes its channel":
		unix.Close(ownerlink.FDChannel)
	case "talks nonsense":
		unix.Write(ownerlink.FDChannel, []byte("\xff\xffnonsense"))
	case "speaks another version":
		state, err := protocol.Marshal(ownerlink.State{Version: 99})
		if err != nil {
			return 1
		}
		unix.Write(ownerlink.FDChannel, state)
	}
	<-time.After(4 * bound)
	return 0
}

// withOwner makes a session whose owner has such manners.
func withOwner(t *testing.T, manners string) *session {
	t.Helper()
	bin := t.TempDir()
	// A second name: a copy that was just written cannot be executed while another test
	// forks ("text file busy").
	link := func(from, name string) {
		t.Helper()
		err := os.Link(from, filepath.Join(bin, name))
		if errors.Is(err, unix.EXDEV) {
			var data []byte
			if data, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(filepath.Join(bin, name), data, 0o700)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(os.Getenv("MUR_TEST_BIN"), "mur-guardian"), "mur-guardian")
	link(os.Args[0], "mur-owner")
	if err := os.WriteFile(filepath.Join(bin, "manners"), []byte(manners), 0o600); err != nil {
		t.Fatal(err)
	}
	s := makeSession(t)
	s.bin = bin
	if r := s.startGuardian(); r.Error != nil {
		t.Fatalf("%+v", r.Error)
	}
	return s
}

// A start is answered in time and with its stage, whatever the owner does; the
// session works meanwhile, and sweep and retire get rid of it, also when the
// guardian was replaced.
func TestAnOwnerThatNeverReportsIsGotRidOf(t *testing.T) {
	t.Parallel()
	for _, manners := range []string{"sleeps", "closes its channel", "talks nonsense", "speaks another version"} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced %v", manners, replaced), func(t *testing.T) {
				t.Parallel()
				s := withOwner(t, manners)
				l, other := s.dial(), s.dial()
				id := newID()
				if err := protocol.WriteFrame(l.conn, protocol.StartRequest{
					Head: l.head(protocol.OpStart), MutationID: id, StartSpec: shell("true"),
				}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the owner", func() bool { return other.status().State == lifecycle.Starting })
				if r := other.term(newID()); r.Error == nil || r.Error.Code != protocol.CodeBusy {
					t.Errorf("a term before the start is decided: %+v", r.Error)
				}
				var r protocol.Response
				read(t, l.conn, &r)
				answer := decode[protocol.StartAnswer](t, r)
				if answer.State != lifecycle.Starting || answer.Error == nil || answer.Error.Stage != "owner" {
					t.Errorf("the start is answered %+v %+v", answer, answer.Error)
				}
				if replaced {
					kill(t, s)
					if r := s.startGuardian(); r.Error != nil {
						t.Fatalf("%+v", r.Error)
					}
					l = s.dial()
					if !l.status().Live.OwnerSilent {
						t.Error("the owner is not called silent")
					}
				}
				report := decode[protocol.SweepAnswer](t, l.sweep(newID()))
				if _, held, err := s.dir.Holder(sessiondir.OwnerLock); held || err != nil {
					t.Errorf("after the sweep (%+v) the owner lives: %v", report, err)
				}
				final := l.status()
				if final.State != lifecycle.LaunchFailed || final.Record.Stage != "guardian" && final.Record.Stage != "owner" {
					t.Errorf("%+v %+v", final.Durable, final.Record)
				}
				decode[protocol.RetireAnswer](t, l.retire(newID()))
			})
		}
	}
}

func TestAGuardianThatIsToldToLeaveAnswersTheStartFirst(t *testing.T) {
	t.Parallel()
	s := withOwner(t, "sleeps")
	l, other := s.dial(), s.dial()
	id := newID()
	s.admitted(l, protocol.StartRequest{Head: l.head(protocol.OpStart), MutationID: id, StartSpec: shell("true")}, id)
	if r := other.call(protocol.LeaveRequest{Head: other.head(protocol.OpLeave)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	var r protocol.Response
	read(t, l.conn, &r)
	if answer := decode[protocol.StartAnswer](t, r); answer.State != lifecycle.Starting {
		t.Errorf("the start is answered %+v", answer)
	}
	closed(t, l.conn)
}

// The end of file of a terminal comes with its last descriptor: whoever supervises it
// must not have one.
func TestTheGuardianHasNoDescriptorOfTheSlave(t *testing.T) {
	s := newSession(t)
	a := s.attach(protocol.AttachRequest{})
	s.dial().run("echo up; sleep 100")
	a.waitOutput("up")
	dir := fmt.Sprintf("/proc/%d/fd", s.guardianPID())
	names, err := os.ReadDir(dir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if to, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil && strings.HasPrefix(to, "/dev/pts/") {
			t.Errorf("descriptor %s of the guardian is %s", name.Name(), to)
		}
	}
}

// A target that is stopped and continued all the time costs a few commits a second.
func TestAStormOfStopsIsRecordedAFewTimesASecond(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	pid := l.run("exec sleep 100").TargetPID
	before, began := l.status().Revision, time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 1500*time.Millisecond {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-tick.C
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	eventually(t, "the target to be running", func() bool { return l.status().State == lifecycle.Running })
	const every = 250 * time.Millisecond
	if commits, most := l.status().Revision-before, uint64(time.Since(began)/every)+2; commits > most {
		t.Errorf("%d commits, want at most %d", commits, most)
	}
}
