package sessiondir

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	// Files are changed in place, appear by link or rename, and a lock that is
	// free again was closed. MOVE_SELF is a purge.
	sessionEvents = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE |
		unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ONLYDIR
	outputEvents = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	rootEvents   = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR

	// How long a lock whose file was just closed, or whose holder has just ended, may
	// still look held.
	releaseTries = 200
	releasePause = time.Millisecond
)

// notifier is one inotify instance and the pidfds of lock holders, gathered in
// one epoll descriptor that the runtime polls: a waiter costs no thread, and
// whatever happened since the last wait is still there at the next.
type notifier struct {
	ended   func() error // why it was closed from outside, if it was
	closing atomic.Bool

	mu    sync.Mutex // held while somebody waits; guards the rest
	poll  *os.File
	ino   int
	dirs  map[int32]target
	pids  map[int32]*armed
	stale map[*watched]bool // their locks are to be looked at again
}

// target is what a watch descriptor stands for.
type target struct {
	kind targetKind
	of   *watched
}

type targetKind int

const (
	targetSession targetKind = iota
	targetOutput
	targetRoot
)

// watched is one session.
type watched struct {
	dir     *Dir
	holders [2]*armed // of locks()
	closed  bool      // a lock file was closed, or a holder ended, since it was looked at
}

func locks() [2]string { return [2]string{GuardianLock, OwnerLock} }

// armed is a process whose end is waited for.
type armed struct {
	id  procs.Identity
	pid *procs.PidFD
	of  *watched
}

func newNotifier(ctx context.Context) (*notifier, error) {
	n := &notifier{
		ended: ctx.Err, ino: -1,
		dirs: make(map[int32]target), pids: make(map[int32]*armed), stale: make(map[*watched]bool),
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot watch: %w", err)
	}
	// Only a nonblocking descriptor is given to the runtime's poller.
	err = unix.SetNonblock(poll, true)
	n.poll = os.NewFile(uintptr(poll), "epoll")
	if err == nil {
		n.ino, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	}
	if err == nil {
		err = n.gather(n.ino)
	}
	if err != nil {
		n.close()
		return nil, fmt.Errorf("cannot watch: %w", err)
	}
	return n, nil
}

func (n *notifier) gather(fd int) error {
	return onDescriptor(n.poll, func(poll int) error {
		return unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
}

func onDescriptor(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = fn(int(fd)) })
	return errors.Join(err, inner)
}

// add begins to watch a directory. It is named through its descriptor, so that
// neither the length of its path nor a link planted in it matters.
func (n *notifier) add(dir *os.File, mask uint32, t target) error {
	return onDescriptor(dir, func(fd int) error {
		wd, err := unix.InotifyAddWatch(n.ino, "/proc/self/fd/"+strconv.Itoa(fd), mask)
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", dir.Name(), err)
		}
		n.dirs[int32(wd)] = t
		return nil
	})
}

// follow begins to watch a session, which stays open until the notifier closes.
func (n *notifier) follow(d *Dir) (*watched, error) {
	w := &watched{dir: d}
	if err := n.add(d.dir, sessionEvents, target{targetSession, w}); err != nil {
		return nil, err
	}
	n.stale[w] = true
	return w, nil
}

// forget lets go of a session.
func (n *notifier) forget(d *Dir) {
	for wd, t := range n.dirs {
		if t.of == nil || t.of.dir != d {
			continue
		}
		delete(n.dirs, wd)
		delete(n.stale, t.of)
		// EINVAL: its directory is removed, and the watch with it.
		_, _ = unix.InotifyRmWatch(n.ino, uint32(wd))
		for _, a := range t.of.holders {
			if a != nil {
				n.disarm(a)
			}
		}
	}
}

// close ends a wait that is under way and gives everything back.
func (n *notifier) close() {
	n.closing.Store(true)
	n.poll.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ino >= 0 {
		unix.Close(n.ino)
		n.ino = -1
	}
	for _, a := range n.pids {
		a.pid.Close()
	}
	clear(n.pids)
	clear(n.dirs)
}

// hits are the sessions that something happened to; all: events were lost.
type hits struct {
	ids map[protocol.SessionID]bool
	all bool
}

func (h *hits) add(id protocol.SessionID) { h.ids[id] = true }

func (h *hits) any() bool { return h.all || len(h.ids) > 0 }

// wait returns what has happened since the last wait as soon as there is anything.
func (n *notifier) wait(ctx context.Context) (*hits, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &hits{ids: make(map[protocol.SessionID]bool)}
	if n.ino < 0 {
		return nil, n.waitError(ctx, os.ErrClosed)
	}
	n.poll.SetReadDeadline(time.Time{})
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		n.poll.SetReadDeadline(time.Unix(1, 0))
		close(expired)
	})
	defer func() {
		if !stop() {
			<-expired // else it might end the next wait
		}
	}()
	if err := n.arm(h); err != nil {
		return nil, n.waitError(ctx, err)
	}
	raw, err := n.poll.SyscallConn()
	if err != nil {
		return nil, n.waitError(ctx, err)
	}
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		inner = n.collect(int(fd), h)
		return inner != nil || h.any()
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, n.waitError(ctx, err)
	}
	return h, nil
}

// waitError says why a wait ended: deadline and poller only show that somebody
// wanted it to.
func (n *notifier) waitError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case n.ended() != nil:
		err = n.ended()
	case n.closing.Load(), errors.Is(err, os.ErrClosed):
		err = os.ErrClosed
	}
	return fmt.Errorf("cannot wait for a change: %w", err)
}

// arm looks at the locks of the sessions in which something happened to one, and
// waits for the end of their holders from then on. Of a session whose locks cannot
// be read, because it was purged or damaged, its next Read tells more.
func (n *notifier) arm(h *hits) error {
	for w := range n.stale {
		delete(n.stale, w)
		for i, lock := range locks() {
			id, err := w.holder(lock)
			if err != nil {
				h.add(w.dir.ID())
				continue
			}
			if err := n.armOne(w, i, id, h); err != nil {
				return err
			}
		}
		if w.closed { // whoever has read since then may have found the lock still held
			h.add(w.dir.ID())
		}
		w.closed = false
	}
	return nil
}

// holder is zero if there is none or it is not known. A holder that ends is seen
// through its pidfd, one that never noted itself only through the closing of the
// file. That comes just before the lock is free (__fput in the kernel), and whoever
// looks through /proc/PID/fd at the file holds it past its holder's end: both are
// worth a moment.
func (w *watched) holder(lock string) (procs.Identity, error) {
	for try := 0; ; try++ {
		id, held, err := w.dir.Holder(lock)
		if err != nil || !held || id != (procs.Identity{}) || !w.closed || try == releaseTries {
			return id, err
		}
		<-time.After(releasePause)
	}
}

func (n *notifier) armOne(w *watched, i int, id procs.Identity, h *hits) error {
	if old := w.holders[i]; old != nil {
		if old.id == id {
			return nil
		}
		n.disarm(old)
	}
	if id == (procs.Identity{}) {
		return nil
	}
	pid, err := procs.Open(id)
	if errors.Is(err, procs.ErrGone) {
		n.stale[w] = true
		h.add(w.dir.ID())
		return nil
	}
	if err != nil {
		return err
	}
	a := &armed{id: id, pid: pid, of: w}
	err = pid.Control(func(fd int) error {
		n.pids[int32(fd)] = a
		return n.gather(fd)
	})
	if err != nil {
		n.disarm(a)
		return fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	w.holders[i] = a
	return nil
}

func (n *notifier) disarm(a *armed) {
	for fd, other := range n.pids {
		if other == a {
			delete(n.pids, fd)
		}
	}
	for i, other := range a.of.holders {
		if other == a {
			a.of.holders[i] = nil
		}
	}
	a.pid.Close() // which takes it out of the epoll
}

// collect takes everything that has happened, without waiting.
func (n *notifier) collect(poll int, h *hits) error {
	events := make([]unix.EpollEvent, 16)
	for {
		count, err := unix.EpollWait(poll, events, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || count == 0 {
			return err
		}
		for _, e := range events[:count] {
			if int(e.Fd) == n.ino {
				if err := n.readEvents(h); err != nil {
					return err
				}
			} else if a := n.pids[e.Fd]; a != nil {
				n.disarm(a)
				n.stale[a.of], a.of.closed = true, true
				h.add(a.of.dir.ID())
			}
		}
	}
}

func (n *notifier) readEvents(h *hits) error {
	buf := make([]byte, 16<<10)
	for {
		size, err := unix.Read(n.ino, buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read inotify events: %w", err)
		}
		eachEvent(buf[:size], func(wd int32, mask uint32, name string) { n.take(wd, mask, name, h) })
	}
}

// eachEvent walks through what inotify(7) gives: wd, mask, cookie, len, and the
// name padded with zeros.
func eachEvent(buf []byte, fn func(wd int32, mask uint32, name string)) {
	for len(buf) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(buf)), binary.NativeEndian.Uint32(buf[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:end], []byte{0})
		fn(wd, mask, string(name))
		buf = buf[end:]
	}
}

// take judges one event.
func (n *notifier) take(wd int32, mask uint32, name string, h *hits) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		h.all = true
		for _, t := range n.dirs {
			if t.of != nil {
				n.stale[t.of] = true
			}
		}
		return
	}
	t, ok := n.dirs[wd]
	if !ok {
		return
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(n.dirs, wd)
	}
	switch t.kind {
	case targetRoot:
		if id, err := protocol.ParseSessionID(name); err == nil {
			h.add(id)
		}
	case targetOutput:
		if name != "index" && name != "lock" {
			h.add(t.of.dir.ID())
		}
	case targetSession:
		n.takeSession(t.of, mask, name, h)
	}
}

func (n *notifier) takeSession(w *watched, mask uint32, name string, h *hits) {
	switch {
	case name == GuardianLock, name == OwnerLock:
		n.stale[w] = true
		w.closed = w.closed || mask&unix.IN_CLOSE_WRITE != 0
	case name == "", name == JournalFile, name == OutcomeFile, name == GuardianSocket:
	case durable.IsTemp(name) && mask&unix.IN_MODIFY != 0:
		// A file that was made by linking its temporary is written through the
		// temporary's name for as long as its maker has it open.
	default:
		return
	}
	h.add(w.dir.ID())
}
