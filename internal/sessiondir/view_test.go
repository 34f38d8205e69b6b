package sessiondir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// keeper writes a session's files as guardian and owner do.
type keeper struct {
	t       testing.TB
	d       *Dir
	journal *journal.File
	outcome *journal.File
	life    lifecycle.Durable
	locks   map[string]*os.File
}

func keep(t testing.TB, d *Dir) *keeper {
	k := &keeper{t: t, d: d, locks: make(map[string]*os.File), life: lifecycle.Durable{
		Version: lifecycle.SnapshotVersion, Session: string(d.ID()), Name: d.boot.Name, State: lifecycle.New,
	}}
	t.Cleanup(func() {
		for name := range k.locks {
			k.unlock(name)
		}
		for _, j := range []*journal.File{k.journal, k.outcome} {
			if j != nil {
				j.Close()
			}
		}
	})
	return k
}

func (k *keeper) lock(name string) {
	f, err := k.d.openLock(name, os.O_RDWR)
	must(k.t, err)
	ok, err := procs.Lock(f)
	if !ok || err != nil {
		k.t.Fatalf("%s is not to be had: %v", name, err)
	}
	k.locks[name] = f
}

func (k *keeper) unlock(name string) {
	k.locks[name].Close()
	delete(k.locks, name)
}

func (k *keeper) step(events ...lifecycle.Event) {
	k.t.Helper()
	var err error
	if k.journal == nil {
		k.journal, err = journal.Create(k.d.File(), JournalFile)
		must(k.t, err)
	}
	for _, e := range events {
		k.life, _, err = lifecycle.Step(k.life, e)
		must(k.t, err)
		life := k.life
		data, err := EncodeEntry(Entry{Life: &life})
		must(k.t, err)
		must(k.t, k.journal.Append(data))
	}
}

func (k *keeper) owner(records ...lifecycle.OutcomeRecord) {
	k.t.Helper()
	var err error
	if k.outcome == nil {
		k.outcome, err = journal.Create(k.d.File(), OutcomeFile)
		must(k.t, err)
	}
	for _, r := range records {
		data, err := protocol.Marshal(r)
		must(k.t, err)
		must(k.t, k.outcome.Append(data))
	}
}

func retire(t testing.TB, d *Dir) {
	t.Helper()
	k := keep(t, d)
	k.step(lifecycle.Event{Kind: lifecycle.Adopt}, lifecycle.Event{Kind: lifecycle.Retire, At: 1})
}

func self(t testing.TB) *lifecycle.Process {
	t.Helper()
	id, err := procs.Self()
	must(t, err)
	return &lifecycle.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}
}

func read(t testing.TB, d *Dir) *View {
	t.Helper()
	v, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func adopt() lifecycle.Event { return lifecycle.Event{Kind: lifecycle.Adopt} }

func reserve() lifecycle.Event {
	return lifecycle.Event{Kind: lifecycle.Reserve, ID: "x", Program: "sh"}
}

func spawned() lifecycle.Event { return lifecycle.Event{Kind: lifecycle.Spawn, OwnerPID: 1} }

func TestSessionWithoutAJournalIsNew(t *testing.T) {
	r := newRoot(t)
	d := create(t, r, newID(), CreateOptions{Name: "n"})
	for _, journal := range []string{"missing", "empty"} {
		if journal == "empty" {
			must(t, os.WriteFile(filepath.Join(d.Path(), JournalFile), nil, 0o600))
		}
		v := read(t, d)
		want := lifecycle.Durable{Version: 1, Session: string(d.ID()), Name: "n", State: lifecycle.New, Times: lifecycle.Times{Created: d.boot.Created}}
		if diff := cmp.Diff(&View{Snapshot: want, Receipts: []receipts.Receipt{}}, v); diff != "" {
			t.Error(journal, diff)
		}
	}
}

func TestANumberThatWasShownIsNotGivenAgain(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.lock(GuardianLock)
	k.step(adopt())
	committed := read(t, d).Snapshot.Revision
	for shown, want := range map[uint64]uint64{committed: committed, 50: 51} {
		must(t, NoteHolder(k.locks[GuardianLock], mustSelf(t), shown))
		k.unlock(GuardianLock)
		if got := read(t, d).Snapshot.Revision; got != want {
			t.Errorf("revision %d was shown, %d is committed: %d", shown, committed, got)
		}
		k.lock(GuardianLock)
	}
}

func TestOnlyAnEndIsShownBesideALivingGuardian(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.lock(GuardianLock)
	must(t, NoteHolder(k.locks[GuardianLock], mustSelf(t), 0))
	k.lock(OwnerLock)
	k.step(adopt(), reserve(), spawned())
	stopped := true
	k.owner(lifecycle.OutcomeRecord{At: 1, Launching: true}, lifecycle.OutcomeRecord{At: 2, Running: self(t)}, lifecycle.OutcomeRecord{Stopped: &stopped})
	long := time.Now().Add(-time.Hour)
	outcome := filepath.Join(d.Path(), OutcomeFile)
	must(t, os.Chtimes(outcome, long, long))
	if v := read(t, d); v.Snapshot.State != lifecycle.Starting || v.Recheck != 0 {
		t.Errorf("a stop: %s, %v", v.Snapshot.State, v.Recheck)
	}
	k.owner(lifecycle.OutcomeRecord{Exit: &lifecycle.ExitStatus{Code: 4, At: 3}})
	if v := read(t, d); v.Snapshot.State != lifecycle.Starting || v.Recheck <= 0 {
		t.Errorf("an end of just now: %s, %v", v.Snapshot.State, v.Recheck)
	}
	for _, at := range []time.Time{long, time.Now().Add(time.Hour)} {
		must(t, os.Chtimes(outcome, at, at))
		if v := read(t, d); v.Snapshot.State != lifecycle.Exited || v.Recheck != 0 {
			t.Errorf("an end recorded at %v: %s, %v", at, v.Snapshot.State, v.Recheck)
		}
	}
}

func TestStateIsFoldedOnlyWhileNoGuardianLives(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.lock(GuardianLock)
	must(t, NoteHolder(k.locks[GuardianLock], mustSelf(t), 0))
	k.step(adopt(), reserve())
	v := read(t, d)
	if v.Snapshot.State != lifecycle.Reserved || !v.GuardianLive || v.Guardian != mustSelf(t) || v.OwnerLive {
		t.Errorf("with a guardian: %+v", v)
	}
	k.unlock(GuardianLock)
	v = read(t, d)
	if v.Snapshot.State != lifecycle.LaunchFailed || v.Snapshot.Record.Stage != "guardian" || v.GuardianLive {
		t.Errorf("without: %+v", v.Snapshot)
	}
	if diff := cmp.Diff(v, read(t, d)); diff != "" {
		t.Error("another reading shows something else", diff)
	}
	k.lock(OwnerLock)
	k.owner(lifecycle.OutcomeRecord{At: 1, Launching: true}, lifecycle.OutcomeRecord{At: 2, Running: self(t)})
	if v = read(t, d); v.Snapshot.State != lifecycle.Running || !v.OwnerLive {
		t.Errorf("with an owner: %+v", v.Snapshot)
	}
	k.unlock(OwnerLock)
	if v = read(t, d); v.Snapshot.State != lifecycle.Lost || v.Snapshot.Record.Reason != "the owner died" {
		t.Errorf("without: %+v", v.Snapshot)
	}
	k.owner(lifecycle.OutcomeRecord{Exit: &lifecycle.ExitStatus{Code: 7, At: 3}}, lifecycle.OutcomeRecord{Drain: &lifecycle.DrainReport{State: lifecycle.DrainEOF}})
	if v = read(t, d); v.Snapshot.State != lifecycle.Ended || *v.Snapshot.ExitCode != 7 || !v.Snapshot.TerminalSessionEnded {
		t.Errorf("after the exit: %+v", v.Snapshot)
	}
	// None of this wrote anything.
	if entries, err := os.ReadDir(d.Path()); err != nil || len(entries) != 6 {
		t.Errorf("files %v, %v", entries, err)
	}
}

func TestRestartOfTheMachineIsSeenByTheBootID(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.step(adopt(), reserve(), spawned())
	before := self(t)
	before.Boot = "00000000-0000-0000-0000-000000000000"
	k.owner(lifecycle.OutcomeRecord{Launching: true}, lifecycle.OutcomeRecord{Running: before})
	if v := read(t, d); v.Snapshot.State != lifecycle.Lost || v.Snapshot.Record.Reason != "the machine was restarted" {
		t.Errorf("got %+v", v.Snapshot)
	}
}

func TestReceiptsAreRead(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.step(adopt())
	book := receipts.NewBook()
	id := newID()
	admit, err := book.Admit(id, "term", receipts.Fingerprint{1}, time.Now())
	must(t, err)
	complete, err := book.Complete(id, "ok", []byte("x"), time.Now())
	must(t, err)
	for _, record := range []receipts.Record{admit, complete} {
		data, err := EncodeEntry(Entry{Receipt: &record})
		must(t, err)
		must(t, k.journal.Append(data))
	}
	if diff := cmp.Diff(book.List(), read(t, d).Receipts); diff != "" {
		t.Error(diff)
	}
}

func TestDamageIsNamedAndOthersGoOn(t *testing.T) {
	r := newRoot(t)
	other := create(t, r, newID(), CreateOptions{})
	write := func(file string, data string) func(d *Dir) {
		return func(d *Dir) { must(t, os.WriteFile(filepath.Join(d.Path(), file), []byte(data), 0o600)) }
	}
	record := func(file string, data []byte) func(d *Dir) {
		return func(d *Dir) {
			j, err := journal.Create(d.File(), file)
			must(t, err)
			must(t, j.Append(data))
			must(t, j.Close())
		}
	}
	life := func(l lifecycle.Durable) []byte {
		data, err := protocol.Marshal(map[string]any{"life": l})
		must(t, err)
		return data
	}
	for what, c := range map[string]struct {
		file  string
		spoil func(d *Dir)
	}{
		"not a journal":    {JournalFile, write(JournalFile, "hello")},
		"not a record":     {JournalFile, record(JournalFile, []byte("hello"))},
		"unknown state":    {JournalFile, record(JournalFile, life(lifecycle.Durable{Version: 1, State: "asleep"}))},
		"other version":    {JournalFile, record(JournalFile, life(lifecycle.Durable{Version: 2, State: lifecycle.New}))},
		"other session":    {JournalFile, record(JournalFile, life(lifecycle.Durable{Version: 1, State: lifecycle.New, Session: "x"}))},
		"not an outcome":   {OutcomeFile, write(OutcomeFile, "hello")},
		"outcome's record": {OutcomeFile, record(OutcomeFile, []byte{0xff})},
		"output":           {OutputDir, write(OutputDir+"/0000000000000000.seg", "hello, hello, hello, hello, hello, hello")},
		"no guardian.lock": {GuardianLock, func(d *Dir) { must(t, os.Remove(filepath.Join(d.Path(), GuardianLock))) }},
		"no owner.lock":    {OwnerLock, func(d *Dir) { must(t, os.Remove(filepath.Join(d.Path(), OwnerLock))) }},
	} {
		d := create(t, r, newID(), CreateOptions{})
		c.spoil(d)
		var corrupt *CorruptError
		if v, err := d.Read(); !errors.As(err, &corrupt) || corrupt.File != c.file || corrupt.Session != d.ID() {
			t.Errorf("%s: %v, %v", what, v, err)
		}
	}
	read(t, other)
	if ids, err := r.List(); err != nil || len(ids) != 11 {
		t.Errorf("%d listed, %v", len(ids), err)
	}
}

// A reader that asks in the wrong order sees an owner that is gone and an outcome
// without its exit, or a launch without the guardian that is at it.
func TestReadersNeverSeeWhatNeverWas(t *testing.T) {
	r := newRoot(t)
	for range 15 {
		d := create(t, r, newID(), CreateOptions{})
		k := keep(t, d)
		k.lock(GuardianLock)
		k.step(adopt())
		k.unlock(GuardianLock)
		ctx, stop := context.WithCancel(bounded(t))
		seen := make(chan []lifecycle.State, 2)
		for range 2 {
			go func() { seen <- statesUntil(t, ctx, d) }()
		}
		k.lock(GuardianLock) // a guardian launches and dies
		k.step(adopt(), reserve())
		k.lock(OwnerLock)
		k.step(spawned())
		k.owner(lifecycle.OutcomeRecord{Launching: true})
		k.unlock(GuardianLock)
		k.owner(lifecycle.OutcomeRecord{Running: self(t)}) // the owner goes on alone
		k.owner(lifecycle.OutcomeRecord{Exit: &lifecycle.ExitStatus{Code: 1, At: 1}})
		k.owner(lifecycle.OutcomeRecord{Drain: &lifecycle.DrainReport{State: lifecycle.DrainEOF}})
		k.unlock(OwnerLock)
		if v := read(t, d); v.Snapshot.State != lifecycle.Ended {
			t.Errorf("at the end %+v", v.Snapshot)
		}
		stop()
		order := []lifecycle.State{lifecycle.New, lifecycle.Reserved, lifecycle.Starting, lifecycle.Running, lifecycle.Exited, lifecycle.Ended}
		for range 2 {
			at := 0
			for _, s := range <-seen {
				for at < len(order) && order[at] != s {
					at++
				}
				if at == len(order) {
					t.Errorf("%s was seen, or came back", s)
					break
				}
			}
		}
	}
}

func statesUntil(t *testing.T, ctx context.Context, d *Dir) []lifecycle.State {
	var seen []lifecycle.State
	for ctx.Err() == nil {
		v, err := d.Read()
		if err != nil {
			t.Error(err)
			break
		}
		if n := len(seen); n == 0 || seen[n-1] != v.Snapshot.State {
			seen = append(seen, v.Snapshot.State)
		}
	}
	return seen
}

func TestLockOfAGuardianIsHeldOnceAndSeen(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	c := spawn(t, "hold", d.Path(), GuardianLock, "note")
	id, held, err := d.Holder(GuardianLock)
	if !held || err != nil || id.PID != c.Process.Pid {
		t.Errorf("held %v by %+v, %v", held, id, err)
	}
	if f, ok, err := d.LockGuardian(); ok || err != nil || f != nil {
		t.Errorf("locked twice: %v, %v", ok, err)
	}
	c.kill()
	if id, held, err := d.Holder(GuardianLock); held || err != nil || id != (procs.Identity{}) {
		t.Errorf("after its death held %v by %+v, %v", held, id, err)
	}
	f, ok, err := d.LockGuardian()
	if !ok || err != nil {
		t.Fatalf("after its death: %v, %v", ok, err)
	}
	// The note is still the dead one's: it is not taken for the holder's.
	if id, held, err := d.Holder(GuardianLock); !held || err != nil || id != (procs.Identity{}) {
		t.Errorf("before the note held %v by %+v, %v", held, id, err)
	}
	must(t, NoteHolder(f, mustSelf(t), 0))
	if id, held, err := d.Holder(GuardianLock); !held || err != nil || id != mustSelf(t) {
		t.Errorf("held %v by %+v, %v", held, id, err)
	}
	f.Close()
	o, err := d.OpenOwnerLock()
	must(t, err)
	if _, held, err := d.Holder(OwnerLock); held || err != nil {
		t.Errorf("an opened owner.lock is held: %v, %v", held, err)
	}
	o.Close()
}

func mustSelf(t testing.TB) procs.Identity {
	t.Helper()
	id, err := procs.Self()
	must(t, err)
	return id
}

func TestPurgeTakesOnlyRetiredSessions(t *testing.T) {
	r := newRoot(t)
	id := newID()
	d := create(t, r, id, CreateOptions{Name: "n"})
	if err := r.Purge(d.ID()); !errors.Is(err, ErrNotRetired) {
		t.Errorf("a new session: %v", err)
	}
	retire(t, d)
	must(t, os.Mkdir(filepath.Join(d.Path(), "surprise"), 0))
	// A retired session gives its name to whoever asks, and keeps nothing of it.
	next := create(t, r, newID(), CreateOptions{Name: "n"})
	must(t, r.Purge(d.ID()))
	if got, err := r.Resolve("n"); got != next.ID() || err != nil {
		t.Errorf("the name is now %q, %v", got, err)
	}
	for call, err := range map[string]error{
		"Purge": r.Purge(d.ID()), "Open": opened1(r.Open(d.ID())), "Read": justError(d.Read()),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s after the purge gives %v", call, err)
		}
	}
	retire(t, next)
	must(t, r.Purge(next.ID()))
	for _, dir := range []string{"sessions", "names"} {
		if left, err := os.ReadDir(filepath.Join(r.Path(), dir)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func justError(_ *View, err error) error { return err }
