package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestASessionFromItsCreationToItsPurge(t *testing.T) {
	b := newBench(t)
	s := b.create("one")
	st, err := s.Snapshot(b.ctx())
	if err != nil || st.State != StateNew || st.Name != "one" || st.Live == nil || st.GuardianPID == 0 {
		t.Fatalf("new: %+v, %v", st, err)
	}
	r, err := s.Start(b.ctx(), NewMutationID(), shellSpec("read x; exit 5"))
	if err != nil || r.Answer.State != StateRunning || r.Answer.TargetPID == 0 || r.Replayed {
		t.Fatalf("start: %+v, %v", r, err)
	}
	if n, err := s.Input(b.ctx(), []byte("go\r")); err != nil || n != 3 {
		t.Fatalf("input: %d, %v", n, err)
	}
	end, err := s.WaitEnd(b.ctx())
	if err != nil || end.State != StateEnded || end.Record == nil || *end.Record.ExitCode != 5 {
		t.Fatalf("end: %+v, %v", end, err)
	}
	if term, err := s.Term(b.ctx(), NewMutationID(), 0); err != nil || term.Answer.Delivery != NotNeeded {
		t.Errorf("term after the end: %+v, %v", term, err)
	}
	first, err := s.Retire(b.ctx(), NewMutationID())
	if err != nil || *first.Answer.Record.ExitCode != 5 {
		t.Fatalf("retire: %+v, %v", first, err)
	}
	if err := s.WaitGone(b.ctx()); err != nil {
		t.Fatal(err)
	}
	// A guardian is started for it once more.
	again, err := s.Retire(b.ctx(), NewMutationID())
	if err != nil || *again.Answer.Record.ExitCode != 5 || again.Answer.Record.Times != first.Answer.Record.Times {
		t.Errorf("retire again: %+v, %v", again, err)
	}
	if err := s.Purge(b.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.Open("one"); CodeOf(err) != CodeNoSession {
		t.Errorf("after the purge: %v", err)
	}
}

func TestAnAnswerThatWasLostIsAskedForAgain(t *testing.T) {
	b := newBench(t)
	s := b.create("")
	marker := filepath.Join(t.TempDir(), "runs")
	stop := make(chan struct{})
	var breaker sync.WaitGroup
	breaker.Go(func() {
		for {
			s.mu.Lock()
			if s.link != nil {
				s.link.conn.Close()
			}
			s.mu.Unlock()
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
		}
	})
	op := NewMutationID()
	r, err := s.Start(b.ctx(), op, shellSpec("echo x >>"+marker+"; sleep 100"))
	close(stop)
	breaker.Wait()
	if err != nil || r.Answer.State != StateRunning {
		t.Fatalf("start: %+v, %v", r, err)
	}
	again, err := s.Start(b.ctx(), op, shellSpec("echo x >>"+marker+"; sleep 100"))
	if err != nil || !again.Replayed || again.Answer != r.Answer {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	eventually(t, "the target runs", func() bool { info, err := os.Stat(marker); return err == nil && info.Size() > 0 })
	if ran, _ := os.ReadFile(marker); string(ran) != "x\n" {
		t.Errorf("the target ran: %q", ran)
	}
}

func TestAGuardianIsStartedForAChangeAndForNothingElse(t *testing.T) {
	b := newBench(t)
	s := b.create("")
	st, err := s.Snapshot(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	hit(st.GuardianPID, syscall.SIGKILL)
	if err := s.WaitGone(b.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Status(b.ctx()); CodeOf(err) != CodeUnreachable {
		t.Errorf("status: %v", err)
	}
	if _, err := s.Input(b.ctx(), []byte("x")); CodeOf(err) != CodeUnreachable {
		t.Errorf("input: %v", err)
	}
	for st, err := range s.Watch(b.ctx(), 0) {
		if err != nil || st.State != StateNew || st.GuardianAlive {
			t.Errorf("watch: %+v, %v", st, err)
		}
		break
	}
	if r, err := s.Start(b.ctx(), NewMutationID(), shellSpec("exit 0")); err != nil || r.Answer.Error != nil {
		t.Fatalf("start: %+v, %v", r, err)
	}
}

func TestAReaderDoesNotWaitForAGuardianThatHangs(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 100")
	st, err := s.Snapshot(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, st.GuardianPID)
	defer hit(st.GuardianPID, syscall.SIGCONT)
	eventually(t, "the guardian is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", st.GuardianPID))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	other, err := b.c.Open(s.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	began := time.Now()
	st, err = other.Snapshot(b.ctx())
	if err != nil || st.State != StateRunning || st.Live != nil || !st.GuardianAlive {
		t.Errorf("%+v, %v", st, err)
	}
	if took := time.Since(began); took > 10*livePatience {
		t.Errorf("it took %v", took)
	}
	ctx, cancel := context.WithTimeout(b.ctx(), 50*time.Millisecond)
	defer cancel()
	if _, err := other.Term(ctx, NewMutationID(), 0); CodeOf(err) != CodeUnreachable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change: %v", err)
	}
}

func TestManyRequestsAreInFlightOnOneConnection(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 100")
	errs := make(chan error, 50)
	for range cap(errs) {
		go func() {
			_, err := s.Status(b.ctx())
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	live, err := s.Status(b.ctx())
	if err != nil || live.Live == nil {
		t.Errorf("%+v, %v", live, err)
	}
}

func TestAWatcherSeesEveryStateOnceAndInOrder(t *testing.T) {
	b := newBench(t)
	s := b.create("")
	got := make(chan []Status)
	for range 2 {
		w, err := b.c.Open(s.ID())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		go func() {
			var all []Status
			for st, err := range w.Watch(b.ctx(), 0) {
				if err != nil {
					t.Errorf("watch: %v", err)
				}
				all = append(all, st)
			}
			got <- all
		}()
	}
	if _, err := s.Start(b.ctx(), NewMutationID(), shellSpec("exit 3")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		all := <-got
		for i := 1; i < len(all); i++ {
			if all[i].Revision <= all[i-1].Revision {
				t.Errorf("revision %d after %d", all[i].Revision, all[i-1].Revision)
			}
		}
		if len(all) == 0 || all[len(all)-1].State != StateEnded || all[len(all)-1].Record == nil {
			t.Errorf("the last is %+v", all)
		}
		for _, st := range all[:max(0, len(all)-1)] {
			if st.State.Final() {
				t.Errorf("%s is not the last", st.State)
			}
		}
	}
}

func TestASubscriptionEndsWithTheFinalRecord(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "read x; exit 4")
	var states []State
	for u, err := range s.Subscribe(b.ctx(), SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(states) == 0 {
			if _, err := s.Input(b.ctx(), []byte("\r")); err != nil {
				t.Fatal(err)
			}
		}
		states = append(states, u.State)
	}
	if len(states) < 2 || states[0] != StateRunning || states[len(states)-1] != StateEnded {
		t.Errorf("states: %v", states)
	}
}

func TestAllSessionsAreWatchedTogether(t *testing.T) {
	b := newBench(t)
	first := b.shell("first", "sleep 100")
	ctx, cancel := context.WithCancel(b.ctx())
	defer cancel()
	seen := make(map[string]State)
	var second *Session
	for st, err := range b.c.WatchAll(ctx) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[st.Session] = st.State
		if second == nil {
			second = b.shell("second", "exit 0")
		}
		if seen[first.ID()] == StateRunning && seen[second.ID()] == StateEnded {
			cancel()
		}
	}
}

func TestOutputIsReadByOffset(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "seq 1 50000")
	if _, err := s.WaitEnd(b.ctx()); err != nil {
		t.Fatal(err)
	}
	var whole strings.Builder
	if err := s.ReadLog(0, func(p Piece) error { whole.Write(p.Bytes); return nil }); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(whole.String(), "\r\n"); lines != 50000 {
		t.Errorf("%d lines", lines)
	}
	answer, err := s.Read(b.ctx(), 100, 50)
	if err != nil || string(answer.Bytes) != whole.String()[100:150] || answer.End != int64(whole.Len()) {
		t.Errorf("read: %+v, %v", answer, err)
	}
	var tail strings.Builder
	if err := s.FollowLog(b.ctx(), 1000, func(p Piece) error { tail.Write(p.Bytes); return nil }); err != nil {
		t.Fatal(err)
	}
	if tail.String() != whole.String()[1000:] {
		t.Errorf("%d bytes followed", tail.Len())
	}
}

func TestReceiptsAreKept(t *testing.T) {
	b := newBench(t)
	s := b.shell("", "sleep 100")
	op := NewMutationID()
	if _, err := s.Signal(b.ctx(), op, int(syscall.SIGCONT), GroupTarget); err != nil {
		t.Fatal(err)
	}
	one, err := s.Receipts(b.ctx(), &op)
	if err != nil || len(one) != 1 || one[0].MutationID != op || one[0].Op != "signal" {
		t.Errorf("%+v, %v", one, err)
	}
	all, err := s.Receipts(b.ctx(), nil)
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	none := NewMutationID()
	if got, err := s.Receipts(b.ctx(), &none); CodeOf(err) != CodeNotFound && len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAStarterGathersNoZombies(t *testing.T) {
	b := newBench(t)
	for range 3 {
		s := b.shell("", "exit 0")
		if _, err := s.WaitEnd(b.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	b.endAll()
	eventually(t, "no child is left", func() bool {
		children, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range children {
			if text, _ := os.ReadFile(path); len(text) > 0 {
				return false
			}
		}
		return true
	})
}
