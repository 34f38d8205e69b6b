package owner

import (
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// retryEvery is how often a commit that failed is tried again.
const retryEvery = time.Second

// ledger is the outcome file. What it was given is either durable or pending,
// and pending never means forgotten.
type ledger struct {
	dir     *os.File
	file    *journal.File // nil before the first commit
	durable lifecycle.Outcome
	pending []lifecycle.OutcomeRecord
	cause   error // of the failure that made them pending
	nextTry time.Time
}

// newLedger refuses a directory that has an outcome already: one launch per
// session, and the file that tells of it is never overwritten.
func newLedger(dir *os.File) (*ledger, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), sessiondir.OutcomeFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		err = unix.EEXIST
	}
	if err != unix.ENOENT {
		return nil, fmt.Errorf("cannot begin the outcome: %w", err)
	}
	return &ledger{dir: dir}, nil
}

// commit makes r durable; otherwise it is pending and the cause is kept.
func (l *ledger) commit(r lifecycle.OutcomeRecord) error {
	if r.At == 0 {
		r.At = time.Now().UnixNano()
	}
	l.pending = append(l.pending, r)
	return l.flush()
}

// flush tries to make everything pending durable.
func (l *ledger) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	l.cause = l.write()
	// What nobody can ever read need not be durable.
	if l.cause != nil && !sessiondir.Removed(l.dir) {
		l.nextTry = time.Now().Add(retryEvery)
		return l.cause
	}
	l.cause = nil
	for _, r := range l.pending {
		l.durable.Add(r)
	}
	l.pending = nil
	return nil
}

// write appends, or where that is not possible begins a new file: after a failed
// sync the old one cannot be trusted (the kernel has dropped the pages).
func (l *ledger) write() error {
	long := l.file != nil && l.file.ShouldCompact()
	if l.file != nil && !long && l.append() == nil {
		return nil
	}
	err := l.rewrite()
	if err != nil && long {
		return l.append()
	}
	return err
}

func (l *ledger) append() error {
	records, err := encode(l.pending)
	if err != nil {
		return err
	}
	// An owner writes little and all of it matters: the reserve is for this.
	return l.file.AppendReserved(records...)
}

func (l *ledger) rewrite() error {
	records, err := encode(condense(l.known()))
	if err != nil {
		return err
	}
	file, err := journal.Rewrite(l.dir, sessiondir.OutcomeFile, records)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	return nil
}

// known is what the owner knows, durable or not.
func (l *ledger) known() lifecycle.Outcome {
	sum := l.durable
	sum.Applied, sum.Delivered = slices.Clip(sum.Applied), slices.Clip(sum.Delivered)
	for _, r := range l.pending {
		sum.Add(r)
	}
	return sum
}

// settled tells whether everything is durable.
func (l *ledger) settled() bool { return len(l.pending) == 0 }

// trouble says why not.
func (l *ledger) trouble() string {
	if l.settled() || l.cause == nil {
		return ""
	}
	return l.cause.Error()
}

func encode(records []lifecycle.OutcomeRecord) ([][]byte, error) {
	out := make([][]byte, 0, len(records))
	for _, r := range records {
		b, err := protocol.Marshal(r)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// condense returns the records whose sum is o: the first two keep their times, the
// rest has none that matters.
func condense(o lifecycle.Outcome) []lifecycle.OutcomeRecord {
	now := time.Now().UnixNano()
	records := []lifecycle.OutcomeRecord{{At: now, Launching: o.Launching, Cgroup: o.Cgroup, Failure: o.Failure}}
	if o.Running != nil {
		records = append(records, lifecycle.OutcomeRecord{At: o.RunningAt, Running: o.Running})
	}
	for _, id := range o.Applied {
		records = append(records, lifecycle.OutcomeRecord{At: now, Applied: id, Delivered: slices.Contains(o.Delivered, id)})
	}
	stopped := o.Stopped
	return append(records, lifecycle.OutcomeRecord{
		Grace: o.Grace, CleanupRequested: o.CleanupRequested,
		At: now, Report: o.Report, Stopped: &stopped, Exit: o.Exit, Drain: o.Drain,
		Consumed: o.Consumed, Childless: o.Childless,
	})
}
