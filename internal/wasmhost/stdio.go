package wasmhost

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxChunk is what is written to a pipe or terminal at once. A pipe that poll calls writable takes this much without
// blocking, see pipe(7), so a guest whose reader has stopped can still be ended.
const maxChunk = 4096

// stream is one of the three standard streams. It never changes the open file description, which the shell and other
// programs hold too: non-blocking is a flag of ours, and every read and write asks poll(2) first.
type stream struct {
	fd       int // -1 for none
	tty      bool
	kind     uint32 // S_IFMT of the host's file
	nonblock bool
	closed   bool // by the guest; its number may be another file since

	stop   *stopper
	moved  bool // bytes were moved in the current host call: its next buffers must not say EAGAIN
	budget *int64
}

func newStream(f *os.File, stop *stopper, budget *int64) (*stream, error) {
	s := &stream{fd: -1, stop: stop, budget: budget}
	if f == nil {
		return s, nil
	}
	// Fd would put the description into blocking mode.
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := raw.Control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil {
		return nil, err
	}
	s.kind = st.Mode & unix.S_IFMT
	if s.kind == unix.S_IFCHR {
		_, err := unix.IoctlGetTermios(s.fd, unix.TCGETS)
		s.tty = err == nil
	}
	return s, nil
}

// Read implements io.Reader for standard input. The errors are the kernel's own, which the runtime translates.
func (s *stream) Read(buf []byte) (int, error) {
	for {
		s.stop.checkAny()
		if s.nonblock || s.moved {
			if !ready(s.fd, unix.POLLIN) {
				if s.moved {
					return 0, io.EOF // the runtime stops at a short read and keeps what it has
				}
				return 0, syscall.EAGAIN
			}
		} else {
			s.stop.wait([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, forever)
		}
		n, err := unix.Read(s.fd, buf)
		switch {
		case err == unix.EINTR, err == unix.EAGAIN && !s.nonblock:
			continue
		case err == unix.EIO && s.tty:
			s.stop.end(ending{HungUp, 129, "the terminal is gone"})
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		s.moved = true
		return n, nil
	}
}

// Write implements io.Writer for standard output and error. It takes all of buf or ends the guest: the runtime does
// not stop at a short write but goes on with its next buffer.
func (s *stream) Write(buf []byte) (int, error) {
	done := 0
	for done < len(buf) {
		s.stop.checkAny()
		chunk := buf[done:]
		if s.kind != unix.S_IFREG {
			chunk = chunk[:min(len(chunk), maxChunk)]
			if s.nonblock && !s.moved && !ready(s.fd, unix.POLLOUT) {
				return 0, syscall.EAGAIN
			}
			s.stop.wait([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, forever)
		}
		chunk = s.afford(chunk)
		n, err := unix.Write(s.fd, chunk)
		switch err {
		case nil:
			done += n
			s.moved = true
			*s.budget -= int64(n)
		case unix.EINTR, unix.EAGAIN:
		case unix.EPIPE:
			s.stop.end(ending{OutputClosed, 141, ""})
		case unix.EIO:
			if s.tty {
				s.stop.end(ending{HungUp, 129, "the terminal is gone"})
			}
			return done, err
		default:
			return done, err
		}
	}
	return done, nil
}

// afford cuts what is written to the output limit, and ends a guest that has used it up.
func (s *stream) afford(chunk []byte) []byte {
	if *s.budget <= 0 {
		s.stop.end(ending{OutputOver, 1, "the output limit was reached"})
	}
	return chunk[:min(int64(len(chunk)), *s.budget)]
}
