package guardian_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// gate is a fifo on which a script waits with `read x <gate`.
func gate(t *testing.T) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// successor waits until another guardian than pid serves and gives its pid.
func (s *session) successor(pid int) (next int) {
	s.t.Helper()
	eventually(s.t, "the next guardian", func() bool {
		id, held, err := s.dir.Holder(sessiondir.GuardianLock)
		next = id.PID
		return err == nil && held && next != 0 && next != pid
	})
	return next
}

// guardianPID waits until a guardian has noted itself.
func (s *session) guardianPID() int {
	s.t.Helper()
	return s.successor(0)
}

// reach dials as a client does: a connection that ends before the hello is
// answered starts over, and where nobody listens a guardian is started.
func (s *session) reach() *link {
	s.t.Helper()
	var l *link
	eventually(s.t, "a guardian that serves", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		conn, err := peersock.Dial(ctx, s.dir.File(), sessiondir.GuardianSocket)
		if err != nil {
			if r := s.startGuardian(); r.Error != nil {
				s.t.Fatalf("%+v", r.Error)
			}
			return false
		}
		conn.SetDeadline(time.Now().Add(bound))
		var frame []byte
		if err = protocol.WriteFrame(conn, s.hello()); err == nil {
			frame, err = protocol.ReadFrame(conn, nil)
		}
		var w protocol.Welcome
		if err == nil {
			err = protocol.Unmarshal(frame, &w)
		}
		if err != nil || w.Error != nil {
			conn.Close()
			return false
		}
		s.t.Cleanup(func() { conn.Close() })
		l = &link{t: s.t, conn: conn}
		return true
	})
	return l
}

func numbers(n int) []byte {
	var b bytes.Buffer
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "%d\r\n", i)
	}
	return b.Bytes()
}

func TestAKilledGuardianIsReplacedByTheOwner(t *testing.T) {
	s := newSession(t)
	path, open := gate(t)
	id := newID()
	l := s.dial()
	first := l.start(id, shell(fmt.Sprintf("echo before; read x <%s; seq 1 20000; exit 6", path)))
	generation := l.status().Generation
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if name, err2 := procs.Name(owner.PID); err != nil || err2 != nil || name != "mur-owner" {
		t.Errorf("the owner is called %q: %v, %v", name, err, err2)
	}
	pid := s.guardianPID()
	kill(t, s)
	if name, err := procs.Name(s.successor(pid)); err != nil || name != "mur-guardian" {
		t.Errorf("the next guardian is called %q: %v", name, err)
	}
	l = s.dial()
	snap := l.status()
	if snap.State != lifecycle.Running || snap.Generation != generation+1 || snap.Live.Cols != 80 {
		t.Errorf("%+v %+v", snap.Durable, snap.Live)
	}
	if again := l.start(id, shell(fmt.Sprintf("echo before; read x <%s; seq 1 20000; exit 6", path))); !bytes.Equal(again.OK, first.OK) {
		t.Errorf("the start is answered with %x, then %x", first.OK, again.OK)
	}
	a := s.attach(protocol.AttachRequest{Since: new(int64)})
	open()
	end := a.toEnd()
	if want := append([]byte("before\r\n"), numbers(20000)...); !bytes.Equal(end.output, want) {
		t.Errorf("%d bytes of output, want %d", len(end.output), len(want))
	}
	if code := end.end.Record.ExitCode; code == nil || *code != 6 {
		t.Errorf("%+v", end.end.Record)
	}
	decode[protocol.RetireAnswer](t, s.dial().retire(newID()))
	closed(t, l.conn)
}

func TestGuardiansKilledInARowLoseNothing(t *testing.T) {
	s := newSession(t)
	s.dial().start(newID(), func() protocol.StartSpec {
		spec := shell("stty -opost; i=0; while [ $i -lt 30 ]; do seq 1 2000; sleep 0.05; i=$((i+1)); done; exit 9")
		spec.History = 64 << 20
		return spec
	}())
	// More than the owner tries in a row: in the end it captures by itself, and
	// the guardians are started from here, as clients do.
	for range 8 {
		pid := 0
		eventually(t, "a guardian", func() bool {
			if r := s.startGuardian(); r.Error != nil {
				t.Fatalf("%+v", r.Error)
			}
			id, held, err := s.dir.Holder(sessiondir.GuardianLock)
			pid = id.PID
			return err == nil && held && pid != 0
		})
		syscall.Kill(pid, syscall.SIGKILL)
	}
	s.reach()
	end := s.attach(protocol.AttachRequest{Since: new(int64)}).toEnd()
	want := bytes.Repeat(bytes.ReplaceAll(numbers(2000), []byte("\r"), nil), 30)
	if !bytes.Equal(end.output, want) {
		t.Errorf("%d bytes of output, want %d", len(end.output), len(want))
	}
	if code := end.end.Record.ExitCode; code == nil || *code != 9 || end.end.Record.EndOffset != int64(len(want)) {
		t.Errorf("%+v", end.end.Record)
	}
}

func TestAClientThatComesBetweenTwoGuardiansIsServed(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("sleep 100")
	syscall.Kill(s.guardianPID(), syscall.SIGKILL)
	// The socket was never without a listener: the owner holds it.
	if got := s.dial().status(); got.State != lifecycle.Running {
		t.Errorf("%+v", got.Durable)
	}
}

func TestAGuardianThatLeavesComesBackOnDemand(t *testing.T) {
	s := makeSession(t)
	s.idle = "100ms"
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	path, open := gate(t)
	l := s.dial()
	l.run(fmt.Sprintf("read x <%s; echo woken; read x; exit 3", path))
	gone := func() bool {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		return err == nil && !held
	}
	l.conn.Close()
	eventually(t, "the idle guardian to leave", gone)
	if v, err := s.dir.Read(); err != nil || v.Snapshot.State != lifecycle.Running || v.GuardianLive || !v.OwnerLive {
		t.Fatalf("%+v %v", v, err)
	}
	open() // output has it started again
	eventually(t, "the output", func() bool { v, err := s.dir.Read(); return err == nil && v.OutputEnd == int64(len("woken\r\n")) })
	eventually(t, "the idle guardian to leave again", gone)
	l = s.dial() // and so has a client
	if r := l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("\n")}); r.Error != nil {
		t.Fatal(r.Error)
	}
	if final := s.final(); final.ExitCode == nil || *final.ExitCode != 3 {
		t.Errorf("%+v", final.Record)
	}
}

func TestAnExitWhileNoGuardianIsThereIsRecorded(t *testing.T) {
	s := makeSession(t)
	s.idle = "50ms"
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	path, open := gate(t)
	l := s.dial()
	l.run(fmt.Sprintf("read x <%s; exit 8", path))
	l.conn.Close()
	eventually(t, "the idle guardian to leave", func() bool {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		return err == nil && !held
	})
	open()
	eventually(t, "the final record", func() bool {
		v, err := s.dir.Read()
		return err == nil && v.Snapshot.State == lifecycle.Ended && *v.Snapshot.ExitCode == 8 && !v.OwnerLive
	})
}

func TestOfManyCandidatesOneTakesTheSession(t *testing.T) {
	s := newSession(t)
	s.dial().run("sleep 100")
	for range 10 {
		pid := s.guardianPID()
		syscall.Kill(pid, syscall.SIGKILL)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if r := s.startGuardian(); r.Error != nil {
					t.Errorf("a candidate failed: %+v", r.Error)
				}
			})
		}
		wg.Wait()
		if got := s.reach().status(); got.State != lifecycle.Running || got.Live.OwnerSilent {
			t.Errorf("%+v %+v", got.Durable, got.Live)
		}
	}
}

func TestOfTwoCandidatesOneWins(t *testing.T) {
	s := newSession(t)
	s.dial().run("exit 0")
	s.final()
	eventually(t, "the owner to leave", func() bool {
		_, held, err := s.dir.Holder(sessiondir.OwnerLock)
		return err == nil && !held
	})
	for range often(30, 1000) {
		kill(t, s)
		said := make(chan bool, 2)
		for range 2 {
			go func() {
				r, err := s.tryGuardian()
				if err != nil || r.Error != nil {
					t.Errorf("a candidate failed: %+v, %v", r.Error, err)
				}
				said <- r.Already
			}()
		}
		if a, b := <-said, <-said; a == b {
			t.Fatalf("of two candidates, already served: %v and %v", a, b)
		}
	}
}

func TestControlsWorkAfterAnAdoption(t *testing.T) {
	s := newSession(t)
	a := s.attach(protocol.AttachRequest{})
	l := s.dial()
	l.run(`trap 'echo usr' USR1; trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done`)
	a.waitOutput("up")
	sig, term := newID(), newID()
	first := l.signal(sig, syscall.SIGUSR1, protocol.GroupTarget)
	pid := s.guardianPID()
	kill(t, s)
	s.successor(pid)
	l = s.dial()
	if again := l.signal(sig, syscall.SIGUSR1, protocol.GroupTarget); !again.Replayed || !bytes.Equal(again.OK, first.OK) {
		t.Errorf("the signal is answered with %+v", again)
	}
	a = s.attach(protocol.AttachRequest{Since: new(int64)})
	decode[protocol.ControlAnswer](t, l.term(term))
	end := a.toEnd()
	if got := string(end.output); strings.Count(got, "usr") != 1 || !strings.HasSuffix(got, "bye\r\n") {
		t.Errorf("output %q", got)
	}
	if r := end.end.Record; r.ExitCode == nil || *r.ExitCode != 4 || r.AskedBy != term.String() {
		t.Errorf("%+v", r)
	}
}

func TestAKilledOwnerLeavesTheTruth(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	answer := l.run("echo up; sleep 100")
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(owner.PID, syscall.SIGKILL)
	final := s.final()
	if final.State != lifecycle.Lost || final.ExitCode != nil || final.ExitSignal != 0 || final.Record.Reason != "the owner died" {
		t.Errorf("%+v", final.Durable)
	}
	eventually(t, "the target's end with its owner", func() bool { return syscall.Kill(answer.TargetPID, 0) != nil })
	decode[protocol.RetireAnswer](t, l.retire(newID()))
}

func TestANewGuardianTakesNoOldAnswerForItsOwn(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("sleep 100")
	// The owner's last answer is to control 1 of the first guardian.
	decode[protocol.ControlAnswer](t, l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget))
	kill(t, s)
	id := newID()
	report := decode[protocol.SweepAnswer](t, s.reach().sweep(id))
	if !report.Proved || len(report.Processes) == 0 {
		t.Errorf("the sweep, control 1 of the second, is answered %+v", report)
	}
	if r := s.final().Record; r.AskedBy != id.String() {
		t.Errorf("asked by %q: %+v", r.AskedBy, r)
	}
}

func TestAnEndIsAskedByWhoAskedForIt(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	answer := l.run("sleep 100")
	decode[protocol.ControlAnswer](t, l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget))
	syscall.Kill(answer.TargetPID, syscall.SIGKILL) // by a stranger
	if r := s.final().Record; r.ExitSignal != int(syscall.SIGKILL) || r.AskedBy != "" {
		t.Errorf("%+v", r)
	}
}
