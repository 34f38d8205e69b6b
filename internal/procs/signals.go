package procs

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastSignal is the kernel's _NSIG on the machines that this package supports.
const lastSignal = 64

// sigaction is the kernel's struct sigaction, alike on amd64 and arm64.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const sigIgn = 1

// ResetSignals puts every signal that this process ignores back to its default
// action, because ignored signals stay ignored in everything that it starts.
// It is called first thing in main, followed by signal.Notify for the signals
// that must not end the process: signal.Reset and signal.Stop would bring back
// what the runtime found at its start, and signal.Ignore is inherited.
func ResetSignals() error {
	for s := 1; s <= lastSignal; s++ {
		var old, dfl sigaction
		if err := rtSigaction(s, nil, &old); err != nil {
			return fmt.Errorf("cannot read the action of signal %d: %w", s, err)
		}
		if old.handler != sigIgn {
			continue
		}
		if err := rtSigaction(s, &dfl, nil); err != nil {
			return fmt.Errorf("cannot reset signal %d: %w", s, err)
		}
	}
	return nil
}

// rtSigaction passes by the runtime, which has no handler on an ignored signal
// and so does not notice.
func rtSigaction(sig int, act, old *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(act.mask), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ClearMask locks the calling goroutine to its thread and unblocks every signal
// there. A process started by this goroutine afterwards has an empty mask; the
// mask is inherited from whoever started us, and signal.Notify leaves it.
func ClearMask() error {
	runtime.LockOSThread()
	var empty unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &empty, nil); err != nil {
		return fmt.Errorf("cannot clear the signal mask: %w", err)
	}
	return nil
}

// Undumpable hides this process's memory and descriptors from other processes of
// its user: no ptrace, no pidfd_getfd, no /proc/PID/fd.
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot make the process undumpable: %w", err)
	}
	return nil
}

// BecomeSubreaper makes this process the parent of every orphan among its
// descendants that are born from now on.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become subreaper: %w", err)
	}
	return nil
}
