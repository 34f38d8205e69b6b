package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// endpoint is the session's socket and the watch over its name. Only the holder
// of guardian.lock may make one.
type endpoint struct {
	dir      *sessiondir.Dir
	listener *net.UnixListener
	file     peersock.FileID
	notify   *os.File
	kept     chan struct{} // closed when keep has ended
}

// bind listens on the session's socket; what an earlier guardian left under its
// name is removed.
func bind(dir *sessiondir.Dir) (*endpoint, error) {
	e := &endpoint{dir: dir, kept: make(chan struct{})}
	if err := e.listen(); err != nil {
		return nil, err
	}
	if err := e.watch(); err != nil {
		e.listener.Close()
		return nil, err
	}
	return e, nil
}

func (e *endpoint) listen() error {
	err := atDir(e.dir, func(fd int) error { return unix.Unlinkat(fd, sessiondir.GuardianSocket, 0) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	l, err := peersock.Listen(e.dir.File(), sessiondir.GuardianSocket)
	if err != nil {
		return err
	}
	e.file, err = peersock.FileOf(e.dir.File(), sessiondir.GuardianSocket)
	if err != nil {
		l.Close()
		return err
	}
	e.listener = l
	return nil
}

// watch arms inotify(7) for the directory: a name that is taken away makes new
// clients fail, so it is bound again.
func (e *endpoint) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot watch the session's directory: %w", err)
	}
	e.notify = os.NewFile(uintptr(fd), "inotify")
	err = atDir(e.dir, func(dir int) error {
		_, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", dir),
			unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO|unix.IN_CREATE)
		return err
	})
	if err != nil {
		e.notify.Close()
		return fmt.Errorf("cannot watch the session's directory: %w", err)
	}
	return nil
}

// keep serves the endpoint until close, whatever becomes of its name.
func (e *endpoint) keep(sv *server) {
	defer close(e.kept)
	go sv.accept(e.listener)
	buf := make([]byte, 4096)
	for {
		if _, err := e.notify.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		e.notify.SetReadDeadline(time.Time{})
		if peersock.StillBound(e.dir.File(), sessiondir.GuardianSocket, e.file) {
			continue
		}
		old := e.listener // its backlog may hold clients: they are served to the end
		if err := e.listen(); err != nil {
			sv.log.Error("cannot bind the socket again", "error", err)
			e.notify.SetReadDeadline(time.Now().Add(time.Second)) // and try again
			continue
		}
		sv.log.Warn("the socket's name was taken away and is bound again")
		sv.session.post(rebound{e.listener, e.socket()})
		old.Close()
		go sv.accept(e.listener)
	}
}

// rebound is a new listener: an owner that is not started yet gets this one.
type rebound struct {
	listener *net.UnixListener
	socket   ownerlink.Socket
}

func (e rebound) handle(s *session) {
	s.spawner.listener, s.spawner.socket = e.listener, e.socket
	if s.owner != nil {
		s.then(func(bool) { s.entrust() })
	}
}

func (e *endpoint) socket() ownerlink.Socket {
	return ownerlink.Socket{Dev: e.file.Dev, Ino: e.file.Ino}
}

// close stops listening. Where an owner keeps the socket, who comes now waits
// there for the next guardian; else the name is taken away, and who comes finds
// nobody and starts the next guardian once the lock is free.
func (e *endpoint) close(entrusted bool) {
	e.notify.Close()
	<-e.kept
	if !entrusted && peersock.StillBound(e.dir.File(), sessiondir.GuardianSocket, e.file) {
		atDir(e.dir, func(fd int) error { return unix.Unlinkat(fd, sessiondir.GuardianSocket, 0) })
	}
	e.listener.Close()
}

func atDir(dir *sessiondir.Dir, fn func(fd int) error) error {
	n, err := number(dir.File())
	if err != nil {
		return err
	}
	return fn(int(n))
}
