// Package peersock makes and reaches unix sockets between processes of one user.
//
// Sockets are addressed by an open directory and a name, never by a path, so
// that no length limit applies and nobody can put another directory in the way.
// A listener's file has mode 0600 from its first instant. The package never
// unlinks a name: who may do that is decided by a lock that it knows nothing of.
// After a crash the name stays and refuses connections; its next owner removes
// it before Listen.
//
// Abstract sockets are never used: anybody may connect to one.
package peersock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxName keeps "/proc/self/fd/2147483647/NAME" within sun_path.
const maxName = 80

// backlog is how many clients may wait while nobody accepts; the kernel bounds
// it by net.core.somaxconn.
const backlog = 1024

// FileID tells a socket's file apart from every other file that exists at the
// same time. A listener pins its file, so the id is not given out again while
// the listener is open, even if the name was removed.
type FileID struct {
	Dev, Ino uint64
}

// Listen makes a stream socket called name in dir and listens on it. A name that
// exists gives an error that is unix.EADDRINUSE.
func Listen(dir *os.File, name string) (*net.UnixListener, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	// bind gives the file the unbound socket's mode: no moment with a wider one,
	// and no umask, which belongs to the whole process.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", name, err)
	}
	err = at(dir, name, func(path string) error { return unix.Bind(fd, &unix.SockaddrUnix{Name: path}) })
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", name, err)
	}
	return FileListener(f)
}

// FileListener makes a listener of an inherited listening unix stream socket. It
// works on a duplicate; f stays the caller's.
func FileListener(f *os.File) (*net.UnixListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on an inherited socket: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("cannot listen on an inherited socket: it is a %s socket", l.Addr().Network())
	}
	// Close of a listener that unlinks would remove its successor's name.
	u.SetUnlinkOnClose(false)
	return u, nil
}

// Dial connects to the stream socket called name in dir. While the listener's
// backlog is full it waits for room until ctx ends.
func Dial(ctx context.Context, dir *os.File, name string) (*net.UnixConn, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	var conn net.Conn
	for {
		err := at(dir, name, func(path string) (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
			return err
		})
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		// The dialer's own timer may be a moment ahead of ctx's.
		var late net.Error
		if _, bounded := ctx.Deadline(); bounded && !errors.Is(err, unix.EAGAIN) && errors.As(err, &late) && late.Timeout() {
			<-ctx.Done()
			return nil, fmt.Errorf("cannot connect to %s: %w", name, ctx.Err())
		}
		// A nonblocking connect to a full backlog fails instead of waiting.
		if !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("cannot connect to %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot connect to %s: %w", name, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// PeerUID tells the user and process that connected (or, for the connecting
// side, that called listen). The uid decides; the pid is for logs, since the
// process may be gone and its number in use by another.
func PeerUID(conn *net.UnixConn) (uid, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot identify the peer: %w", err)
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return 0, 0, fmt.Errorf("cannot identify the peer: %w", err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// FileOf identifies the socket file called name in dir. Asked right after Listen,
// and handed on with the listener, it lets every later holder use StillBound.
func FileOf(dir *os.File, name string) (FileID, error) {
	var st unix.Stat_t
	if err := checkName(name); err != nil {
		return FileID{}, fmt.Errorf("cannot identify a socket: %w", err)
	}
	err := control(dir, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return FileID{}, fmt.Errorf("cannot identify socket %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return FileID{}, fmt.Errorf("cannot identify socket %s: not a socket", name)
	}
	return FileID{Dev: uint64(st.Dev), Ino: st.Ino}, nil
}

// StillBound tells whether name in dir still is the file id of a listener that
// the caller holds open.
func StillBound(dir *os.File, name string, id FileID) bool {
	now, err := FileOf(dir, name)
	return err == nil && now == id
}

// Pair makes two connected seqpacket sockets, both nonblocking and
// close-on-exec: a message arrives whole or not at all, and the end of either
// side is seen by the other.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is no socket name", name)
	}
	return nil
}

// at calls fn with a path of name that goes through dir's descriptor.
func at(dir *os.File, name string, fn func(path string) error) error {
	return control(dir, func(fd int) error { return fn(fmt.Sprintf("/proc/self/fd/%d/%s", fd, name)) })
}

func control(f *os.File, fn func(fd int) error) error {
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
