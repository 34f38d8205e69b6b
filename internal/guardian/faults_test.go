package guardian_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("mur-test", dir, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Skipf("cannot mount a small file system (needs root): %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill takes all that is left of a disk and gives it back when called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return func() { os.Remove(path) }
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskLeavesTermSweepAndRetireWorking(t *testing.T) {
	disk := smallDisk(t, "4m")
	s := makeSessionIn(t, disk)
	s.idle = "1h"
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`trap 'echo no' TERM; echo up; while :; do sleep 0.05; done`)
	a.waitOutput("up")
	free := fill(t, disk)
	// More than the reserve holds: from some point on nothing is durable, and
	// still each is carried out and answered.
	durable, loose := 0, 0
	for range 150 {
		r := l.term(newID())
		decode[protocol.ControlAnswer](t, r)
		if r.NotDurable {
			loose++
		} else {
			durable++
		}
	}
	if durable == 0 || loose == 0 {
		t.Errorf("%d terms durable, %d not", durable, loose)
	}
	if d := l.status().NotDurable; d == "" {
		t.Error("the snapshot looks healthy")
	}
	if r := l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget); r.Error == nil || r.Error.Code != protocol.CodeNotDurable {
		t.Errorf("a signal that cannot be recorded: %+v", r.Error)
	}
	if report := decode[protocol.SweepAnswer](t, l.sweep(newID())); !report.Proved {
		t.Errorf("%+v", report)
	}
	eventually(t, "the end", func() bool { return l.status().State == lifecycle.Ended })
	free()
	eventually(t, "the journal to be whole again", func() bool { return l.status().NotDurable == "" })
	if r := decode[protocol.RetireAnswer](t, l.retire(newID())).Record; r.ExitSignal != int(syscall.SIGKILL) {
		t.Errorf("%+v", r)
	}
	view, err := s.dir.Read()
	if err != nil || view.Snapshot.State != lifecycle.Retired || len(view.Receipts) < 150 {
		t.Errorf("%d receipts, %v", len(view.Receipts), err)
	}
}

// Refused is without effect, also when others were to be recorded with it.
func TestWhatIsRefusedOnAFullDiskLeavesNothing(t *testing.T) {
	disk := smallDisk(t, "4m")
	s := makeSessionIn(t, disk)
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	l := s.dial()
	free := fill(t, disk)
	id := newID()
	spec := shell(`trap '' USR1; echo up; while :; do sleep 0.05; done`)
	if r := l.start(id, spec); r.Error == nil || r.Error.Code != protocol.CodeNotDurable || l.status().State != lifecycle.New {
		t.Fatalf("a start on a full disk: %+v", r.Error)
	}
	free()
	a := s.attach(protocol.AttachRequest{})
	if got := decode[protocol.StartAnswer](t, l.start(id, spec)); got.State != lifecycle.Running {
		t.Fatalf("the same start with room: %+v", got)
	}
	a.waitOutput("up")
	free = fill(t, disk)
	refused := false
	for range 200 { // until the reserve is all that is left
		if r := l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget); r.Error != nil {
			refused = r.Error.Code == protocol.CodeNotDurable
			break
		}
	}
	before := l.status()
	if !refused || before.NotDurable != "" {
		t.Fatalf("refused: %v, %+v", refused, before.Durable)
	}
	var frames []byte
	const several = 20
	for range several {
		var err error
		frames, err = protocol.AppendFrame(frames, protocol.SignalRequest{
			Head: l.head(protocol.OpSignal), MutationID: newID(), Signal: int(syscall.SIGUSR1), Group: protocol.GroupTarget,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	for range several {
		var r protocol.Response
		read(t, l.conn, &r)
		if r.Error == nil || r.Error.Code != protocol.CodeNotDurable {
			t.Errorf("%+v", r.Error)
		}
	}
	if after := l.status(); after.AskedBy != "" || after.Revision != before.Revision {
		t.Errorf("%+v, then %+v", before.Durable, after.Durable)
	}
	free()
	decode[protocol.SweepAnswer](t, l.sweep(newID()))
}

// The reserve is used up and the guardian is gone: the next one serves, says so,
// and does what has to work on a full disk.
func TestAGuardianComesOnAFullDiskWithoutReserve(t *testing.T) {
	disk := smallDisk(t, "4m")
	s := makeSessionIn(t, disk)
	s.idle = "100ms"
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`trap 'echo no' TERM; echo up; while :; do sleep 0.05; done`)
	a.waitOutput("up")
	free := fill(t, disk)
	for range 300 {
		if decode[protocol.ControlAnswer](t, l.term(newID())); l.status().NotDurable != "" {
			break
		}
	}
	before := l.status()
	if before.NotDurable == "" {
		t.Fatal("the reserve has no end")
	}
	if r := l.call(protocol.LeaveRequest{Head: l.head(protocol.OpLeave)}); r.Error == nil || r.Error.Code != protocol.CodeNotDurable {
		t.Errorf("asked to leave with what is not written down: %+v", r.Error)
	}
	l.conn.Close()
	a.conn.Close()
	// None leaves by itself. What is free may be enough for the arrival of another.
	for range 30 {
		kill(t, s)
		l = s.reach()
		after := l.status()
		if after.State != lifecycle.Running || after.Revision <= before.Revision {
			t.Fatalf("revision %d, then %+v", before.Revision, after.Durable)
		}
		if before = after; after.NotDurable != "" {
			break
		}
		l.conn.Close()
	}
	if before.NotDurable == "" {
		t.Fatal("each arrival could be recorded")
	}
	if r := l.term(newID()); !r.NotDurable || decode[protocol.ControlAnswer](t, r).Delivery != protocol.Delivered {
		t.Errorf("term: %+v", r)
	}
	if report := decode[protocol.SweepAnswer](t, l.sweep(newID())); !report.Proved {
		t.Errorf("%+v", report)
	}
	eventually(t, "the end", func() bool { return l.status().State == lifecycle.Ended })
	free()
	eventually(t, "the journal to be whole again", func() bool { return l.status().NotDurable == "" })
	decode[protocol.RetireAnswer](t, l.retire(newID()))
}

// Nobody but the guardian holds the output then.
func TestOutputOfAnOwnerThatDiedOnAFullDiskIsWrittenWhenThereIsRoom(t *testing.T) {
	disk := smallDisk(t, "4m")
	for _, retired := range []bool{false, true} {
		s := makeSessionIn(t, disk)
		s.idle = "100ms"
		if r := s.startGuardian(); r.Error != nil {
			t.Fatal(r.Error)
		}
		l := s.dial()
		a := s.attach(protocol.AttachRequest{})
		written := filepath.Join(t.TempDir(), "written")
		l.run(fmt.Sprintf(`stty -onlcr; echo up; read go; yes 0123456 | head -c 40000; : >%s; exec sleep 500`, written))
		a.waitOutput("up")
		free := fill(t, disk)
		if r := l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("go\n")}); r.Error != nil {
			t.Fatal(r.Error)
		}
		eventually(t, "the log to be stuck", func() bool { return l.status().Live.OutputFault != "" })
		eventually(t, "all to be written", func() bool { _, err := os.Stat(written); return err == nil })
		if err := syscall.Kill(s.ownerPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end", func() bool { return l.status().State == lifecycle.Lost })
		if r := l.call(protocol.LeaveRequest{Head: l.head(protocol.OpLeave)}); r.Error == nil || r.Error.Code != protocol.CodeNotDurable {
			t.Errorf("asked to leave with what is not written down: %+v", r.Error)
		}
		if retired {
			decode[protocol.RetireAnswer](t, l.retire(newID()))
			view, err := s.dir.Read()
			if err != nil || view.Snapshot.CleanupError == nil || view.Snapshot.CleanupError.Stage != "output" {
				t.Errorf("%+v, %v", view.Snapshot, err)
			}
			free()
			continue
		}
		a.conn.Close()
		l.conn.Close() // it would leave now
		free()
		eventually(t, "the guardian to leave", func() bool {
			_, held, err := s.dir.Holder(sessiondir.GuardianLock)
			if err != nil {
				t.Fatal(err)
			}
			return !held
		})
		s.reach().conn.Close()
		since := int64(0)
		if got := s.attach(protocol.AttachRequest{Since: &since}).toEnd(); !strings.HasSuffix(string(got.output), strings.Repeat("0123456\n", 5000)) {
			t.Errorf("%d bytes, ending with %.30q", len(got.output), got.output[max(0, len(got.output)-30):])
		}
	}
}

func TestAnswersReachAClientThatHasClosedItsSide(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	var frames []byte
	for _, request := range []any{
		protocol.StartRequest{Head: l.head(protocol.OpStart), MutationID: newID(), StartSpec: shell("sleep 100")},
		protocol.StatusRequest{Head: l.head(protocol.OpStatus)},
		protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: newID()},
	} {
		var err error
		if frames, err = protocol.AppendFrame(frames, request); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	l.conn.CloseWrite()
	seen := map[uint64]bool{}
	for range 3 {
		var r protocol.Response
		read(t, l.conn, &r)
		if r.Error != nil {
			t.Errorf("%d: %+v", r.ID, r.Error)
		}
		seen[r.ID] = true
	}
	if len(seen) != 3 {
		t.Errorf("answered %v", seen)
	}
	closed(t, l.conn)
}

func TestASweepWithoutAnOwnerClaimsNoProof(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	escaped := filepath.Join(t.TempDir(), "pid")
	l.run(fmt.Sprintf(`setsid sh -c 'echo $$ >%s.new; mv %[1]s.new %[1]s; exec sleep 500' & (trap '' HUP; exec sleep 501) &
		until test -e %[1]s; do sleep 0.05; done; exit 0`, escaped))
	s.final()
	t.Cleanup(func() {
		text, err := os.ReadFile(escaped)
		pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || err2 != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Error("what has escaped is not ended: ", err, err2)
		}
	})
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		t.Fatal(err)
	}
	s.ungroup()
	syscall.Kill(owner.PID, syscall.SIGKILL)
	eventually(t, "the owner's death to show", func() bool { return l.status().TerminalSessionEnded })
	report := decode[protocol.SweepAnswer](t, l.sweep(newID()))
	if report.Proved || report.Partial == "" || l.status().GroupConsumed {
		t.Errorf("%+v", report)
	}
	// What has stayed in the owner's kernel session is found all the same.
	if p := report.Processes; len(p) != 1 || p[0].Name != "sleep" || p[0].How != "session" || !p[0].Gone {
		t.Errorf("%+v", p)
	}
}

func TestASweepAfterTheOwnerHasLeftByItselfIsProved(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("exit 0")
	eventually(t, "the owner to leave", func() bool { return l.status().TerminalSessionEnded })
	if report := decode[protocol.SweepAnswer](t, l.sweep(newID())); !report.Proved || report.Partial != "" || !l.status().GroupConsumed {
		t.Errorf("%+v", report)
	}
}

func TestInputThatWaitsIsBoundedOnAConnection(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run("stty raw -echo; printf ready; sleep 100")
	a.waitOutput("ready")
	piece := make([]byte, protocol.DefaultLimits().InputCredit)
	refused := 0
	var frames []byte
	for range 8 {
		var err error
		frames, err = protocol.AppendFrame(frames, protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: piece})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	for range 7 { // the first waits for the program to read
		var r protocol.Response
		read(t, l.conn, &r)
		if r.Error != nil && r.Error.Code == protocol.CodeBusy {
			refused++
		}
	}
	if refused != 7 {
		t.Errorf("%d of 7 refused", refused)
	}
}

func TestALeavingGuardianEndsConnectionsWithoutNoise(t *testing.T) {
	s := newSession(t)
	idle, l := s.dial(), s.dial()
	decode[protocol.RetireAnswer](t, l.retire(newID()))
	for _, c := range []*link{idle, l} {
		rest, err := io.ReadAll(c.conn)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if !bytes.Equal(rest, nil) {
			t.Errorf("%d bytes after the end: %q", len(rest), rest)
		}
	}
}

func TestAnAbsurdIntervalIsRefused(t *testing.T) {
	l := newSession(t).dial()
	r := l.call(protocol.SubscribeRequest{Head: l.head(protocol.OpSubscribe), LiveMS: 1 << 62})
	if r.Error == nil || r.Error.Code != protocol.CodeInvalid {
		t.Errorf("%+v", r.Error)
	}
}
