package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// unable is how the role namespace ends where the kernel does not play along.
	unable = 77
	// pidMax is the largest pid of the namespace. After it they begin anew with
	// firstPID (RESERVED_PIDS of the kernel).
	pidMax, firstPID = 400, 300
	pidMaxFile       = "/proc/sys/kernel/pid_max"
)

// ownPIDMax tells whether the kernel has a pid_max for every namespace, as since
// 6.14. Before, this test would change that of the whole machine.
func ownPIDMax() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	release := unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the kernel's release is %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 14 {
		return fmt.Errorf("Linux %s has one pid_max for all", release)
	}
	return nil
}

func TestAStrangerWithARecycledPIDIsNotTouched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace")
	}
	if err := ownPIDMax(); err != nil {
		t.Skip(err)
	}
	before, err := os.ReadFile(pidMaxFile)
	if err != nil {
		t.Skip(err)
	}
	home, err := os.MkdirTemp("", "mur-s-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	model, err := acting("namespace", home)
	if err != nil {
		t.Fatal(err)
	}
	// With its end, by whatever it comes, the whole namespace is gone.
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, model.Path, model.Args[1:]...)
	cmd.Env = model.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if after, readErr := os.ReadFile(pidMaxFile); readErr != nil || string(after) != string(before) {
		os.WriteFile(pidMaxFile, before, 0)
		t.Fatalf("pid_max of the machine was %s and became %s, %v", before, after, readErr)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == unable:
		t.Skip(string(out))
	case err != nil && exit == nil && ctx.Err() == nil:
		t.Skipf("cannot make a pid namespace: %v", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, result, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			t.Run(name, func(t *testing.T) {
				if result != "<nil>" {
					t.Error(result)
				}
			})
		}
	}
}

// playNamespace is the first process of a pid namespace: it prepares it, runs the
// recycler in it, and reaps.
func playNamespace(args []string) (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return unable, fmt.Errorf("cannot make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return unable, fmt.Errorf("cannot mount /proc: %w", err)
	}
	if pid := os.Getpid(); pid != 1 {
		return 1, fmt.Errorf("this is process %d of its namespace", pid)
	}
	if err := os.WriteFile(pidMaxFile, strconv.AppendInt(nil, pidMax, 10), 0); err != nil {
		return unable, fmt.Errorf("cannot set pid_max: %w", err)
	}
	if text, err := os.ReadFile(pidMaxFile); err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(pidMax) {
		return unable, fmt.Errorf("pid_max is %s after it was set, %w", text, err)
	}
	cmd, err := acting("recycler", args...)
	if err != nil {
		return 1, err
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1, err
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 1, fmt.Errorf("the recycler ended with %#x", int(status))
		}
	}
}
