package owner

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

// target is the program of the session. Once it was reaped nobody may signal
// its pid any more.
type target struct {
	pid     int
	pidfd   int
	born    time.Time // monotonic
	stopped bool
	oom     uint64 // procs.OutOfMemoryKills before it was born
}

// siginfo is the kernel's siginfo_t for SIGCHLD on 64-bit machines.
type siginfo struct {
	signo, errno, code, _ int32
	pid, uid, status, _   int32
	_                     [96]byte
}

// The values of si_code for SIGCHLD (sigaction(2)).
const (
	cldExited    = 1
	cldKilled    = 2
	cldDumped    = 3
	cldStopped   = 5
	cldContinued = 6
)

func waitid(kind, id, options int, usage *unix.Rusage) (siginfo, error) {
	var info siginfo
	for {
		err := unix.Waitid(kind, id, (*unix.Siginfo)(unsafe.Pointer(&info)), options, usage)
		if err != unix.EINTR {
			return info, err
		}
	}
}

// look takes in what happened to the target. A non-nil result: it has ended and
// is a zombie still, so that its pid cannot belong to anybody else yet.
func (t *target) look() *lifecycle.ExitStatus {
	for {
		// A stop that is not consumed would be told again and again.
		info, err := waitid(unix.P_PIDFD, t.pidfd, unix.WSTOPPED|unix.WCONTINUED|unix.WNOHANG, nil)
		if err != nil || info.pid == 0 {
			break
		}
		t.stopped = info.code == cldStopped
	}
	var usage unix.Rusage
	info, err := waitid(unix.P_PIDFD, t.pidfd, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, &usage)
	if err != nil || info.pid == 0 {
		return nil
	}
	exit := &lifecycle.ExitStatus{
		At:       time.Now().UnixNano(),
		Duration: int64(time.Since(t.born)),
		Usage: &lifecycle.Usage{
			UserNanos:   usage.Utime.Nano(),
			SystemNanos: usage.Stime.Nano(),
			MaxRSSBytes: usage.Maxrss * 1024,
		},
	}
	switch info.code {
	case cldExited:
		exit.Code = int(info.status)
	case cldKilled, cldDumped:
		exit.Signal = int(info.status)
		exit.Core = info.code == cldDumped
		if now, err := procs.OutOfMemoryKills(); err == nil && exit.Signal == int(syscall.SIGKILL) && now > t.oom {
			exit.OOMKills = now - t.oom
		}
	}
	return exit
}

// signal reaches this process or nobody.
func (t *target) signal(sig syscall.Signal) error {
	return unix.PidfdSendSignal(t.pidfd, sig, nil, 0)
}

// reap gives the pid back.
func (t *target) reap() {
	_, _ = waitid(unix.P_PIDFD, t.pidfd, unix.WEXITED|unix.WNOHANG, nil)
	unix.Close(t.pidfd)
}

// reapOrphans reaps every dead child but spare, and tells whether the kernel
// says that there is no child at all, which proves that no descendant is left.
// While the target is not reaped (spare), a wait for any child would take its
// status away, so zombies are looked at first and then reaped by their pid.
func reapOrphans(spare int) (childless bool) {
	for {
		info, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG|unix.WALL, nil)
		if err == unix.ECHILD {
			return true
		}
		if err != nil || info.pid == 0 {
			return false
		}
		if int(info.pid) == spare {
			// It hides the others from this look; they are found again as soon
			// as it is reaped, which is next.
			return false
		}
		_, _ = waitid(unix.P_PID, int(info.pid), unix.WEXITED|unix.WNOHANG|unix.WALL, nil)
	}
}
