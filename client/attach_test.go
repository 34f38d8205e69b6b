package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"syscall"
	"testing"
	"time"
)

// shown collects what an attachment shows.
type shown struct {
	output  bytes.Buffer
	acked   int
	refused []RefusedFrame
	end     *EndFrame
	err     error
}

// collect ranges over the frames in the background.
func collect(a *Attachment) <-chan shown {
	done := make(chan shown, 1)
	go func() {
		var s shown
		for f, err := range a.Frames() {
			switch {
			case err != nil:
				s.err = err
			case f.Output != nil:
				s.output.Write(f.Output.Bytes)
			case f.Ack != nil:
				s.acked += f.Ack.Written
			case f.Refused != nil:
				s.refused = append(s.refused, *f.Refused)
			case f.End != nil:
				s.end = f.End
			}
		}
		done <- s
	}()
	return done
}

func fromTheStart() AttachOptions {
	var zero int64
	return AttachOptions{Since: &zero}
}

func TestAnAttacherGetsEveryByteAndTheRecord(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "read x; seq 1 100000; exit 9")
	var all []<-chan shown
	for range 2 {
		a, err := s.Attach(b.ctx(), fromTheStart())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, collect(a))
		if len(all) == 2 {
			if err := a.Input(b.ctx(), []byte("\r")); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := <-all[0], <-all[1]
	for _, got := range []shown{first, second} {
		if got.err != nil || got.end == nil || got.end.Record == nil || *got.end.Record.ExitCode != 9 {
			t.Fatalf("end: %+v, %v", got.end, got.err)
		}
		if int64(got.output.Len()) != got.end.Record.EndOffset {
			t.Errorf("%d bytes, the record's end is %d", got.output.Len(), got.end.Record.EndOffset)
		}
	}
	if !bytes.Equal(first.output.Bytes(), second.output.Bytes()) {
		t.Error("the two differ")
	}
	if second.acked != 1 {
		t.Errorf("%d bytes acknowledged", second.acked)
	}
}

func TestInputIsWholeAndAcknowledged(t *testing.T) {
	b := newBench(t)
	const size = 300_000
	s := b.shell("", "stty raw -echo; echo up; head -c 300000 | sha256sum; exit 0")
	a, err := s.Attach(b.ctx(), fromTheStart())
	if err != nil {
		t.Fatal(err)
	}
	done := collect(a)
	eventually(t, "the target has set its terminal", func() bool {
		answer, err := s.Read(b.ctx(), 0, 100)
		return err == nil && bytes.Contains(answer.Bytes, []byte("up"))
	})
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := a.Input(b.ctx(), data); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.acked != size || len(got.refused) > 0 {
		t.Errorf("%d acknowledged, refused: %v", got.acked, got.refused)
	}
	if want := sum(data); !bytes.Contains(got.output.Bytes(), []byte(want)) {
		t.Errorf("the target read something else: %q, want %s", got.output.Bytes(), want)
	}
}

func TestAWriterIsHeldByATargetThatDoesNotRead(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "stty raw -echo; echo up; sleep 100")
	a, err := s.Attach(b.ctx(), fromTheStart())
	if err != nil {
		t.Fatal(err)
	}
	done := collect(a)
	ctx, cancel := context.WithTimeout(b.ctx(), 300*time.Millisecond)
	defer cancel()
	if err := a.Input(ctx, make([]byte, 1<<20)); err == nil {
		t.Error("a mebibyte was taken that nobody reads")
	}
	// Nobody else is held.
	began := time.Now()
	if _, err := s.Status(b.ctx()); err != nil || time.Since(began) > time.Second {
		t.Errorf("status: %v after %v", err, time.Since(began))
	}
	a.Detach()
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

func TestALostConnectionIsMadeAnewWhereItBroke(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "i=0; while test $i -lt 2000; do echo line $i; i=$((i+1)); done; read x; exit 0")
	a, err := s.Attach(b.ctx(), fromTheStart())
	if err != nil {
		t.Fatal(err)
	}
	done := collect(a)
	for range 5 {
		a.connection().CloseRead() // as if the guardian had gone
		select {
		case <-done:
			t.Fatal("the attachment ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	eventually(t, "all is written", func() bool {
		st, err := s.fromFiles()
		return err == nil && st.OutputEnd > 18000
	})
	if _, err := s.Input(b.ctx(), []byte("\r")); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || got.end == nil {
		t.Fatalf("%+v, %v", got.end, got.err)
	}
	var log bytes.Buffer
	if err := s.ReadLog(0, func(p Piece) error { log.Write(p.Bytes); return nil }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.output.Bytes(), log.Bytes()) {
		t.Errorf("%d bytes shown, %d in the log", got.output.Len(), log.Len())
	}
}

func TestAGuardianThatIsKilledIsReplacedAndNobodyMissesAnything(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "echo one; read x; echo two; read x; exit 11")
	a, err := s.Attach(b.ctx(), fromTheStart())
	if err != nil {
		t.Fatal(err)
	}
	done := collect(a)
	ended := make(chan Status)
	go func() {
		end, err := s.WaitEnd(b.ctx())
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	for _, word := range []string{"one", "two"} {
		st, err := s.fromFiles()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, word+" is written", func() bool {
			var log bytes.Buffer
			err := s.ReadLog(0, func(p Piece) error { log.Write(p.Bytes); return nil })
			return err == nil && bytes.Contains(log.Bytes(), []byte(word))
		})
		hit(st.GuardianPID, syscall.SIGKILL)
		eventually(t, "there is another guardian", func() bool {
			now, err := s.fromFiles()
			return err == nil && now.GuardianAlive && now.GuardianPID != 0 && now.GuardianPID != st.GuardianPID
		})
		if n, err := s.Input(b.ctx(), []byte("\r")); n != 1 {
			t.Fatalf("input: %d, %v", n, err)
		}
	}
	got := <-done
	if got.err != nil || got.end == nil || got.end.Record == nil || *got.end.Record.ExitCode != 11 {
		t.Fatalf("attached: %+v, %v", got.end, got.err)
	}
	var log bytes.Buffer
	if err := s.ReadLog(0, func(p Piece) error { log.Write(p.Bytes); return nil }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.output.Bytes(), log.Bytes()) {
		t.Errorf("shown %q, in the log %q", got.output.Bytes(), log.Bytes())
	}
	if end := <-ended; end.Record == nil || *end.Record.ExitCode != 11 {
		t.Errorf("waited: %+v", end)
	}
}

func TestASessionThatLosesItsOwnerIsLostForEverybody(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "exec sleep 100")
	a, err := s.Attach(b.ctx(), fromTheStart())
	if err != nil {
		t.Fatal(err)
	}
	done := collect(a)
	st, err := s.fromFiles()
	if err != nil {
		t.Fatal(err)
	}
	hit(st.OwnerPID, syscall.SIGKILL)
	if got := <-done; got.err != nil || got.end == nil || got.end.Record == nil || got.end.Record.Result != "lost" {
		t.Errorf("attached: %+v, %v", got.end, got.err)
	}
	if end, err := s.WaitEnd(b.ctx()); err != nil || end.State != StateLost || end.Record.ExitCode != nil {
		t.Errorf("waited: %+v, %v", end, err)
	}
	if r, err := s.Term(b.ctx(), NewMutationID(), 0); err != nil || r.Answer.Delivery == Delivered {
		t.Errorf("term: %+v, %v", r, err)
	}
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}
