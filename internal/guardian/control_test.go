package guardian_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// eventually polls a condition that has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(bound)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("waited in vain for ", what)
		case <-tick.C:
		}
	}
}

// waitOutput reads an attachment until its output contains text.
func (l *link) waitOutput(text string) string {
	l.t.Helper()
	var out bytes.Buffer
	for !strings.Contains(out.String(), text) {
		var f protocol.AttachFrame
		read(l.t, l.conn, &f)
		if f.Output != nil {
			out.Write(f.Output.Bytes)
		}
		if f.End != nil {
			l.t.Fatalf("ended before %q: %q", text, out.String())
		}
	}
	return out.String()
}

func (l *link) term(id protocol.MutationID) protocol.Response {
	l.t.Helper()
	return l.call(protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: id})
}

func (l *link) sweep(id protocol.MutationID) protocol.Response {
	l.t.Helper()
	return l.call(protocol.SweepRequest{Head: l.head(protocol.OpSweep), MutationID: id})
}

func (l *link) retire(id protocol.MutationID) protocol.Response {
	l.t.Helper()
	return l.call(protocol.RetireRequest{Head: l.head(protocol.OpRetire), MutationID: id})
}

func (l *link) signal(id protocol.MutationID, sig syscall.Signal, group protocol.SignalGroup) protocol.Response {
	l.t.Helper()
	return l.call(protocol.SignalRequest{Head: l.head(protocol.OpSignal), MutationID: id, Signal: int(sig), Group: group})
}

func TestTermEndsTheTargetAndIsRepeatable(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	a := s.attach(protocol.AttachRequest{})
	l.run(`trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done`)
	a.waitOutput("up")
	id := newID()
	first := l.term(id)
	if got := decode[protocol.ControlAnswer](t, first); got.Delivery != protocol.Delivered {
		t.Fatalf("%+v", got)
	}
	if again := l.term(id); !bytes.Equal(first.OK, again.OK) || !again.Replayed {
		t.Errorf("repeated: %+v", again)
	}
	final := s.final()
	if final.ExitCode == nil || *final.ExitCode != 9 || final.Record.AskedBy != id.String() {
		t.Errorf("%+v", final.Record)
	}
	after := decode[protocol.ControlAnswer](t, l.term(newID()))
	if after.Delivery != protocol.NotNeeded {
		t.Errorf("term after the end: %+v", after)
	}
	if !l.status().TargetTerminated {
		t.Error("the finished target is not accounted for")
	}
}

func TestRetireTwiceGivesTheSameRecord(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run("exit 4")
	s.final()
	id := newID()
	first := decode[protocol.RetireAnswer](t, l.retire(id))
	closed(t, l.conn)
	eventually(t, "the guardian to leave", func() bool {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		return err == nil && !held
	})
	if r := s.startGuardian(); r.Error != nil {
		t.Fatal(r.Error)
	}
	l = s.dial()
	again := l.retire(id)
	if got := decode[protocol.RetireAnswer](t, again); !again.Replayed || !cmp.Equal(got, first) {
		t.Errorf("with the same id: %+v", got)
	}
	closed(t, l.conn) // it came for that only
	l = s.reach()
	other := decode[protocol.RetireAnswer](t, l.retire(newID()))
	if diff := cmp.Diff(first.Record, other.Record); diff != "" {
		t.Errorf("with a new id:\n%s", diff)
	}
}

func TestTheStartIsAnsweredFromTheFilesAfterRetirement(t *testing.T) {
	s := newSession(t)
	l, id := s.dial(), newID()
	first := l.start(id, shell("exit 4"))
	s.final()
	decode[protocol.RetireAnswer](t, l.retire(newID()))
	closed(t, l.conn)
	eventually(t, "the next guardian", func() bool { r := s.startGuardian(); return r.Error == nil && !r.Already })
	if again := s.dial().start(id, shell("exit 4")); !bytes.Equal(again.OK, first.OK) {
		t.Errorf("%x, then %x", first.OK, again.OK)
	}
}

func TestParallelStartsLaunchOnce(t *testing.T) {
	s := newSession(t)
	shared := newID()
	const n = 12
	var wg sync.WaitGroup
	answers := make([]protocol.Response, n)
	for i := range n {
		l := s.dial()
		id := shared
		if i%2 == 1 {
			id = newID()
		}
		wg.Go(func() { answers[i] = l.start(id, shell("echo once; sleep 100")) })
	}
	wg.Wait()
	var won []byte
	launched := 0
	for i, r := range answers {
		switch {
		case r.Error == nil && won == nil:
			won = r.OK
			launched++
		case r.Error == nil && !bytes.Equal(won, r.OK):
			t.Errorf("start %d got another answer", i)
		case r.Error != nil && r.Error.Code != protocol.CodeConflict:
			t.Errorf("start %d: %+v", i, r.Error)
		}
	}
	if launched != 1 {
		t.Errorf("%d launches", launched)
	}
}

func TestAMissingOwnerExecutableIsALaunchFailure(t *testing.T) {
	lonely := t.TempDir()
	if err := os.Link(filepath.Join(os.Getenv("MUR_TEST_BIN"), "mur-guardian"), filepath.Join(lonely, "mur-guardian")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUR_TEST_BIN", lonely)
	s := newSession(t)
	l := s.dial()
	answer := decode[protocol.StartAnswer](t, l.start(newID(), shell("true")))
	if answer.State != lifecycle.LaunchFailed || answer.Error.Stage != "owner" || answer.Error.Errno != int(syscall.ENOENT) {
		t.Errorf("%+v %+v", answer, answer.Error)
	}
	decode[protocol.ControlAnswer](t, l.term(newID()))
	decode[protocol.SweepAnswer](t, l.sweep(newID()))
	r := decode[protocol.RetireAnswer](t, l.retire(newID())).Record
	if r.Result != lifecycle.ResultLaunchFailed || r.Stage != "owner" {
		t.Errorf("%+v", r)
	}
}

func TestRandomBytesPassBothWaysInRawMode(t *testing.T) {
	s := newSession(t)
	a := s.attach(protocol.AttachRequest{})
	s.dial().run("stty raw -echo; printf ready; exec head -c 1048576")
	a.waitOutput("ready")
	sent := make([]byte, 1<<20)
	rand.Read(sent)
	for i := range 256 {
		sent[i] = byte(i)
	}
	const piece = 4096
	credit := make(chan struct{}, len(sent)/piece)
	for range protocol.DefaultLimits().InputCredit / piece {
		credit <- struct{}{}
	}
	go func() {
		for i := 0; i < len(sent); i += piece {
			<-credit
			f := protocol.AttachInput{Input: &protocol.InputFrame{Seq: uint64(i), Bytes: sent[i : i+piece]}}
			if err := protocol.WriteFrame(a.conn, f); err != nil {
				return
			}
		}
	}()
	got := bytes.NewBuffer(nil)
	acked := 0
	for {
		var f protocol.AttachFrame
		read(t, a.conn, &f)
		if f.Output != nil {
			got.Write(f.Output.Bytes)
		}
		if f.Ack != nil {
			acked += f.Ack.Written
			credit <- struct{}{}
		}
		if f.Refused != nil {
			t.Fatalf("input refused: %+v", f.Refused.Error)
		}
		if f.End != nil {
			break
		}
	}
	if !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes came back, not the %d sent", got.Len(), len(sent))
	}
	if acked != len(sent) {
		t.Errorf("%d bytes acknowledged", acked)
	}
}

func TestInputBeyondTheCreditIsRefusedAndNotLost(t *testing.T) {
	s := newSession(t)
	a := s.attach(protocol.AttachRequest{})
	s.dial().run("stty raw -echo; printf ready; sleep 100")
	a.waitOutput("ready")
	over := make([]byte, protocol.DefaultLimits().InputCredit+1)
	for seq, size := range []int{len(over), 1} {
		in := protocol.AttachInput{Input: &protocol.InputFrame{Seq: uint64(seq), Bytes: over[:size]}}
		if err := protocol.WriteFrame(a.conn, in); err != nil {
			t.Fatal(err)
		}
		for {
			var f protocol.AttachFrame
			read(t, a.conn, &f)
			if f.Refused != nil && seq == 0 {
				if f.Refused.Written != 0 || f.Refused.Error.Code != protocol.CodeBusy {
					t.Errorf("%+v", f.Refused)
				}
				break
			}
			if f.Ack != nil && seq == 1 {
				break
			}
		}
	}
}

func TestAHeldTerminalDoesNotHoldUpTheExit(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	l.run(`(trap '' HUP; exec sleep 300) & sleep 0.2; exit 7`)
	final := s.final()
	if final.ExitCode == nil || *final.ExitCode != 7 || final.Record.Descendants != 1 || final.Record.Holders != 1 {
		t.Fatalf("%+v", final.Record)
	}
	report := decode[protocol.SweepAnswer](t, l.sweep(newID()))
	if !report.Proved || len(report.Processes) == 0 || !report.Processes[0].Gone {
		t.Errorf("%+v", report)
	}
	if !l.status().GroupConsumed {
		t.Error("the proof is not in the snapshot")
	}
	decode[protocol.RetireAnswer](t, l.retire(newID()))
}

func TestAViewerThatStopsHoldsUpNobody(t *testing.T) {
	s := newSession(t)
	stopped := s.attach(protocol.AttachRequest{})
	reading := s.attach(protocol.AttachRequest{})
	l := s.dial()
	answer := l.start(newID(), func() protocol.StartSpec {
		spec := shell("stty -opost; seq 1 3000000; echo done")
		spec.History = 1 << 20
		return spec
	}())
	decode[protocol.StartAnswer](t, answer)
	end := reading.toEnd()
	if len(end.gaps) == 0 && !strings.HasSuffix(string(end.output), "3000000\ndone\n") {
		t.Errorf("the reading viewer ended with %q", tail(end.output))
	}
	late := stopped.toEnd()
	if len(late.gaps) == 0 || !strings.HasSuffix(string(late.output), "3000000\ndone\n") || late.next != end.next {
		t.Errorf("the stopped viewer: %d gaps, ended at %d of %d with %q", len(late.gaps), late.next, end.next, tail(late.output))
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-40):] }

func TestASizeSetBeforeTheStartIsKept(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	if r := l.call(protocol.ResizeRequest{Head: l.head(protocol.OpResize), Size: protocol.Size{Cols: 97, Rows: 31}}); r.Error != nil {
		t.Fatal(r.Error)
	}
	a := s.attach(protocol.AttachRequest{})
	l.run("stty size")
	if got := string(a.toEnd().output); got != "31 97\r\n" {
		t.Errorf("%q", got)
	}
}

func TestTheLatestToTypeOwnsTheSize(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	out := s.attach(protocol.AttachRequest{ReadOnly: true, Size: &protocol.Size{Cols: 10, Rows: 10}})
	l.run(`stty -echo; trap 'echo size $(stty size)' WINCH; echo up; while :; do read x; done`)
	out.waitOutput("up")
	a := s.attach(protocol.AttachRequest{Size: &protocol.Size{Cols: 81, Rows: 21}})
	out.waitOutput("size 21 81")
	b := s.attach(protocol.AttachRequest{Size: &protocol.Size{Cols: 82, Rows: 22}})
	out.waitOutput("size 22 82")
	resize := protocol.AttachInput{Resize: &protocol.Size{Cols: 83, Rows: 23}}
	if err := protocol.WriteFrame(a.conn, resize); err != nil { // a does not own it now
		t.Fatal(err)
	}
	typing := protocol.AttachInput{Input: &protocol.InputFrame{Seq: 1, Bytes: []byte("\n")}}
	if err := protocol.WriteFrame(a.conn, typing); err != nil {
		t.Fatal(err)
	}
	out.waitOutput("size 23 83")
	b.conn.Close()
	if got := l.status().Live; got.Cols != 83 || got.Rows != 23 {
		t.Errorf("%+v", got)
	}
}

func TestAGuardianKilledAfterTheEndIsReplacedWithTheSameRecord(t *testing.T) {
	s := newSession(t)
	s.dial().run("echo last; exit 5")
	before := s.final()
	eventually(t, "the owner to leave", func() bool {
		_, held, err := s.dir.Holder(sessiondir.OwnerLock)
		return err == nil && !held
	})
	kill(t, s)
	view, err := s.dir.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Record, view.Snapshot.Record); diff != "" {
		t.Errorf("read from the files:\n%s", diff)
	}
	if r := s.startGuardian(); r.Error != nil || r.Generation != before.Generation+1 {
		t.Fatalf("%+v", r)
	}
	after := s.final()
	if diff := cmp.Diff(before.Record, after.Record); diff != "" || after.Revision <= before.Revision {
		t.Errorf("revision %d then %d, record:\n%s", before.Revision, after.Revision, diff)
	}
	if got := string(s.attach(protocol.AttachRequest{Since: new(int64)}).toEnd().output); got != "last\r\n" {
		t.Errorf("output %q", got)
	}
}

// kill ends the guardian with SIGKILL and waits until it holds the lock no more.
func kill(t *testing.T, s *session) {
	t.Helper()
	pid := s.guardianPID()
	syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "the guardian's death", func() bool {
		id, held, err := s.dir.Holder(sessiondir.GuardianLock)
		return err == nil && (!held || id.PID != 0 && id.PID != pid)
	})
}
