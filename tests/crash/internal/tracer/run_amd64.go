package tracer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long what the program has started may take to end after it; then
// it is let go.
const grace = 2 * time.Second

const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

// Supported tells why a process may not be traced here, nil if it may.
func Supported() error {
	root, err := os.MkdirTemp("", "tracer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	_, err = Run(Program{Argv: []string{"/bin/true"}, Root: root}, Fault{})
	return err
}

// Run runs the program once. The error is about the tracing, never about the
// program.
func Run(p Program, f Fault) (*Result, error) {
	if p.Patience == 0 {
		p.Patience = defaultPatience
	}
	root, err := filepath.EvalSymlinks(p.Root)
	if err != nil {
		return nil, fmt.Errorf("cannot trace: %w", err)
	}
	p.Root = root
	// Files, not pipes: what is let go must neither block nor die on them.
	var streams [2]*os.File
	for i := range streams {
		if streams[i], err = os.CreateTemp("", "traced-"); err != nil {
			return nil, fmt.Errorf("cannot trace: %w", err)
		}
		defer os.Remove(streams[i].Name())
		defer streams[i].Close()
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env, streams[0], streams[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	t := newTracing(p, f, streams[0].Name())
	done := make(chan error)
	go func() {
		// Tracees belong to a thread. This one ends with the goroutine, which
		// returns locked.
		runtime.LockOSThread()
		done <- t.run(cmd)
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("cannot trace: %w", err)
	}
	t.finish(cmd)
	for i, to := range []*[]byte{&t.res.Stdout, &t.res.Stderr} {
		if *to, err = io.ReadAll(io.NewSectionReader(streams[i], 0, maxData)); err != nil {
			return nil, fmt.Errorf("cannot read what the traced program said: %w", err)
		}
	}
	return t.res, nil
}

// thread is one that is traced.
type thread struct {
	tgid   int
	role   string
	inCall bool
	call   int // index into the result's calls, -1: not one that counts
	act    Mode
	fake   bool
	boot   int64 // from where it reads the boot id, -1: it does not
}

// tracing is one run. All of it happens on one thread.
type tracing struct {
	program Program
	fault   Fault
	decoder decoder
	res     *Result
	threads map[int]*thread
	sites   sites
	clock   int      // counts the ends of calls
	pids    sync.Map // of all that is traced, for who wakes the loop
	main    int
	running bool // the program itself
	grace   *time.Timer
	dying   int  // the one process that was killed
	sticky  bool // the fault has been reached and stays
	letGo   bool // every thread is let go at its next stop
	late    atomic.Bool
	over    atomic.Bool // the grace is over
}

func newTracing(p Program, f Fault, stdout string) *tracing {
	roles := map[string]string{filepath.Base(p.Argv[0]): Client}
	for name, role := range p.Roles {
		roles[name] = role
	}
	p.Roles = roles
	return &tracing{
		program: p, fault: f, decoder: decoder{root: p.Root, stdout: stdout}, res: &Result{Exit: -1},
		threads: map[int]*thread{}, sites: sites{},
	}
}

// seize starts the program and takes hold of it at its first instruction. A
// process that is traced from its fork on cannot be interrupted, one that is
// seized can, and so can all its children: so it is let go stopped, and seized.
func (t *tracing) seize(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	t.main, t.running = cmd.Process.Pid, true
	t.threads[t.main] = &thread{tgid: t.main, role: Client, call: -1, boot: -1}
	t.pids.Store(t.main, true)
	var ws unix.WaitStatus
	if _, err := wait(t.main, &ws); err != nil {
		return err
	}
	if err := ptrace(unix.PTRACE_DETACH, t.main, uintptr(unix.SIGSTOP)); err != nil {
		return err
	}
	if err := ptrace(unix.PTRACE_SEIZE, t.main, options); err != nil {
		return err
	}
	if _, err := wait(t.main, &ws); err != nil {
		return err
	}
	if err := unix.Kill(t.main, unix.SIGCONT); err != nil {
		return err
	}
	for {
		err := unix.PtraceSyscall(t.main, 0)
		if !errors.Is(err, unix.ESRCH) {
			return err
		}
		// It is on its way from the stop by the signal to that of being continued.
		if _, err := wait(t.main, &ws); err != nil {
			return err
		}
	}
}

func (t *tracing) run(cmd *exec.Cmd) error {
	if err := t.seize(cmd); err != nil {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
		return err
	}
	limit := time.AfterFunc(t.program.Patience, func() {
		t.late.Store(true)
		t.wake()
	})
	defer limit.Stop()
	defer t.stopGrace()
	for len(t.threads) > 0 {
		var ws unix.WaitStatus
		tid, err := wait(-1, &ws)
		if errors.Is(err, unix.ECHILD) {
			return nil
		}
		if err != nil {
			return err
		}
		t.stopped(tid, ws)
	}
	return nil
}

// wake ends the loop's wait: a signal to a tracee is a stop.
func (t *tracing) wake() {
	t.pids.Range(func(pid, _ any) bool {
		_ = unix.Kill(pid.(int), unix.SIGCONT)
		return true
	})
}

// stopped handles one report of the kernel.
func (t *tracing) stopped(tid int, ws unix.WaitStatus) {
	if ws.Exited() || ws.Signaled() {
		t.gone(tid, ws)
		return
	}
	th := t.threads[tid]
	if th == nil {
		th = &thread{call: -1, boot: -1}
		th.tgid = processOf(tid)
		th.role = t.roleOf(tid)
		t.threads[tid] = th
		t.pids.Store(th.tgid, true)
	}
	if t.late.Load() && !t.res.Late {
		t.res.Late = true
		t.killAll()
	}
	if t.over.Load() && !t.letGo {
		t.releaseAll()
	}
	if t.res.Killed && !t.fault.One {
		// Born while the others were killed.
		_ = unix.Kill(th.tgid, unix.SIGKILL)
	}
	sig, deliver := ws.StopSignal(), 0
	switch {
	case sig == unix.SIGTRAP|0x80:
		if !t.res.Killed || t.fault.One {
			t.syscall(tid, th)
		}
	case ws>>16 == unix.PTRACE_EVENT_EXEC:
		// The exit of execve comes next, on this thread.
		th.inCall, th.call, th.tgid, th.role = true, -1, tid, t.roleOf(tid)
		if th.role == "" {
			t.res.Others = append(t.res.Others, tid)
			t.release(tid, 0)
			return
		}
	case ws>>16 != 0: // a child's birth, a new thread's first stop, a group's stop
	case sig != unix.SIGCONT:
		deliver = int(sig)
	}
	// What is dying must not be let go: its exit is waited for.
	if t.letGo && th.tgid != t.dying {
		t.release(tid, deliver)
		return
	}
	_ = unix.PtraceSyscall(tid, deliver) // ESRCH when it was just killed
}

func (t *tracing) gone(tid int, ws unix.WaitStatus) {
	delete(t.threads, tid)
	t.pids.Delete(tid)
	if tid != t.main {
		return
	}
	t.running = false
	if ws.Exited() {
		t.res.Exit = ws.ExitStatus()
	} else {
		t.res.Signal = ws.Signal()
	}
	t.grace = time.AfterFunc(grace, func() {
		t.over.Store(true)
		t.wake()
	})
}

func (t *tracing) stopGrace() {
	if t.grace != nil {
		t.grace.Stop()
	}
}

// release lets one thread go.
func (t *tracing) release(tid, signal int) {
	th := t.threads[tid]
	delete(t.threads, tid)
	t.pids.Delete(tid)
	_ = ptrace(unix.PTRACE_DETACH, tid, uintptr(signal))
	if th.role != "" && tid == th.tgid {
		t.res.Survivors = append(t.res.Survivors, tid)
	}
}

// releaseAll brings every thread to a stop, at which it is let go.
func (t *tracing) releaseAll() {
	t.letGo = true
	for tid := range t.threads {
		_ = unix.PtraceInterrupt(tid)
	}
}

func (t *tracing) killAll() {
	t.res.Killed = true
	for _, th := range t.threads {
		_ = unix.Kill(th.tgid, unix.SIGKILL)
	}
}

// kill carries out the fault.
func (t *tracing) kill(th *thread) {
	if !t.fault.One {
		t.killAll()
		return
	}
	t.res.Killed, t.dying = true, th.tgid
	_ = unix.Kill(th.tgid, unix.SIGKILL)
	t.releaseAll()
}

// finish waits for a program that was let go.
func (t *tracing) finish(cmd *exec.Cmd) {
	if !t.running {
		_ = cmd.Process.Release()
		return
	}
	limit := time.AfterFunc(t.program.Patience, func() {
		t.late.Store(true)
		_ = cmd.Process.Kill()
	})
	defer limit.Stop()
	_ = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		t.res.Signal = ws.Signal()
	}
	t.res.Late = t.res.Late || t.late.Load()
	t.res.Exit = cmd.ProcessState.ExitCode()
}

func (t *tracing) roleOf(tid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", tid))
	return t.program.Roles[filepath.Base(exe)]
}

func processOf(tid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	tgid := tid
	for line := range lines(b) {
		if n, _ := fmt.Sscanf(line, "Tgid:\t%d", &tgid); n == 1 {
			return tgid
		}
	}
	return tgid
}

// wait waits for what this very thread traces, so that runs in parallel do not
// take each other's reports.
func wait(pid int, ws *unix.WaitStatus) (int, error) {
	for {
		tid, err := unix.Wait4(pid, ws, unix.WALL|unix.WNOTHREAD, nil)
		if !errors.Is(err, unix.EINTR) {
			return tid, err
		}
	}
}

func ptrace(request, pid int, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
