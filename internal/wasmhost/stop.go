package wasmhost

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	wsys "github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// ending is why a run ends before the guest wants it to.
type ending struct {
	reason Reason
	code   int
	detail string
}

// stopper ends a guest: by a panic with an exit error out of the host call it is in or makes next, which unwinds it.
// A gentle stop does that only where the guest waits or talks, so that it can finish what it does to its files.
type stopper struct {
	first   atomic.Pointer[ending] // the first reason stays
	hard    atomic.Bool
	stopped chan struct{} // closed with the first reason
	once    sync.Once
	wake    int // an eventfd that stays readable once stopped: every wait polls it

	calls atomic.Uint64 // host calls entered and left: odd while the guest is in one
}

func newStopper() (*stopper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &stopper{wake: fd, stopped: make(chan struct{})}, nil
}

func (s *stopper) close() { _ = unix.Close(s.wake) }

// stop asks the guest to end. A later hard stop speeds up an earlier gentle one and keeps its reason.
func (s *stopper) stop(e ending, hard bool) {
	s.first.CompareAndSwap(nil, &e)
	if hard {
		s.hard.Store(true)
	}
	s.once.Do(func() {
		_, _ = unix.Write(s.wake, binary.NativeEndian.AppendUint64(nil, 1))
		close(s.stopped)
	})
}

// unwind ends the guest from inside a host call.
func (s *stopper) unwind() {
	panic(wsys.NewExitError(uint32(s.first.Load().code)))
}

// end is a stop that a host call decides by itself.
func (s *stopper) end(e ending) {
	s.stop(e, true)
	s.unwind()
}

// checkHard belongs at the start of every host call.
func (s *stopper) checkHard() {
	if s.hard.Load() {
		s.unwind()
	}
}

// checkAny belongs where the guest waits or talks.
func (s *stopper) checkAny() {
	if s.first.Load() != nil {
		s.unwind()
	}
}

const forever = time.Duration(1<<63 - 1)

// wait polls until one of fds is ready or the time is over, and unwinds the guest when it is stopped meanwhile. It
// says whether any is ready; Revents are set.
func (s *stopper) wait(fds []unix.PollFd, timeout time.Duration) bool {
	s.checkAny()
	all := append(fds, unix.PollFd{Fd: int32(s.wake), Events: unix.POLLIN})
	until := time.Now().Add(min(timeout, forever/2))
	for {
		var ts *unix.Timespec
		if timeout < forever/2 {
			t := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
			ts = &t
		}
		n, err := unix.Ppoll(all, ts, nil)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return false
		}
		if all[len(fds)].Revents != 0 {
			s.unwind()
		}
		copy(fds, all)
		return n > 0
	}
}

// ready is a wait of no time for one descriptor, which no stop interrupts.
func ready(fd int, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && n > 0
}
