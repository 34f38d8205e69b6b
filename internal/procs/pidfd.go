package procs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PidFD holds one process: what it does reaches that process or nobody. It may
// be used by several goroutines.
type PidFD struct {
	f         *os.File
	closed    chan struct{}
	closeOnce sync.Once
}

// Open opens the process that id names; ErrGone if it is no more. An unreaped
// zombie can still be opened.
func Open(id Identity) (*PidFD, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if boot != id.Boot || id.PID <= 0 {
		return nil, fmt.Errorf("cannot open process %d: %w", id.PID, ErrGone)
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err == unix.ESRCH {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open process %d: %w", id.PID, err)
	}
	// Only now: the pidfd pins whatever process it names, so a start time read
	// after it belongs to the same one, or to nobody that it could reach.
	st, err := readStat(id.PID)
	if err == nil && st.start != id.Start {
		err = ErrGone
	}
	if errors.Is(err, ErrGone) && running(fd) && st.start == 0 {
		err = errors.New("/proc does not show it")
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot open process %d: %w", id.PID, err)
	}
	return newPidFD(fd), nil
}

// Adopt takes over a pidfd that was got at clone or was inherited.
func Adopt(fd int) (*PidFD, error) {
	// Without O_NONBLOCK the runtime would not poll it.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("cannot adopt a pidfd: %w", err)
	}
	return newPidFD(fd), nil
}

func newPidFD(fd int) *PidFD {
	return &PidFD{f: os.NewFile(uintptr(fd), "pidfd"), closed: make(chan struct{})}
}

// running asks once more whenever a signal came in between, as the runtime sends
// itself many: any other answer but this one's own would declare a process dead.
func running(fd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != unix.EINTR {
			return n == 0 && err == nil
		}
	}
}

// Signal sends sig. A zombie takes it without effect; ErrGone after the reap.
func (p *PidFD) Signal(sig syscall.Signal) error {
	err := withFD(p.f, func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if err == unix.ESRCH {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("cannot send %s: %w", unix.SignalName(sig), err)
	}
	return nil
}

// Exited tells without waiting whether the process has ended.
func (p *PidFD) Exited() bool {
	done := false
	err := withFD(p.f, func(fd int) error {
		done = !running(fd)
		return nil
	})
	return err == nil && done
}

// Wait returns nil once the process, any process and not only a child, has ended.
// It costs no thread and reaps nothing. It ends early with ctx's error, or with
// os.ErrClosed after Close.
func (p *PidFD) Wait(ctx context.Context) error {
	// A descriptor of its own has a deadline of its own: the end of one Wait
	// leaves another one alone.
	var own *os.File
	err := withFD(p.f, func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			own = os.NewFile(uintptr(dup), "pidfd")
		}
		return err
	})
	if err != nil {
		return p.waitError(ctx, err)
	}
	defer own.Close()
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
		case <-p.closed:
		case <-done:
			return
		}
		own.SetReadDeadline(time.Unix(1, 0))
	})
	err = readable(own)
	close(done)
	watch.Wait()
	return p.waitError(ctx, err)
}

// waitError says why a Wait ended: the deadline and the poller's own errors only
// show that somebody wanted it to.
func (p *PidFD) waitError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-p.closed:
		err = os.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	default:
	}
	return fmt.Errorf("cannot wait for a process: %w", err)
}

// readable waits in the runtime's poller until the process has ended.
func readable(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool { return !running(int(fd)) })
}

// Control runs fn with the descriptor, for waitid(P_PIDFD) and its like.
func (p *PidFD) Control(fn func(fd int) error) error { return withFD(p.f, fn) }

// Close gives the descriptor back and ends every Wait.
func (p *PidFD) Close() error {
	p.closeOnce.Do(func() { close(p.closed) })
	return p.f.Close()
}
