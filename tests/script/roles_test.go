package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

// rolePrefix begins the first argument of this test binary when it is to play a
// process of the tests. It is no variable, as some of them have no environment.
const rolePrefix = "role="

// roleOf tells which role this process has, and its arguments.
func roleOf(args []string) (role string, rest []string) {
	if len(args) < 2 || !strings.HasPrefix(args[1], rolePrefix) {
		return "", nil
	}
	return strings.TrimPrefix(args[1], rolePrefix), args[2:]
}

// play is the main function of a role.
func play(role string, args []string) int {
	roles := map[string]func([]string) (int, error){
		"tree": playTree, "parent": playParent, "member": playMember,
		"pattern": playPattern, "forker": playForker, "deaf": playDeaf,
		"namespace": playNamespace, "recycler": playRecycler, "background": playBackground,
	}
	act := roles[role]
	if act == nil {
		act = func([]string) (int, error) { return 1, errors.New("there is no such role") }
	}
	code, err := act(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return max(code, 1)
	}
	return code
}

// actor is a launch of a role.
func actor(role string, args ...string) (client.StartSpec, error) {
	self, err := os.Executable()
	spec := program(self, append([]string{rolePrefix + role}, args...)...)
	spec.Env["GORACE"] = "atexit_sleep_ms=0" // else its end takes a second
	return spec, err
}

// acting is a command that plays a role.
func acting(role string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	cmd := exec.Command(self, append([]string{rolePrefix + role}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	return cmd, err
}

// fork is fork(2) without exec: 0 in the child, which has one thread and no Go
// runtime that works. It may only call what does not need one.
//
//go:norace
//go:nosplit
func fork() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	return pid, errno
}

// leave ends a process made by fork.
//
//go:norace
//go:nosplit
func leave(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// doze sleeps in a process made by fork.
//
//go:norace
//go:nosplit
func doze(d *unix.Timespec) {
	syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(d)), 0, 0)
}

// playDeaf ignores and blocks every signal, then becomes another program.
func playDeaf(args []string) (int, error) {
	runtime.LockOSThread() // the mask is the thread's
	signal.Ignore()
	type sigaction struct {
		handler  uintptr
		flags    uint64
		restorer uintptr
		mask     uint64
	}
	ignore := sigaction{handler: 1}
	for sig := uintptr(1); sig <= 64; sig++ { // SIGKILL and SIGSTOP refuse
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, unsafe.Sizeof(ignore.mask), 0, 0)
	}
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return 1, err
	}
	return 1, syscall.Exec(args[0], args, os.Environ())
}
