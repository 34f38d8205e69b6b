package owner

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// lossWindow and maxLosses: as many guardians lost in such a time are a fault
	// that starting the next one does not cure.
	lossWindow = time.Minute
	maxLosses  = 5
	// claimFirst is how long a guardian that found the session's lock held is
	// believed at first; each further one twice as long, up to claimPatience.
	claimFirst    = 5 * time.Millisecond
	claimPatience = time.Second
)

// lostChannel is the end of one channel; of an older one it says nothing.
type lostChannel struct {
	conn *ownerlink.Conn
	err  error
}

// claim is a guardian at owner.sock.
type claim struct {
	conn  *os.File
	claim ownerlink.Claim
	file  *os.File // executable or listener
}

// succession is how the owner gets the next guardian.
type succession struct {
	exe    *os.File         // what the next is started from
	listen *os.File         // owner.sock
	socket ownerlink.Socket // of the listener in safe-keeping

	bye       bool        // the guardian has said that it leaves
	successor bool        // and that another one is about to claim the session
	losses    []time.Time // in the last lossWindow
	retryAt   time.Time   // zero: no start is due
	already   int         // in a row
	startup   *os.File    // of the guardian started last, until it was read
	waiting   *needWatch  // nil: nobody looks whether a guardian is needed
}

// needWatch looks, while there is no guardian, whether one is needed.
type needWatch struct {
	needed chan struct{}
	stop   *os.File // ends it when closed; nil: it looks at nothing
}

// stopWaiting gives up what a needWatch holds.
func (s *succession) stopWaiting() {
	if s.waiting != nil && s.waiting.stop != nil {
		s.waiting.stop.Close()
	}
	s.waiting = nil
}

// connect makes conn the channel to the one guardian.
func (o *owner) connect(conn *ownerlink.Conn) {
	o.channel = conn
	o.voice = newVoice(conn, o.lost)
	o.next.stopWaiting()
	o.next.bye, o.next.successor, o.next.retryAt = false, false, time.Time{}
	if o.ledger != nil {
		o.publish()
	}
}

// loseGuardian goes on without a guardian. That it is gone, or talks nonsense,
// says nothing about the session: nothing ends and nothing is killed.
func (o *owner) loseGuardian(l lostChannel) {
	if o.voice == nil || l.conn != o.channel {
		return
	}
	// A guardian that lives learns that nobody listens to it any more.
	o.channel.Close()
	close(o.voice.box)
	o.voice, o.channel = nil, nil
	ready := o.next.takeStartup()
	if !ready.Already {
		o.next.already = 0
	}
	switch {
	case !o.launched:
	case sessiondir.Removed(o.in.dir):
		o.hangUp()
	case o.next.bye && o.next.successor:
		o.next.retryAt = time.Now().Add(claimPatience)
	case o.next.bye:
		o.next.waiting = o.watchNeed()
	case ready.Already:
		// Somebody else's guardian has the lock and will claim the session, or the
		// last one's is not free yet: the kernel closes a dead process' files one
		// after the other.
		o.next.retryAt = time.Now().Add(min(claimFirst<<min(o.next.already, 10), claimPatience))
		o.next.already++
	default:
		o.countLoss()
	}
}

// takeStartup reads what the guardian that was started last said of its start.
// Its end has been seen, so whatever it wrote is there.
func (s *succession) takeStartup() (ready protocol.Ready) {
	if s.startup == nil {
		return ready
	}
	defer func() {
		s.startup.Close()
		s.startup = nil
	}()
	_ = s.startup.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if frame, err := protocol.ReadFrame(s.startup, nil); err == nil {
		_ = protocol.Unmarshal(frame, &ready)
	}
	return ready
}

// countLoss starts the next guardian, later each time, and gives up when they
// keep being lost: then the owner captures itself and waits to be claimed.
func (o *owner) countLoss() {
	now := time.Now()
	recent := o.next.losses[:0]
	for _, at := range o.next.losses {
		if now.Sub(at) < lossWindow {
			recent = append(recent, at)
		}
	}
	o.next.losses = append(recent, now)
	n := len(o.next.losses)
	if n >= maxLosses {
		o.standAlone()
		return
	}
	delay := time.Duration(0)
	if n > 1 {
		delay = 10 * time.Millisecond << (2 * (n - 2))
	}
	o.next.retryAt = now.Add(delay)
}

// standAlone captures in the guardians' stead. Nobody accepts: whoever comes has
// to know, and starts a guardian that claims the session.
func (o *owner) standAlone() {
	o.closeListener()
	if o.alone == nil {
		o.alone = captureAlone(o.in, o.history)
	}
}

func (o *owner) closeListener() {
	if o.in.listener >= 0 {
		unix.Close(o.in.listener)
		o.in.listener = -1
	}
}

// startGuardian starts the next guardian beside this process, never below it: a
// child of its own would keep the proof that no child is left out of reach
// (clone(2), CLONE_PARENT).
func (o *owner) startGuardian() {
	o.next.stopWaiting()
	o.next.retryAt = time.Time{}
	conn, err := o.forkGuardian()
	if err != nil {
		o.countLoss()
		return
	}
	o.connect(conn)
	go hear(conn, o.controls, o.lost)
}

// needed tells when somebody has seen that a guardian is needed.
func (o *owner) needed() <-chan struct{} {
	if o.next.waiting == nil {
		return nil
	}
	return o.next.waiting.needed
}

func (o *owner) forkGuardian() (*ownerlink.Conn, error) {
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(ownerlink.FDDir))
	if err != nil {
		return nil, err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(null)
	ours, theirs, err := channelPair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	startup, told, err := os.Pipe()
	if err != nil {
		unix.Close(ours)
		return nil, err
	}
	defer told.Close()
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null)}
	files = append(files, told.Fd(), uintptr(theirs), uintptr(o.in.master), uintptr(o.in.pipeR), uintptr(o.in.pipeW))
	if o.in.listener >= 0 {
		files = append(files, uintptr(o.in.listener))
	}
	args := []string{"mur-guardian", "--session", path, "--startup-fd", strconv.Itoa(ownerlink.GuardianStartup), "--adopt", "--idle", o.idle.String()}
	exe, err := procs.Above(o.next.exe.Fd(), files)
	if err != nil {
		startup.Close()
		unix.Close(ours)
		return nil, err
	}
	defer unix.Close(exe)
	_, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", exe), args, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_PARENT},
	})
	runtime.KeepAlive(o.next.exe)
	if err != nil {
		startup.Close()
		unix.Close(ours)
		return nil, fmt.Errorf("cannot start a guardian: %w", err)
	}
	o.next.startup = startup
	return ownerlink.NewConn(os.NewFile(uintptr(ours), "channel")), nil
}

func channelPair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("cannot make a channel: %w", err)
	}
	return fds[0], fds[1], nil
}

// acceptClaims passes on whoever comes to owner.sock with a whole claim.
func acceptClaims(listener *os.File, claims chan<- claim) {
	for {
		conn, err := ownerlink.Accept(listener)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(aloneFirst) // out of descriptors, say
			continue
		}
		go func() {
			var c ownerlink.Claim
			files, err := ownerlink.ReceiveFiles(conn, &c)
			if err != nil || len(files) != 1 || c.Version != ownerlink.Version {
				_ = ownerlink.SendFiles(conn, ownerlink.Handover{Version: ownerlink.Version, Refused: "the claim is not one of this version"})
				ownerlink.CloseFiles(files)
				conn.Close()
				return
			}
			claims <- claim{conn, c, files[0]}
		}()
	}
}

// claimed gives the session to a guardian that holds its lock, or takes a new
// listener from the one that has it.
func (o *owner) claimed(c claim) {
	defer c.conn.Close()
	if c.claim.Listener != nil {
		o.keepListener(c)
		return
	}
	ours, theirs, err := channelPair()
	if err != nil {
		c.file.Close()
		return
	}
	defer unix.Close(theirs)
	if o.alone != nil {
		o.alone.stop() // one captures at a time
		o.alone = nil
	}
	h := ownerlink.Handover{Version: ownerlink.Version, Listener: o.in.listener >= 0}
	fds := []int{theirs, o.in.master, o.in.pipeR, o.in.pipeW}
	if h.Listener {
		fds = append(fds, o.in.listener)
	}
	if err := ownerlink.SendFiles(c.conn, h, fds...); err != nil {
		c.file.Close()
		unix.Close(ours)
		if o.voice == nil {
			o.countLoss()
		}
		return
	}
	if o.voice != nil { // its guardian has lost the lock: it is dead
		o.channel.Close()
		close(o.voice.box)
	}
	if o.next.startup != nil {
		o.next.startup.Close()
		o.next.startup = nil
	}
	o.next.exe.Close()
	o.next.exe = c.file
	o.connect(ownerlink.NewConn(os.NewFile(uintptr(ours), "channel")))
	go hear(o.channel, o.controls, o.lost)
}

// keepListener replaces the listener in safe-keeping.
func (o *owner) keepListener(c claim) {
	defer c.file.Close()
	raw, err := c.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return
		}
		o.closeListener()
		o.in.listener, o.next.socket = dup, *c.claim.Listener
	})
	_ = ownerlink.SendFiles(c.conn, ownerlink.Handover{Version: ownerlink.Version})
}

// watchNeed looks whether output waits in the terminal or a client at the
// socket. It uses duplicates, so that it never looks at what has the same number
// later.
func (o *owner) watchNeed() *needWatch {
	w := &needWatch{needed: make(chan struct{}, 1)}
	fds, err := w.duplicate(o.in.listener, o.in.master)
	if err != nil {
		w.needed <- struct{}{} // better a guardian than nobody who looks
		return w
	}
	go w.look(fds)
	return w
}

// duplicate gives what look polls: first what ends it.
func (w *needWatch) duplicate(look ...int) (fds []unix.PollFd, err error) {
	ended, stop, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ended.Close()
	for _, fd := range append([]int{int(ended.Fd())}, look...) {
		if fd < 0 {
			continue
		}
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			stop.Close()
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, unix.PollFd{Fd: int32(dup), Events: unix.POLLIN})
	}
	w.stop = stop
	return fds, nil
}

func closeAll(fds []unix.PollFd) {
	for _, p := range fds {
		unix.Close(int(max(p.Fd, -p.Fd-1)))
	}
}

func (w *needWatch) look(fds []unix.PollFd) {
	defer func() {
		closeAll(fds)
		w.needed <- struct{}{}
	}()
	for {
		n, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || fds[0].Revents != 0 {
			return
		}
		for i := range fds {
			if fds[i].Revents&unix.POLLIN != 0 {
				return
			}
			if fds[i].Revents != 0 { // hung up, and nothing to read: no reason to be woken again
				fds[i].Fd = -fds[i].Fd - 1
			}
		}
	}
}
