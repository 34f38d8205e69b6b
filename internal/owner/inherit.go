package owner

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// inherited are the descriptors that a guardian hands to its owner. master and
// the pipe stay plain numbers: their open file descriptions are shared with the
// guardian, and package os might change their blocking mode.
type inherited struct {
	channel   *ownerlink.Conn
	launch    *os.File
	master    int
	pipeR     int
	pipeW     int
	listener  int
	lock      *os.File
	dir       *os.File
	guardian  *os.File // the executable to start the next one from
	files     *captured
	slaveRdev uint64
}

// captured are terminal and pipe as files, for a capture of this process. They
// are made once and kept: a file that nobody refers to any more closes its
// descriptor.
type captured struct{ master, pipeR, pipeW *os.File }

func (in *inherited) captured() *captured {
	if in.files == nil {
		in.files = &captured{
			os.NewFile(uintptr(in.master), "ptmx"), os.NewFile(uintptr(in.pipeR), "pipe"), os.NewFile(uintptr(in.pipeW), "pipe"),
		}
	}
	return in.files
}

// takeOver checks that each descriptor is what it has to be, before it touches
// any: a program started by hand has its own things on these numbers, the
// runtime's poller among them.
func takeOver() (*inherited, error) {
	rdev, err := checkTerminal()
	if err != nil {
		return nil, err
	}
	checks := []struct {
		fd   int
		what string
		ok   func(fd int) bool
	}{
		{ownerlink.FDChannel, "the channel", isChannel},
		{ownerlink.FDLaunch, "sealed memory", isSealed},
		{ownerlink.FDPipeR, "the capture pipe", isKind(unix.S_IFIFO)},
		{ownerlink.FDPipeW, "the capture pipe", isKind(unix.S_IFIFO)},
		{ownerlink.FDListener, "a listening socket", isListening},
		{ownerlink.FDLock, "the owner's lock", isKind(unix.S_IFREG)},
		{ownerlink.FDDir, "the session's directory", isKind(unix.S_IFDIR)},
		{ownerlink.FDGuardian, "the guardian's executable", isKind(unix.S_IFREG)},
	}
	for _, c := range checks {
		if !c.ok(c.fd) {
			return nil, fmt.Errorf("descriptor %d is not %s", c.fd, c.what)
		}
	}
	if err := checkLock(); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(ownerlink.FDChannel, true); err != nil {
		return nil, fmt.Errorf("cannot use the channel: %w", err)
	}
	return &inherited{
		channel:   ownerlink.NewConn(os.NewFile(ownerlink.FDChannel, "channel")),
		launch:    os.NewFile(ownerlink.FDLaunch, "launch"),
		master:    ownerlink.FDMaster,
		pipeR:     ownerlink.FDPipeR,
		pipeW:     ownerlink.FDPipeW,
		listener:  ownerlink.FDListener,
		lock:      os.NewFile(ownerlink.FDLock, sessiondir.OwnerLock),
		dir:       os.NewFile(ownerlink.FDDir, "session"),
		guardian:  os.NewFile(ownerlink.FDGuardian, "mur-guardian"),
		slaveRdev: rdev,
	}, nil
}

// checkTerminal: stdin is the slave of FDMaster and the controlling terminal of
// a session that this process leads.
func checkTerminal() (rdev uint64, err error) {
	var st unix.Stat_t
	pts, err := unix.IoctlGetUint32(ownerlink.FDMaster, unix.TIOCGPTN)
	if err != nil {
		return 0, fmt.Errorf("descriptor %d is not a terminal's master", ownerlink.FDMaster)
	}
	for fd := range 3 {
		if err := unix.Fstat(fd, &st); err != nil || unix.Minor(st.Rdev) != pts || !isatty(fd) {
			return 0, fmt.Errorf("descriptor %d is not the slave of the terminal on %d", fd, ownerlink.FDMaster)
		}
	}
	sid, err := unix.IoctlGetInt(0, unix.TIOCGSID)
	if err != nil || sid != os.Getpid() {
		return 0, errors.New("its terminal is not the controlling terminal of a session of its own")
	}
	return st.Rdev, nil
}

// checkLock asks through another open file description, as the holder's own one
// never sees its lock.
func checkLock() error {
	fd, err := unix.Openat(ownerlink.FDDir, sessiondir.OwnerLock, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", sessiondir.OwnerLock, err)
	}
	f := os.NewFile(uintptr(fd), sessiondir.OwnerLock)
	defer f.Close()
	held, err := procs.Locked(f)
	if err == nil && !held {
		err = errors.New("the owner's lock is not held")
	}
	return err
}

func isatty(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

func isKind(kind uint32) func(fd int) bool {
	return func(fd int) bool {
		var st unix.Stat_t
		return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind
	}
}

func isChannel(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

func isListening(fd int) bool {
	on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on != 0
}

func isSealed(fd int) bool {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_WRITE != 0
}
