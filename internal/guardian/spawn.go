package guardian

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// pipeBytes is what the capture pipe holds: output that was taken from the
// terminal and is not in the log yet.
const pipeBytes = 1 << 20

// spawner makes the one owner of a session.
type spawner struct {
	dir      *sessiondir.Dir
	listener *net.UnixListener
	// exe is the owner's executable, nil when it could not be opened; exeErr says why.
	exe    *os.File
	exeErr error
	// self is the guardian's own executable, for the owner to start the next from.
	self   *os.File
	socket ownerlink.Socket
	idle   time.Duration
}

// parts are the descriptors of one launch, in the order in which they are made.
type parts struct {
	launch, master, slave, pipeR, pipeW, channel, theirs, lock *os.File
}

// closeOthers closes what the guardian does not need once the owner runs: the
// slave and the owner's ends, or end of file would never be seen.
func (p *parts) closeOthers() {
	for _, f := range []*os.File{p.launch, p.slave, p.theirs, p.lock} {
		if f != nil {
			f.Close()
		}
	}
}

func (p *parts) closeAll() {
	p.closeOthers()
	for _, f := range []*os.File{p.master, p.pipeR, p.pipeW, p.channel} {
		if f != nil {
			f.Close()
		}
	}
}

// spawn opens the terminal and starts the owner on it. A failure up to and
// including the spawn leaves no process and no descriptor behind.
func (sp *spawner) spawn(launch ownerlink.Launch, size protocol.Size) (*owner, *lifecycle.Failure) {
	p := &parts{}
	if failure := sp.prepare(p, launch, size); failure != nil {
		p.closeAll()
		return nil, failure
	}
	capture, err := sp.capture(p, launch.History)
	if err != nil {
		p.closeAll()
		return nil, failed("output", err)
	}
	forks, _ := procs.Forks() // 0: a later guardian has less to go by
	pid, pidfd, err := sp.fork(p)
	if err != nil {
		capture.Stop()
		p.closeAll()
		return nil, failed("spawn", err)
	}
	id, err := procs.Of(pid) // our child: at worst a zombie, which has one too
	var o *owner
	if err == nil {
		// The owner notes itself; one that never comes to that is found all the same.
		_ = sessiondir.NoteHolder(p.lock, id, forks)
		p.closeOthers()
		o, err = sp.own(p, capture, id, pidfd)
	}
	if err != nil {
		unix.Close(pidfd)
		unix.Kill(pid, unix.SIGKILL) // our child, not waited for: still itself
		unix.Wait4(pid, nil, 0, nil)
		capture.Stop()
		p.closeAll()
		return nil, failed("spawn", err)
	}
	return o, nil
}

// prepare makes everything the owner is given, step by step; the step that fails
// is the stage of the failure.
func (sp *spawner) prepare(p *parts, launch ownerlink.Launch, size protocol.Size) *lifecycle.Failure {
	if sp.exe == nil {
		return failed("owner", sp.exeErr)
	}
	launch.Socket, launch.Idle = sp.socket, sp.idle
	body, err := protocol.Marshal(launch)
	if err != nil {
		return failed("launch", err)
	}
	if p.launch, err = procs.SealedMemfd("mur-launch", body); err != nil {
		return failed("memfd", err)
	}
	p.master, p.slave, err = ptmx.Open(ptmx.Size{Cols: uint16(size.Cols), Rows: uint16(size.Rows)})
	if err != nil {
		return failed("pty", err)
	}
	if p.pipeR, p.pipeW, err = capturePipe(); err != nil {
		return failed("pipe", err)
	}
	if p.channel, p.theirs, err = peersock.Pair(); err != nil {
		return failed("channel", err)
	}
	if p.lock, err = sp.dir.OpenOwnerLock(); err != nil {
		return failed("lock", err)
	}
	ok, err := procs.Lock(p.lock)
	if err == nil && !ok {
		err = errors.New("owner.lock is held: another owner lives")
	}
	if err != nil {
		return failed("lock", err)
	}
	return nil
}

// capturePipe makes the pipe between terminal and log. It is non-blocking, and
// as large as the system lets an unprivileged user have.
func capturePipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, err
	}
	unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeBytes) // smaller works too
	return os.NewFile(uintptr(fds[0]), "capture-r"), os.NewFile(uintptr(fds[1]), "capture-w"), nil
}

func (sp *spawner) capture(p *parts, history int64) (*output.Capture, error) {
	dir, err := sp.dir.Output()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return output.NewCapture(dir, p.master, p.pipeR, p.pipeW, output.Options{History: history})
}

// fork starts the owner as the leader of a new session with the slave as its
// controlling terminal. The executable is run by descriptor: what is on the disk
// under its name may be another version by now.
func (sp *spawner) fork(p *parts) (pid, pidfd int, err error) {
	listener, err := sp.listener.File()
	if err != nil {
		return 0, -1, err
	}
	defer listener.Close()
	files := make([]uintptr, ownerlink.FDGuardian+1)
	for fd, f := range map[int]*os.File{
		0: p.slave, 1: p.slave, 2: p.slave,
		ownerlink.FDChannel: p.theirs, ownerlink.FDLaunch: p.launch, ownerlink.FDMaster: p.master,
		ownerlink.FDPipeR: p.pipeR, ownerlink.FDPipeW: p.pipeW, ownerlink.FDListener: listener,
		ownerlink.FDLock: p.lock, ownerlink.FDDir: sp.dir.File(), ownerlink.FDGuardian: sp.self,
	} {
		if files[fd], err = number(f); err != nil {
			return 0, -1, err
		}
	}
	named, err := number(sp.exe)
	if err != nil {
		return 0, -1, err
	}
	exe, err := procs.Above(named, files)
	if err != nil {
		return 0, -1, err
	}
	defer unix.Close(exe)
	// The thread's mask is inherited; the runtime's threads keep the one that the
	// process was started with.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := procs.ClearMask(); err != nil {
		return 0, -1, err
	}
	pidfd = -1
	pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", exe), []string{"mur-owner"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, PidFD: &pidfd},
	})
	runtime.KeepAlive(p)
	return pid, pidfd, err
}

// own makes the guardian's hold on the owner that was just started.
func (sp *spawner) own(p *parts, capture *output.Capture, id procs.Identity, pidfd int) (o *owner, err error) {
	o = &owner{id: id, conn: ownerlink.NewConn(p.channel), capture: capture, master: p.master, pipes: [2]*os.File{p.pipeR, p.pipeW}}
	if pidfd < 0 {
		o.pidfd, err = procs.Open(id)
	} else {
		o.pidfd, err = procs.Adopt(pidfd)
	}
	return o, err
}

// number is f's descriptor, without the change of mode that Fd can bring. f must
// be kept open.
func number(f *os.File) (uintptr, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n uintptr
	err = raw.Control(func(fd uintptr) { n = fd })
	return n, err
}

// failed makes a stage's failure of err.
func failed(stage string, err error) *lifecycle.Failure {
	f := &lifecycle.Failure{Stage: stage, Message: fmt.Sprintf("cannot start the owner: %s: %v", stage, err)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}
