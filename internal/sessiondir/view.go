package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// readRounds bounds how often Read begins again because guardians came and went
// while it read.
const readRounds = 16

// keepsUp is how long a living guardian may take to commit what the owner has
// recorded. One that takes longer is stopped, or hangs, or has no disk.
const keepsUp = 2 * time.Second

// View is what the files of a session and its locks say, without a guardian.
type View struct {
	// Snapshot is the last one committed while a guardian lives and keeps up, else
	// what it, or a recovering guardian, would commit.
	Snapshot lifecycle.Durable
	// Recheck is how long the guardian still has to commit what the owner recorded:
	// read again then, also if nothing happens. 0: it has.
	Recheck time.Duration
	// Committed is the revision of the last snapshot in the journal; a Snapshot
	// that is newer was folded from evidence that no guardian has committed yet.
	Committed uint64
	Receipts  []receipts.Receipt

	GuardianLive bool
	Guardian     procs.Identity // zero: not noted yet
	OwnerLive    bool
	Owner        procs.Identity // zero: not noted yet

	OutputStart int64 // first offset still kept
	OutputEnd   int64 // offset after the last byte captured
}

// Read looks at a session. A damaged file is a *CorruptError, a purged session
// ErrNotFound.
//
// Guardian and owner write meanwhile, so the order matters. While a guardian
// lives and keeps up, the journal alone is the truth, and every state of it is one
// that was. What the owner recorded and the guardian does not commit for two
// seconds is shown without it. Otherwise the state is folded from what a dead
// guardian left, and then:
//
//   - guardian.lock is asked before the journal is read: free, so the journal is
//     complete. It is asked again at the end, and the journal read again, so that
//     no guardian lived, not even for a moment, between the journal and the rest;
//     else everything is read again.
//   - owner.lock is asked before the outcome is read: free, so the outcome is
//     complete, and no exit is missed that would turn ended into lost. Held, the
//     outcome may already say more than the owner had said when the lock was asked,
//     which is as good: the next Read sees the rest.
//   - That the session was not purged is checked last: a purge takes the
//     directory's name before it takes the first file.
func (d *Dir) Read() (*View, error) {
	v, err := d.read()
	if gone := d.checkPresent(); gone != nil {
		return nil, gone
	}
	return v, err
}

func (d *Dir) read() (*View, error) {
	for range readRounds {
		v := &View{}
		var err error
		if v.Guardian, v.GuardianLive, err = d.Holder(GuardianLock); err != nil {
			return nil, err
		}
		book, err := d.readJournal(v)
		if err != nil {
			return nil, err
		}
		v.Receipts = book.List()
		outcome, err := d.readEvidence(v)
		if err != nil {
			return nil, err
		}
		if v.GuardianLive {
			return v, d.overtake(v, outcome)
		}
		if same, err := d.undisturbed(v); err != nil {
			return nil, err
		} else if same {
			return v, d.fold(v, outcome)
		}
	}
	return nil, fmt.Errorf("cannot read session %s: its guardians come and go too fast", d.boot.Session)
}

// readEvidence reads what owner and capture have left, the lock first.
func (d *Dir) readEvidence(v *View) (outcome *lifecycle.Outcome, err error) {
	if v.Owner, v.OwnerLive, err = d.Holder(OwnerLock); err != nil {
		return nil, err
	}
	if outcome, err = d.readOutcome(); err != nil {
		return nil, err
	}
	v.OutputStart, v.OutputEnd, err = d.bounds()
	return outcome, err
}

// undisturbed tells whether there still is no guardian, and was none since v's
// journal was read: the first thing that each commits is that it is there.
func (d *Dir) undisturbed(v *View) (bool, error) {
	_, live, err := d.Holder(GuardianLock)
	if err != nil || live {
		return false, err
	}
	var again View
	book, err := d.readJournal(&again)
	if err != nil {
		return false, err
	}
	a, b := v.Snapshot, again.Snapshot
	return a.Generation == b.Generation && a.Revision == b.Revision && len(book.List()) == len(v.Receipts), nil
}

// readJournal sets v's snapshot to the last one committed. A session whose journal
// was not begun yet is new.
func (d *Dir) readJournal(v *View) (*receipts.Book, error) {
	v.Snapshot = lifecycle.Durable{
		Version: lifecycle.SnapshotVersion, Session: string(d.boot.Session), Name: d.boot.Name,
		State: lifecycle.New, Times: lifecycle.Times{Created: d.boot.Created},
	}
	book := receipts.NewBook()
	records, err := d.records(JournalFile)
	if err != nil {
		return nil, err
	}
	for i, data := range records {
		e, err := DecodeEntry(data)
		if err == nil && e.Life != nil && e.Life.Session != string(d.boot.Session) {
			err = fmt.Errorf("it is that of session %s", e.Life.Session)
		}
		if err == nil && e.Receipt != nil {
			err = book.Apply(*e.Receipt)
		}
		if err != nil {
			return nil, d.corrupt(JournalFile, fmt.Errorf("record %d: %w", i, err))
		}
		if e.Life != nil {
			v.Snapshot = *e.Life
		}
	}
	v.Committed = v.Snapshot.Revision
	return book, nil
}

// readOutcome adds up what the owner recorded: nil if it recorded nothing.
func (d *Dir) readOutcome() (*lifecycle.Outcome, error) {
	records, err := d.records(OutcomeFile)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	var sum lifecycle.Outcome
	for i, data := range records {
		var r lifecycle.OutcomeRecord
		if err := protocol.Unmarshal(data, &r); err != nil {
			return nil, d.corrupt(OutcomeFile, fmt.Errorf("record %d: %w", i, err))
		}
		sum.Add(r)
	}
	return &sum, nil
}

// records reads a file of journal's format; one that is missing or of length 0
// has none.
func (d *Dir) records(name string) ([][]byte, error) {
	f, err := openBelow(d.dir, name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// It may just be being made, and have its temporary's name too.
	if err := checkOurs(f, unix.S_IFREG); err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		return nil, err
	}
	records, err := journal.Read(d.dir, name)
	var damaged *journal.CorruptError
	if errors.As(err, &damaged) {
		return nil, d.corrupt(name, damaged)
	}
	return records, err
}

func (d *Dir) corrupt(file string, err error) error {
	return &CorruptError{Session: d.boot.Session, File: file, Err: err}
}

func (d *Dir) bounds() (start, end int64, err error) {
	dir, err := d.Output()
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	r, err := output.OpenReader(dir)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	start, end, err = r.Bounds()
	if errors.Is(err, output.ErrDamaged) {
		err = d.corrupt(OutputDir, err)
	}
	return start, end, err
}

// fold brings v's snapshot up to the evidence.
func (d *Dir) fold(v *View, outcome *lifecycle.Outcome) error {
	same, err := d.sameBoot(v, outcome)
	if err != nil {
		return err
	}
	now, err := d.lastChange()
	if err != nil {
		return err
	}
	v.Snapshot, _ = lifecycle.Fold(v.Snapshot, lifecycle.Evidence{
		Outcome: outcome, OwnerHeld: v.OwnerLive, SameBoot: same,
		Output: v.OutputEnd, Now: now,
	})
	// The number of what a guardian has shown and could not commit is not given again.
	shown, err := d.lastNote(GuardianLock)
	if err == nil && shown.mark > v.Committed {
		v.Snapshot.Revision = max(v.Snapshot.Revision, shown.mark+1)
	}
	return err
}

// overtake brings v's snapshot up to the end that the owner has recorded, when the
// guardian that lives has had its time to do so. Only an end: nothing comes after it
// that could give its number to another state. A clock that was set back ends that
// time.
func (d *Dir) overtake(v *View, outcome *lifecycle.Outcome) error {
	if outcome == nil || outcome.Exit == nil && outcome.Failure == nil {
		return nil
	}
	recorded, err := d.changed(OutcomeFile)
	if err != nil {
		return err
	}
	ahead, _ := lifecycle.Advance(v.Snapshot, *outcome, recorded)
	if ahead.Revision == v.Snapshot.Revision {
		return nil
	}
	if age := time.Since(time.Unix(0, recorded)); 0 <= age && age < keepsUp {
		v.Recheck = keepsUp - age
		return nil
	}
	v.Snapshot = ahead
	return nil
}

// changed is the time of the last change of a file's content, in nanoseconds since
// 1970; 0 if there is none.
func (d *Dir) changed(name string) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look at %s: %w", name, err)
	}
	return st.Mtim.Nano(), nil
}

// lastChange is the time of what only a fold can know, such as the end of a lost
// session: the last sign of life there is, so that two readers see the same.
func (d *Dir) lastChange() (int64, error) {
	last := d.boot.Created
	for _, name := range []string{JournalFile, OutcomeFile} {
		at, err := d.changed(name)
		if err != nil {
			return 0, err
		}
		last = max(last, at)
	}
	return last, nil
}

// sameBoot tells whether the machine was not restarted since the session's
// processes lived. The target's identity is durable; what the locks say is the
// next best. A lock that is held needs no further proof.
func (d *Dir) sameBoot(v *View, outcome *lifecycle.Outcome) (bool, error) {
	if v.OwnerLive {
		return true, nil
	}
	boot, err := procs.BootID()
	if err != nil {
		return false, err
	}
	if outcome != nil && outcome.Running != nil {
		return outcome.Running.Boot == boot, nil
	}
	if v.Snapshot.Target != nil {
		return v.Snapshot.Target.Boot == boot, nil
	}
	for _, lock := range []string{OwnerLock, GuardianLock} {
		last, err := d.lastNote(lock)
		if err != nil {
			return false, err
		}
		if last.id.Boot != "" {
			return last.id.Boot == boot, nil
		}
	}
	return true, nil
}
