package procs

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseOnExecFrom marks every open descriptor from fd on close-on-exec. They
// stay open here: the runtime's own are among them.
func CloseOnExecFrom(fd int) error {
	if unix.CloseRange(uint(fd), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	return closeOnExecWalk(fd)
}

// closeOnExecWalk does it for kernels before 5.11 and for filters that refuse
// close_range.
func closeOnExecWalk(from int) error {
	names, err := dirNames("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("cannot mark descriptors close-on-exec: %w", err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < from {
			continue
		}
		// The listing's own descriptor is gone by now: EBADF.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && err != unix.EBADF {
			return fmt.Errorf("cannot mark descriptor %d close-on-exec: %w", fd, err)
		}
	}
	return nil
}

func dirNames(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// withFD runs fn with f's descriptor, which stays open meanwhile and keeps its
// blocking mode.
func withFD(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Above gives a duplicate of fd, closed on exec, for what is to be run by its number
// (/proc/self/fd/N) with files laid out for the new process: neither they nor the
// copies that syscall.ForkExec makes of them meanwhile, above the highest of them,
// take its place.
func Above(fd uintptr, files []uintptr) (int, error) {
	least := len(files)
	for _, f := range files {
		least = max(least, int(f))
	}
	dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, least+len(files)+2)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate descriptor %d: %w", fd, err)
	}
	return dup, nil
}
