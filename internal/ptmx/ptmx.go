// Package ptmx opens and operates Linux pseudo terminals.
//
// It owns nothing after a call has returned: descriptors belong to the caller,
// and a terminal lives as long as somebody holds its master. A kill of the
// caller loses nothing that the kernel holds in the terminal as long as another
// process holds a duplicate of the master.
//
// Open makes the master nonblocking and known to the runtime's poller, so that
// deadlines and Close interrupt a Read. O_NONBLOCK belongs to the open file
// description, which all duplicates of a master share, also those in other
// processes. The slave is left blocking, since the target inherits it.
//
// The other functions take plain descriptor numbers and change no file status
// flag. To reach the number of an *os.File use Control. File.Fd keeps a
// nonblocking file nonblocking only if it was nonblocking when os.NewFile saw it
// (as Open's master was); a file that package os itself made nonblocking turns
// blocking for ever at the first call of Fd, in every process that shares it.
//
// The package never makes a terminal anybody's controlling terminal.
package ptmx

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Size is a terminal's size in character cells.
type Size struct {
	Cols, Rows uint16
}

// Open makes a new terminal of the given size. Both ends are close-on-exec.
func Open(size Size) (master, slave *os.File, err error) {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open a terminal: %w", err)
	}
	s, err := openSlave(m)
	if err == nil {
		if err = SetSize(m, size); err != nil {
			unix.Close(s)
		}
	}
	if err != nil {
		unix.Close(m)
		return nil, nil, err
	}
	return os.NewFile(uintptr(m), "ptmx"), os.NewFile(uintptr(s), "pts"), nil
}

// openSlave asks the master itself for its slave: a path under /dev/pts may
// belong to another mount of devpts (ioctl_tty(2), TIOCGPTPEER).
func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("cannot unlock a terminal: %w", err)
	}
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return -1, fmt.Errorf("cannot open a terminal's slave: %w", errno)
	}
	return int(fd), nil
}

// Control calls fn with f's descriptor, which stays open while fn runs. It keeps
// the file's blocking mode, whatever it is.
func Control(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// SetSize sets the size; the foreground group gets SIGWINCH only if it changed.
func SetSize(fd int, size Size) error {
	ws := unix.Winsize{Col: size.Cols, Row: size.Rows}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &ws); err != nil {
		return fmt.Errorf("cannot set the terminal's size: %w", err)
	}
	return nil
}

// GetSize tells the terminal's size.
func GetSize(fd int) (Size, error) {
	ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return Size{}, fmt.Errorf("cannot read the terminal's size: %w", err)
	}
	return Size{Cols: ws.Col, Rows: ws.Row}, nil
}

// GetTermios reads the line settings. The master shows those of its slave.
func GetTermios(fd int) (unix.Termios, error) {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return unix.Termios{}, fmt.Errorf("cannot read the terminal's settings: %w", err)
	}
	return *t, nil
}

// SetTermios sets the line settings at once, without waiting for output and
// without discarding input.
func SetTermios(fd int, t unix.Termios) error {
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &t); err != nil {
		return fmt.Errorf("cannot change the terminal's settings: %w", err)
	}
	return nil
}

// ForegroundGroup tells the foreground process group, 0 if there is none. Asked
// of the master it needs no controlling terminal.
func ForegroundGroup(fd int) (int, error) {
	pgid, err := unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
	if err != nil {
		return 0, fmt.Errorf("cannot read the terminal's foreground group: %w", err)
	}
	return int(pgid), nil
}

// Readable asks without waiting whether a read would give bytes (in), and
// whether every slave is closed (hup), which need not be final: a slave may be
// opened again. Polling a master also moves what the line discipline still
// queues to where it can be read, so that after the writer's end an answer
// without in proves that all its output was taken.
func Readable(fd int) (in, hup bool, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, false, fmt.Errorf("cannot poll the terminal: %w", err)
		}
		break
	}
	if p[0].Revents&unix.POLLNVAL != 0 {
		return false, false, fmt.Errorf("cannot poll the terminal: %w", unix.EBADF)
	}
	return p[0].Revents&unix.POLLIN != 0, p[0].Revents&unix.POLLHUP != 0, nil
}
