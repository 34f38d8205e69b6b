package sessiondir

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// presencePoll is how often a directory is looked at where the kernel does not
// tell of its changes.
const presencePoll = time.Second

// What F_NOTIFY is asked for: the kernel's DN_DELETE, DN_RENAME and DN_MULTISHOT
// (linux/fcntl.h).
const dnNames = 0x8 | 0x10 | 0x80000000

// Presence tells a session's own processes that names were taken out of its
// directory: the socket's, or all of them. They need to know for as long as they
// live, and inotify(7) has 128 instances for all processes of a user, so it is the
// older notice of fcntl(2), F_NOTIFY, which has no bound and comes as a SIGIO.
type Presence struct {
	// C receives after a change; many may become one.
	C    <-chan os.Signal
	dir  *os.File // of its own: the notice belongs to the open file description
	stop func()
}

// WatchPresence begins to watch dir, which stays the caller's.
func WatchPresence(dir *os.File) (*Presence, error) {
	own, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the session's directory: %w", err)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGIO) // first: it would end the process
	p := &Presence{C: c, dir: own, stop: func() { signal.Stop(c) }}
	fd := own.Fd()
	_, err = unix.FcntlInt(fd, unix.F_NOTIFY, dnNames)
	if err == nil {
		// To the process, not to the thread that asked.
		_, err = unix.FcntlInt(fd, unix.F_SETOWN, os.Getpid())
	}
	if err != nil { // a kernel without it
		p.poll(c)
	}
	return p, nil
}

func (p *Presence) poll(c chan<- os.Signal) {
	ended := make(chan struct{})
	stop := p.stop
	p.stop = func() {
		stop()
		close(ended)
	}
	go func() {
		tick := time.NewTicker(presencePoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				select {
				case c <- unix.SIGIO:
				default:
				}
			case <-ended:
				return
			}
		}
	}()
}

// Close ends the notices.
func (p *Presence) Close() {
	p.stop()
	p.dir.Close()
}

// Removed tells whether dir itself is no more: no path leads to it and nothing
// can be made in it, now and for ever. A directory that was only moved is not.
func Removed(dir *os.File) bool {
	var st unix.Stat_t
	err := onDescriptor(dir, func(fd int) error { return unix.Fstat(fd, &st) })
	return err == nil && st.Nlink == 0
}
