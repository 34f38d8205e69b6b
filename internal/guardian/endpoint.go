package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// removalTime is left to whoever removes the whole directory: the socket, bound
// again at once, would be in the way.
const removalTime = 100 * time.Millisecond

// endpoint is the session's socket and the watch over its name. Only the holder
// of guardian.lock may make one.
type endpoint struct {
	dir      *sessiondir.Dir
	listener *net.UnixListener
	file     peersock.FileID
	presence *sessiondir.Presence
	removed  chan struct{} // closed when the directory is no more
	closing  chan struct{} // closed to end keep
	kept     chan struct{} // closed when keep has ended
}

// bind listens on the session's socket; what an earlier guardian left under its
// name is removed.
func bind(dir *sessiondir.Dir) (*endpoint, error) {
	e := newEndpoint(dir)
	if err := e.listen(); err != nil {
		return nil, err
	}
	if err := e.watch(); err != nil {
		e.listener.Close()
		return nil, err
	}
	return e, nil
}

func newEndpoint(dir *sessiondir.Dir) *endpoint {
	return &endpoint{
		dir: dir, removed: make(chan struct{}), closing: make(chan struct{}), kept: make(chan struct{}),
	}
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

// watch has the kernel tell when a name in the directory is taken away: one that
// is makes new clients fail, so it is bound again.
func (e *endpoint) watch() (err error) {
	e.presence, err = sessiondir.WatchPresence(e.dir.File())
	return err
}

// keep serves the endpoint until close, whatever becomes of its name.
func (e *endpoint) keep(sv *server) {
	defer close(e.kept)
	go sv.accept(e.listener)
	var look <-chan time.Time
	for {
		select {
		case <-e.presence.C:
			look = time.After(removalTime)
			continue
		case <-look:
		case <-e.closing:
			return
		}
		look = nil
		if peersock.StillBound(e.dir.File(), sessiondir.GuardianSocket, e.file) {
			continue
		}
		if e.beingRemoved() { // a new socket would only be in the way
			look = time.After(time.Second)
			if sessiondir.Removed(e.dir.File()) {
				sv.log.Error(errRemoved.Error())
				close(e.removed)
				sv.session.post(removed{})
				return
			}
			continue
		}
		old := e.listener // its backlog may hold clients: they are served to the end
		if err := e.listen(); err != nil {
			sv.log.Error("cannot bind the socket again", "error", err)
			look = time.After(time.Second)
			continue
		}
		sv.log.Warn("the socket's name was taken away and is bound again")
		sv.session.post(rebound{e.listener, e.socket()})
		old.Close()
		go sv.accept(e.listener)
	}
}

// beingRemoved tells that the session cannot be found any more: without its bootstrap
// nobody can introduce himself.
func (e *endpoint) beingRemoved() bool {
	var st unix.Stat_t
	err := atDir(e.dir, func(dir int) error {
		return unix.Fstatat(dir, sessiondir.BootstrapFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return errors.Is(err, fs.ErrNotExist)
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

var errRemoved = errors.New("the session's directory was removed: whoever is not connected cannot come any more")

// removed: nothing can be recorded any more. Who is connected is served on, and is
// told so; with the last of them the guardian leaves, and the owner hangs up.
type removed struct{}

func (removed) handle(s *session) {
	s.fault = errRemoved
	s.step(lifecycle.Event{Kind: lifecycle.FailDurable, Failure: &lifecycle.Failure{
		Stage: "journal", Message: errRemoved.Error(),
	}})
}

func (e *endpoint) socket() ownerlink.Socket {
	return ownerlink.Socket{Dev: e.file.Dev, Ino: e.file.Ino}
}

// close stops listening. Where an owner keeps the socket, who comes now waits
// there for the next guardian; else the name is taken away, and who comes finds
// nobody and starts the next guardian once the lock is free.
func (e *endpoint) close(entrusted bool) {
	close(e.closing)
	<-e.kept
	e.presence.Close()
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
