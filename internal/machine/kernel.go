package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// PidFDs opens the calling process by a pidfd and sends it the signal that does
// nothing. info: the kernel also tells about a process by its pidfd
// (PIDFD_GET_INFO).
func PidFDs() (info bool, err error) {
	self, err := procs.Self()
	if err != nil {
		return false, err
	}
	p, err := procs.Open(self)
	if err != nil {
		return false, err
	}
	defer p.Close()
	if err := p.Signal(syscall.Signal(0)); err != nil {
		return false, err
	}
	err = p.Control(func(fd int) error {
		return unix.IoctlPidfdInfo(fd, &unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID})
	})
	return err == nil, nil
}

// CloseRange marks one descriptor close-on-exec with the call that marks many.
func CloseRange() error {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return err
	}
	if err := unix.CloseRange(uint(fd), uint(fd), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err == nil && flags&unix.FD_CLOEXEC == 0 {
		err = errors.New("it has no effect")
	}
	return err
}

// SealedMemory makes a sealed file in memory, reads it back, and fails to change it.
func SealedMemory() error {
	const text = "what to launch"
	f, err := procs.SealedMemfd("mur-doctor", []byte(text))
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := procs.ReadSealed(f, len(text))
	switch {
	case err != nil:
		return err
	case string(got) != text:
		return errors.New("it does not hold what was written")
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		return errors.New("it can be written after it was sealed")
	}
	return nil
}

// Subreaper becomes the parent of orphans and goes back to what the process was.
func Subreaper() error {
	before, err := isSubreaper()
	if err != nil {
		return err
	}
	if err := procs.BecomeSubreaper(); err != nil {
		return err
	}
	is, err := isSubreaper()
	if before == 0 {
		err = errors.Join(err, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
	}
	if err == nil && is == 0 {
		err = errors.New("it has no effect")
	}
	return err
}

func isSubreaper() (int32, error) {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return is, err
}

// ChildrenFiles reads the list of children that the kernel keeps for a thread.
func ChildrenFiles() error {
	_, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	return err
}

// Inotify makes one inotify instance and gives it back. limit is how many a user
// may have, 0 if that is not known.
func Inotify() (limit int, err error) {
	limit, _ = number("/proc/sys/fs/inotify/max_user_instances")
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return limit, err
}

// Landlock asks which version of landlock the kernel speaks.
func Landlock() (version int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Terminals opens a terminal and gives it back. used and limit count those of the
// whole machine; limit is 0 if that is not known.
func Terminals() (used, limit int, err error) {
	used, err1 := number("/proc/sys/kernel/pty/nr")
	limit, err2 := number("/proc/sys/kernel/pty/max")
	if err1 != nil || err2 != nil {
		used, limit = 0, 0
	}
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 80, Rows: 24})
	if err != nil {
		return used, limit, err
	}
	return used, limit, errors.Join(master.Close(), slave.Close())
}

// Descriptors is how many files a process may have open: the hard limit, which
// programs in Go raise the other one to.
func Descriptors() (uint64, error) {
	var lim unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	return lim.Max, err
}

func number(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
