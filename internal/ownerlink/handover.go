package ownerlink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// SocketName is where an owner listens for a guardian that it did not start, in
// the session's directory.
const SocketName = "owner.sock"

// The descriptors of a guardian that the owner starts, after standard input,
// output and error.
const (
	GuardianStartup = 3 // gets the one protocol.Ready
	GuardianChannel = 4
	GuardianMaster  = 5
	GuardianPipeR   = 6
	GuardianPipeW   = 7
	// GuardianListener is missing when the owner has none to hand on.
	GuardianListener = 8
)

// Claim is what a guardian that holds guardian.lock sends to owner.sock, with
// one descriptor beside it.
//
// Without Listener it takes the session over, and the descriptor is its
// executable, from which the owner starts the next. With Listener it keeps the
// channel that it has and the descriptor is a new listening socket for
// safe-keeping.
type Claim struct {
	Version  int     `json:"version"`
	Listener *Socket `json:"listener,omitempty"`
}

// Handover answers a Claim: one for the session with the descriptors of channel, master,
// both ends of the pipe and, if Listener is set, the listening socket beside it,
// in this order.
type Handover struct {
	Version  int    `json:"version"`
	Listener bool   `json:"listener,omitempty"`
	Refused  string `json:"refused,omitempty"` // no descriptor then
}

// handoverTime bounds each step of a handover: both sides are on one machine.
const handoverTime = 2 * time.Second

// Listen makes owner.sock in dir, 0600 from its first instant, and listens. What
// an owner that is gone has left under the name is removed: there is one owner at
// a time, and it holds owner.lock.
func Listen(dir *os.File) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", SocketName, err)
	}
	f := os.NewFile(uintptr(fd), SocketName)
	err = control(dir, func(dirFD int) error {
		if err := unix.Unlinkat(dirFD, SocketName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socketPath(dirFD)}); err != nil {
			return err
		}
		return unix.Listen(fd, 16)
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot listen on %s: %w", SocketName, err)
	}
	return f, nil
}

// Accept waits for a connection of our own user; others are turned away.
func Accept(listener *os.File) (*os.File, error) {
	for {
		var fd int
		err := reading(listener, func(l int) (err error) {
			fd, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return err
		})
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && int(cred.Uid) == os.Geteuid() {
			return os.NewFile(uintptr(fd), SocketName), nil
		}
		unix.Close(fd)
	}
}

// Dial connects to the owner of the session in dir.
func Dial(dir *os.File) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the owner: %w", err)
	}
	f := os.NewFile(uintptr(fd), SocketName)
	err = control(dir, func(dirFD int) error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: socketPath(dirFD)})
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot reach the owner: %w", err)
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(cred.Uid) != os.Geteuid() {
		f.Close()
		return nil, fmt.Errorf("cannot reach the owner: %s belongs to another user", SocketName)
	}
	return f, nil
}

func socketPath(dir int) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + SocketName
}

// SendFiles sends v with descriptors beside it, as one packet.
func SendFiles(conn *os.File, v any, fds ...int) error {
	packet, err := protocol.Marshal(v)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(handoverTime)); err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return writing(conn, func(fd int) error {
		return unix.Sendmsg(fd, packet, rights, nil, unix.MSG_NOSIGNAL)
	})
}

// maxFiles is how many descriptors come with one packet at most.
const maxFiles = 8

// ReceiveFiles waits for one packet and gives the descriptors that came with it,
// close-on-exec, to be closed by the caller. On an error there are none.
func ReceiveFiles(conn *os.File, v any) ([]*os.File, error) {
	if err := conn.SetReadDeadline(time.Now().Add(handoverTime)); err != nil {
		return nil, err
	}
	packet, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(maxFiles*4))
	var n, rn, flags int
	err := reading(conn, func(fd int) (err error) {
		n, rn, flags, _, err = unix.Recvmsg(fd, packet, rights, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, err
	}
	files, err := parseRights(rights[:rn])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("the packet was cut")
	case n == 0:
		err = io.EOF
	default:
		err = protocol.Unmarshal(packet[:n], v)
	}
	if err != nil {
		CloseFiles(files)
		return nil, err
	}
	return files, nil
}

func parseRights(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// CloseFiles closes what was received.
func CloseFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// control calls fn with f's descriptor, leaving its mode alone.
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

// waitFor calls op until it does not have to wait any more, with the runtime's
// poller and the file's deadline in between.
func waitFor(await func(func(fd uintptr) bool) error, op func(fd int) error) error {
	var inner error
	err := await(func(fd uintptr) bool {
		inner = op(int(fd))
		return inner != unix.EAGAIN
	})
	if err != nil {
		return err
	}
	return inner
}

func reading(f *os.File, op func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return waitFor(raw.Read, op)
}

func writing(f *os.File, op func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return waitFor(raw.Write, op)
}
