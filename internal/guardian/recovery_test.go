package guardian_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// past writes what processes left that are all gone: a journal with one operation
// that was admitted and not completed, and an owner's outcome.
type past struct {
	op      protocol.Op // "": none
	events  []lifecycle.Event
	outcome []lifecycle.OutcomeRecord
}

func (p past) write(s *session, id protocol.MutationID) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	view, err := s.dir.Read()
	must(err)
	life := view.Snapshot
	for _, e := range append([]lifecycle.Event{{Kind: lifecycle.Adopt}}, p.events...) {
		e.At = time.Now().UnixNano()
		life, _, err = lifecycle.Step(life, e)
		must(err)
	}
	entries := []sessiondir.Entry{{Life: &life}}
	if p.op != "" {
		admitted, err := receipts.NewBook().Admit(id, string(p.op), receipts.Fingerprint{1}, time.Now())
		must(err)
		entries = append(entries, sessiondir.Entry{Receipt: &admitted})
		if p.op == protocol.OpSignal {
			entries[1].Signal = &sessiondir.SignalIntent{Signal: 10, Group: protocol.GroupTarget}
		}
	}
	j, err := journal.Create(s.dir.File(), sessiondir.JournalFile)
	must(err)
	for _, e := range entries {
		data, err := sessiondir.EncodeEntry(e)
		must(err)
		must(j.Append(data))
	}
	must(j.Close())
	if len(p.outcome) == 0 {
		return
	}
	j, err = journal.Create(s.dir.File(), sessiondir.OutcomeFile)
	must(err)
	for _, r := range p.outcome {
		data, err := protocol.Marshal(r)
		must(err)
		must(j.Append(data))
	}
	must(j.Close())
}

// receipt is the one that has to be there, with its answer.
func receipt[T any](s *session, id protocol.MutationID) (answer T) {
	s.t.Helper()
	view, err := s.dir.Read()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range view.Receipts {
		if r.ID != id {
			continue
		}
		if !r.Done {
			s.t.Fatalf("%s %s is not settled", r.Op, id)
		}
		if err := protocol.Unmarshal(r.Response, &answer); err != nil {
			s.t.Fatal(err)
		}
		return answer
	}
	s.t.Fatalf("there is no receipt %s", id)
	return answer
}

// The rows of the recovery table in which nobody lives any more.
func TestWhatTheDeadLeftIsSettledByTheEvidence(t *testing.T) {
	t.Parallel()
	self, err := procs.Self()
	if err != nil {
		t.Fatal(err)
	}
	target := &lifecycle.Process{PID: 1 << 22, Start: 7, Boot: self.Boot}
	reserve := lifecycle.Event{Kind: lifecycle.Reserve, ID: "start", Program: "sh"}
	spawn := lifecycle.Event{Kind: lifecycle.Spawn, OwnerPID: 1 << 22}
	identify := lifecycle.Event{Kind: lifecycle.Identify, Target: target}
	run := []lifecycle.Event{reserve, spawn, identify, {Kind: lifecycle.Ready}}
	launching := lifecycle.OutcomeRecord{Launching: true}
	running := lifecycle.OutcomeRecord{Running: target}
	exit := lifecycle.OutcomeRecord{Exit: &lifecycle.ExitStatus{Code: 19, At: time.Now().UnixNano()}}
	drained := lifecycle.OutcomeRecord{Drain: &lifecycle.DrainReport{State: lifecycle.DrainEOF, EndOffset: 8}}
	over := append(run[:4:4],
		lifecycle.Event{Kind: lifecycle.Exit, Exit: exit.Exit}, lifecycle.Event{Kind: lifecycle.Drain, Drain: drained.Drain})

	started := func(want lifecycle.State, stage string) func(*testing.T, *session, protocol.MutationID) {
		return func(t *testing.T, s *session, id protocol.MutationID) {
			a := receipt[protocol.StartAnswer](s, id)
			if a.State != want || (a.Error == nil) != (stage == "") || a.Error != nil && a.Error.Stage != stage {
				t.Errorf("the start is answered %+v %+v", a, a.Error)
			}
		}
	}
	delivered := func(want protocol.Delivery) func(*testing.T, *session, protocol.MutationID) {
		return func(t *testing.T, s *session, id protocol.MutationID) {
			if a := receipt[protocol.ControlAnswer](s, id); a.Delivery != want {
				t.Errorf("it is answered %+v", a)
			}
		}
	}
	id := newID()
	rows := map[string]struct {
		past
		state  lifecycle.State
		reason string
		check  func(*testing.T, *session, protocol.MutationID)
	}{
		"start, the target ran": {
			past{protocol.OpStart, []lifecycle.Event{reserve, spawn}, []lifecycle.OutcomeRecord{launching, running}},
			lifecycle.Lost, "the owner died", started(lifecycle.Lost, "owner"),
		},
		"start, the target ran and ended": {
			past{protocol.OpStart, []lifecycle.Event{reserve}, []lifecycle.OutcomeRecord{launching, running, exit, drained}},
			lifecycle.Ended, "", started(lifecycle.Running, ""),
		},
		"start, about to launch": {
			past{protocol.OpStart, []lifecycle.Event{reserve, spawn}, []lifecycle.OutcomeRecord{launching}},
			lifecycle.Lost, "the owner died", started(lifecycle.Lost, "owner"),
		},
		"start, no owner ever": {
			past{protocol.OpStart, []lifecycle.Event{reserve}, nil},
			lifecycle.LaunchFailed, "the guardian was lost before an owner existed", started(lifecycle.LaunchFailed, "guardian"),
		},
		"term, owner gone": {
			past{protocol.OpTerm, run, []lifecycle.OutcomeRecord{launching, running}},
			lifecycle.Lost, "the owner died", delivered(protocol.NotDelivered),
		},
		"term, owner gone after the end": {
			past{protocol.OpTerm, run, []lifecycle.OutcomeRecord{launching, running, exit, drained}},
			lifecycle.Ended, "", func(t *testing.T, s *session, id protocol.MutationID) {
				delivered(protocol.NotDelivered)(t, s, id)
				if v, err := s.dir.Read(); err != nil || !v.Snapshot.TargetTerminated {
					t.Errorf("the finished target is not accounted for: %v", err)
				}
			},
		},
		"signal, owner gone": {
			past{protocol.OpSignal, run, []lifecycle.OutcomeRecord{launching, running}},
			lifecycle.Lost, "the owner died", delivered(protocol.NotDelivered),
		},
		"signal, on record as delivered": {
			past{protocol.OpSignal, run, []lifecycle.OutcomeRecord{launching, running, {Applied: id.String(), Delivered: true}}},
			lifecycle.Lost, "the owner died", delivered(protocol.Delivered),
		},
		"sweep, owner gone": {
			past{protocol.OpSweep, run, []lifecycle.OutcomeRecord{launching, running, exit, drained}},
			lifecycle.Ended, "", func(t *testing.T, s *session, id protocol.MutationID) {
				v, err := s.dir.Read()
				if a := receipt[protocol.SweepAnswer](s, id); a.Proved || a.Partial == "" || err != nil || v.Snapshot.GroupConsumed {
					t.Errorf("it is answered %+v, %v", a, err)
				}
			},
		},
		"sweep, proved before": {
			past{protocol.OpSweep, run, []lifecycle.OutcomeRecord{launching, running, exit, drained, {Applied: id.String(), Consumed: true}}},
			lifecycle.Ended, "", func(t *testing.T, s *session, id protocol.MutationID) {
				v, err := s.dir.Read()
				if a := receipt[protocol.SweepAnswer](s, id); !a.Proved || err != nil || !v.Snapshot.GroupConsumed {
					t.Errorf("it is answered %+v, %v", a, err)
				}
			},
		},
		"retire": {
			past{protocol.OpRetire, over, []lifecycle.OutcomeRecord{launching, running, exit, drained}},
			lifecycle.Retired, "", func(t *testing.T, s *session, id protocol.MutationID) {
				a := receipt[protocol.RetireAnswer](s, id)
				if r := a.Record; r == nil || r.ExitCode == nil || *r.ExitCode != 19 || r.EndOffset != 8 {
					t.Errorf("the record is %+v", r)
				}
			},
		},
		"nothing begun": {
			past{"", run, []lifecycle.OutcomeRecord{launching, running}},
			lifecycle.Lost, "the owner died", nil,
		},
		"nothing begun, another boot": {
			past{
				"", append(run[:2:2], lifecycle.Event{Kind: lifecycle.Identify, Target: &lifecycle.Process{PID: 1, Boot: "another"}}, run[3]),
				[]lifecycle.OutcomeRecord{launching, {Running: &lifecycle.Process{PID: 1, Boot: "another"}}},
			},
			lifecycle.Lost, "the machine was restarted", nil,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := makeSession(t)
			row.write(s, id)
			read, err := s.dir.Read() // what a reader says before any guardian does
			if err != nil {
				t.Fatal(err)
			}
			if r := s.startGuardian(); r.Error != nil {
				t.Fatalf("%+v", r.Error)
			}
			// Settled before it serves anybody.
			v, err := s.dir.Read()
			if err != nil || v.Snapshot.State != row.state || v.Snapshot.Record == nil || row.reason != "" && v.Snapshot.Record.Reason != row.reason {
				t.Fatalf("%+v %+v, %v", v.Snapshot, v.Snapshot.Record, err)
			}
			if row.op != protocol.OpRetire && read.Snapshot.State != v.Snapshot.State {
				t.Errorf("a reader said %s, the guardian says %s", read.Snapshot.State, v.Snapshot.State)
			}
			if v.Snapshot.Revision < read.Snapshot.Revision {
				t.Errorf("the revision went back from %d to %d", read.Snapshot.Revision, v.Snapshot.Revision)
			}
			if row.check != nil {
				row.check(t, s, id)
			}
		})
	}
}

// stop stops a process and waits until each of its threads has.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all threads to be stopped", func() bool { return stopped(pid) })
}

func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), ") T ") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// admitted sends a mutation whose answer nobody waits for, and waits until it is
// on the disk.
func (s *session) admitted(l *link, request any, id protocol.MutationID) {
	s.t.Helper()
	if err := protocol.WriteFrame(l.conn, request); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the admission", func() bool {
		v, err := s.dir.Read()
		if err != nil {
			return false
		}
		for _, r := range v.Receipts {
			if r.ID == id {
				return !r.Done
			}
		}
		return false
	})
}

// The rows in which an owner lives, and the owner that does not answer because
// somebody has stopped it: the next guardian continues it.
func TestAStoppedOwnerIsContinuedAndDoesEachThingOnce(t *testing.T) {
	t.Parallel()
	for _, op := range []protocol.Op{protocol.OpTerm, protocol.OpSignal, protocol.OpSweep, protocol.OpRetire} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			log := filepath.Join(t.TempDir(), "log")
			l := s.dial()
			if op == protocol.OpRetire { // an owner that stays has a descendant
				l.run("(trap '' HUP; exec sleep 500) & exit 3")
				s.final()
			} else {
				a := s.attach(protocol.AttachRequest{})
				l.run(fmt.Sprintf(`trap 'echo term >>%[1]s' TERM; trap 'echo usr >>%[1]s' USR1; echo up; while :; do sleep 0.05; done`, log))
				a.waitOutput("up")
			}
			owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
			if err != nil {
				t.Fatal(err)
			}
			stop(t, owner.PID)
			id := newID()
			request := map[protocol.Op]any{
				protocol.OpTerm:   protocol.TermRequest{Head: l.head(op), MutationID: id},
				protocol.OpSweep:  protocol.SweepRequest{Head: l.head(op), MutationID: id},
				protocol.OpRetire: protocol.RetireRequest{Head: l.head(op), MutationID: id},
				protocol.OpSignal: protocol.SignalRequest{
					Head: l.head(op), MutationID: id, Signal: int(syscall.SIGUSR1), Group: protocol.GroupTarget,
				},
			}[op]
			s.admitted(l, request, id)
			kill(t, s)
			if r := s.startGuardian(); r.Error != nil {
				t.Fatalf("%+v", r.Error)
			}
			if stopped(owner.PID) {
				t.Error("the owner was not continued")
			}
			done := func() bool {
				v, err := s.dir.Read()
				return err == nil && len(v.Receipts) == 2 && v.Receipts[1].Done
			}
			eventually(t, "the operation to be completed", done)
			switch op {
			case protocol.OpSweep:
				// The owner may have had it from the dead guardian, and its report too: the
				// proof is on record.
				if a := receipt[protocol.SweepAnswer](s, id); !a.Proved {
					t.Errorf("%+v", a)
				}
				return
			case protocol.OpRetire:
				if a := receipt[protocol.RetireAnswer](s, id); a.Record == nil || *a.Record.ExitCode != 3 {
					t.Errorf("%+v", a)
				}
				eventually(t, "the owner to leave", func() bool { return !living(owner) })
				return
			}
			if a := receipt[protocol.ControlAnswer](s, id); a.Delivery != protocol.Delivered {
				t.Errorf("%+v", a)
			}
			l = s.reach()
			again := l.term(id)
			if op == protocol.OpSignal {
				again = l.signal(id, syscall.SIGUSR1, protocol.GroupTarget)
			}
			if !again.Replayed || again.Error != nil {
				t.Errorf("the same again: %+v", again)
			}
			decode[protocol.ControlAnswer](t, l.signal(newID(), syscall.SIGWINCH, protocol.GroupTarget)) // after it
			want := map[protocol.Op]string{protocol.OpTerm: "term\n", protocol.OpSignal: "usr\n"}[op]
			eventually(t, "the signal to be told", func() bool { b, err := os.ReadFile(log); return err == nil && string(b) == want })
		})
	}
}

func TestAnOwnerThatIsStoppedUnderAGuardianIsContinued(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	l := s.dial()
	l.run("sleep 100")
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, owner.PID)
	status := s.dial()
	id := newID()
	s.admitted(l, protocol.TermRequest{Head: l.head(protocol.OpTerm), MutationID: id}, id)
	if got := status.status(); got.State != lifecycle.Running {
		t.Errorf("meanwhile: %+v", got.Durable)
	}
	var r protocol.Response
	read(t, l.conn, &r)
	if a := decode[protocol.ControlAnswer](t, r); a.Delivery != protocol.Delivered {
		t.Errorf("%+v", a)
	}
	if status.status().Live.OwnerSilent {
		t.Error("the owner has answered and is called silent")
	}
}

// What cannot be read is no evidence: a session is not lost because a guardian has
// no descriptor left.
func TestAnOutcomeThatCannotBeReadSettlesNothing(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	l := s.dial()
	l.run("sleep 100")
	guardian := s.guardianPID()
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	none := unix.Rlimit{Cur: 0}
	if err := unix.Prlimit(guardian, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Skipf("cannot limit the guardian's descriptors: %v", err)
	}
	none.Max = before.Max
	if err := unix.Prlimit(guardian, unix.RLIMIT_NOFILE, &none, nil); err != nil {
		t.Skipf("cannot limit the guardian's descriptors: %v", err)
	}
	syscall.Kill(owner.PID, syscall.SIGKILL)
	eventually(t, "the owner's end to be seen", func() bool { return l.status().Live.OwnerSilent })
	if got := l.status(); got.State != lifecycle.Running {
		t.Errorf("without evidence: %+v", got.Durable)
	}
	if err := unix.Prlimit(guardian, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session to be lost", func() bool { return l.status().State == lifecycle.Lost })
}
