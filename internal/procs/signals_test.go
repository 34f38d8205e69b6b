package procs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTargetOfDirtyAncestorHasCleanSignals(t *testing.T) {
	out, err := reexec(t, "dirty-ancestor").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Fields(string(out))
	want := []string{"SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the target has %v", got)
	}
}

// undumpable looks at itself and at another process through everything that a
// process without access to its own /proc entries must still be able to use.
func undumpable() error {
	if err := Undumpable(); err != nil {
		return err
	}
	id, err := Self()
	if err != nil {
		return err
	}
	if !id.Alive() {
		return errors.New("not alive")
	}
	p, err := Open(id)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := closeOnExecWalk(3); err != nil {
		return err
	}
	_, err = Descendants(id.PID)
	return err
}

func TestUndumpableUserSeesItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "procs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/test", exe, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := reexec(t, "undumpable")
	cmd.Path = dir + "/test"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// subreaper lets a grandchild lose its parent and waits until it has reaped it.
func subreaper() error {
	if err := BecomeSubreaper(); err != nil {
		return err
	}
	if err := exec.Command("/bin/sh", "-c", "/bin/cat <&3 & exit 0").Run(); err != nil {
		return err
	}
	for {
		pids, err := Children(os.Getpid())
		if err != nil {
			return err
		}
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		switch _, err := unix.Wait4(-1, nil, 0, nil); err {
		case nil, unix.EINTR:
		case unix.ECHILD:
			fmt.Println("nothing left")
			return nil
		default:
			return err
		}
	}
}

func TestSubreaperGetsTheOrphans(t *testing.T) {
	cmd := reexec(t, "subreaper")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd.ExtraFiles = []*os.File{r}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "nothing left\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCloseOnExecFromMarksOnlyFromThere(t *testing.T) {
	for name, mark := range map[string]func(int) error{"close_range": CloseOnExecFrom, "walk": closeOnExecWalk} {
		t.Run(name, func(t *testing.T) {
			fds := make([]int, 2)
			for i := range fds {
				fd, err := unix.FcntlInt(0, unix.F_DUPFD, 400)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				fds[i] = fd
			}
			if err := mark(fds[1]); err != nil {
				t.Fatal(err)
			}
			for i, want := range []int{0, unix.FD_CLOEXEC} {
				if got, err := unix.FcntlInt(uintptr(fds[i]), unix.F_GETFD, 0); got != want {
					t.Errorf("descriptor %d: flags %d, want %d, %v", i, got, want, err)
				}
			}
		})
	}
}
