package procs

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lock tries to take the write lock on the whole of f, which must be open for
// writing; false: somebody else has it. The lock belongs to the open file
// description: whoever inherits the descriptor holds it too, and it is free when
// the last duplicate is closed, by death at the latest.
func Lock(f *os.File) (ok bool, err error) {
	err = ofdLock(f, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot lock %s: %w", f.Name(), err)
	}
	return true, nil
}

// Locked tells whether another open file description holds a lock on f. It takes
// nothing, not for a moment, and needs only read access. Asked through the
// holder's own descriptor the answer is false.
func Locked(f *os.File) (bool, error) {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := ofdLock(f, unix.F_OFD_GETLK, &lk); err != nil {
		return false, fmt.Errorf("cannot ask for the lock of %s: %w", f.Name(), err)
	}
	return lk.Type != unix.F_UNLCK, nil
}

// Unlock gives the lock back for every holder of this open file description.
func Unlock(f *os.File) error {
	err := ofdLock(f, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart})
	if err != nil {
		return fmt.Errorf("cannot unlock %s: %w", f.Name(), err)
	}
	return nil
}

func ofdLock(f *os.File, cmd int, lk *unix.Flock_t) error {
	return withFD(f, func(fd int) error { return unix.FcntlFlock(uintptr(fd), cmd, lk) })
}
