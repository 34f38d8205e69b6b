package journal

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Append makes the records durable as one commit. It leaves the reserve alone.
func (j *File) Append(records ...[]byte) error { return j.append(reserve, records) }

// AppendReserved is Append for what must be possible on a full disk too: it may
// use up the reserve.
func (j *File) AppendReserved(records ...[]byte) error { return j.append(0, records) }

func (j *File) append(keep int64, records [][]byte) error {
	if len(records) == 0 {
		return nil
	}
	if err := j.alive(); err != nil {
		return err
	}
	commit, err := appendCommit(j.buf[:0], j.id, j.end, records)
	if err != nil {
		return fmt.Errorf("cannot append to %s: %w", j.name, err)
	}
	if j.buf = commit; cap(j.buf) > step {
		j.buf = nil
	}
	full, err := j.room(int64(len(commit)), keep)
	if err != nil {
		return j.poison(err)
	}
	if full != nil {
		return fmt.Errorf("cannot append to %s: %w", j.name, full)
	}
	if _, err := j.f.WriteAt(commit, j.end); err != nil {
		return j.poison(err)
	}
	if err := fdatasync(j.f); err != nil {
		return j.poison(err)
	}
	j.end += int64(len(commit))
	return nil
}

// Roomy tells whether a commit of size bytes would fit and leave the reserve alone;
// the space is allocated.
func (j *File) Roomy(size int64) bool {
	full, err := j.room(size, reserve)
	return full == nil && err == nil
}

// alive fails when the file is poisoned, or has lost its name to another one (a
// Rewrite that failed after its rename): what is appended here nobody would see.
func (j *File) alive() error {
	var st unix.Stat_t
	if j.cause != nil {
		return j.poison(j.cause)
	}
	if err := unix.Fstat(int(j.f.Fd()), &st); err != nil {
		return j.poison(err)
	}
	if st.Nlink == 0 {
		return j.poison(errors.New("its file was replaced or removed"))
	}
	return nil
}

func (j *File) poison(cause error) error {
	j.cause = cause
	return fmt.Errorf("cannot append to %s: %w: %w", j.name, ErrPoisoned, cause)
}

// room sees to it that size bytes and the reserve behind them are allocated.
// Where the disk does not give that much, full says whether they fit at least
// with keep bytes behind them. err is any other failure.
func (j *File) room(size, keep int64) (full, err error) {
	for j.end+size+reserve > j.allocated && full == nil {
		full = j.grow()
		if full != nil && !errors.Is(full, ErrFull) {
			return nil, full
		}
	}
	if j.end+size+keep <= j.allocated {
		return nil, nil
	}
	return full, nil
}

// grow writes zeros up to the next step. What a full disk still gave is kept.
func (j *File) grow() error {
	if j.allocated >= maxFile {
		return fullOr(unix.EFBIG)
	}
	n, err := j.f.WriteAt(make([]byte, step-j.allocated%step), j.allocated)
	j.allocated += int64(n)
	return fullOr(err)
}

// fullOr adds ErrFull to the errors that mean it.
func fullOr(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// ShouldCompact tells whether the journal is worth a Rewrite: it is over 1 MiB
// and over twice as long as after the last one.
func (j *File) ShouldCompact() bool { return j.end > compactFrom && j.end > 2*j.base }

// Close closes the file. There is nothing left to make durable.
func (j *File) Close() error { return j.f.Close() }
