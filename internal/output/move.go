package output

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// pieceBytes is what a terminal gives at most at once, and one slot of a pipe.
const pieceBytes = 4096

// mover moves bytes between the kernel objects. It belongs to the capturing
// thread.
type mover struct {
	master, pipeR, pipeW int
	copyIn, copyOut      bool
	// held are bytes that a copying step has read and not yet written.
	heldIn, heldOut []byte
}

var errNoSplice = errors.New("splice is not available here")

// dupMover takes descriptors of its own.
func dupMover(master, pipeR, pipeW *os.File) (*mover, error) {
	m := &mover{master: -1, pipeR: -1, pipeW: -1}
	for _, d := range []struct {
		from *os.File
		to   *int
	}{{master, &m.master}, {pipeR, &m.pipeR}, {pipeW, &m.pipeW}} {
		fd, err := dup(d.from)
		if err != nil {
			m.close()
			return nil, err
		}
		*d.to = fd
	}
	// SPLICE_F_NONBLOCK concerns the pipe only; a terminal looks at its own flag.
	if err := unix.SetNonblock(m.master, true); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func dup(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var inner error
	err = raw.Control(func(from uintptr) {
		fd, inner = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	})
	return fd, errors.Join(err, inner)
}

func (m *mover) close() {
	for _, fd := range []int{m.master, m.pipeR, m.pipeW} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (m *mover) copying() bool { return m.copyIn || m.copyOut }

// waiting tells how many bytes the pipe holds.
func (m *mover) waiting() (int64, error) {
	n, err := unix.IoctlGetInt(m.pipeR, unix.TIOCINQ)
	return int64(n) + int64(len(m.heldOut)), err
}

// pipeFull tells that the pipe takes nothing now, however few bytes it holds: it
// counts pieces, not bytes.
func (m *mover) pipeFull() bool {
	p := []unix.PollFd{{Fd: int32(m.pipeW), Events: unix.POLLOUT}}
	n, err := ignoringEINTR(func() (int, error) { return unix.Poll(p, 0) })
	return err == nil && n == 0
}

// in moves a piece from the master into the pipe. EAGAIN: the master has nothing,
// or the pipe is full. 0 or EIO: hung up.
func (m *mover) in() (int64, error) {
	if !m.copyIn {
		n, err := splice(m.master, m.pipeW, nil, pieceBytes)
		if err != errNoSplice {
			return n, err
		}
		m.copyIn = true
	}
	if m.pipeFull() {
		return 0, unix.EAGAIN
	}
	if len(m.heldIn) == 0 {
		buf := make([]byte, pieceBytes)
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(m.master, buf) })
		if n <= 0 || err != nil {
			return 0, err
		}
		m.heldIn = buf[:n]
	}
	// One free slot takes a piece of this length whole, so this does not block
	// even where the pipe's other holders made it blocking.
	n, err := ignoringEINTR(func() (int, error) { return unix.Write(m.pipeW, m.heldIn) })
	if n > 0 {
		m.heldIn = m.heldIn[n:]
	}
	return int64(max(n, 0)), err
}

// out moves up to limit bytes from the pipe to position at of the file.
func (m *mover) out(f *os.File, at, limit int64) (int64, error) {
	if !m.copyOut {
		n, err := splice(m.pipeR, int(f.Fd()), &at, int(limit))
		if err != errNoSplice {
			return n, err
		}
		m.copyOut = true
	}
	if len(m.heldOut) == 0 {
		ready, err := m.waiting()
		if err != nil || ready == 0 {
			return 0, errors.Join(err, unix.EAGAIN)
		}
		buf := make([]byte, min(ready, 64<<10))
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(m.pipeR, buf) })
		if n <= 0 || err != nil {
			return 0, err
		}
		m.heldOut = buf[:n]
	}
	piece := m.heldOut[:min(int64(len(m.heldOut)), limit)]
	n, err := ignoringEINTR(func() (int, error) { return unix.Pwrite(int(f.Fd()), piece, at) })
	if n > 0 {
		m.heldOut = m.heldOut[n:]
	}
	return int64(max(n, 0)), err
}

// splice gives an error that says whether the way itself is missing.
func splice(from, to int, at *int64, n int) (int64, error) {
	moved, err := unix.Splice(from, nil, to, at, n, unix.SPLICE_F_NONBLOCK)
	for err == unix.EINTR {
		moved, err = unix.Splice(from, nil, to, at, n, unix.SPLICE_F_NONBLOCK)
	}
	if err == unix.EINVAL || err == unix.ENOSYS {
		err = errNoSplice
	}
	return max(moved, 0), err // -1 with an error
}
