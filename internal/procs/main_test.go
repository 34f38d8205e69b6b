package procs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// role makes this test binary play a process of the tests.
const role = "PROCS_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		goleak.VerifyTestMain(m)
		return
	case "dirty-ancestor":
		err = dirtyAncestor()
	case "clean-owner":
		err = cleanOwner()
	case "undumpable":
		err = undumpable()
	case "subreaper":
		err = subreaper()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func reexec(t *testing.T, as string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{role + "=" + as, "GOMAXPROCS=2"}
	return cmd
}

// dirtyAncestor ignores and blocks all that can be, then becomes the owner.
func dirtyAncestor() error {
	signal.Ignore()
	ign := sigaction{handler: sigIgn}
	for s := 1; s <= lastSignal; s++ {
		rtSigaction(s, &ign, nil) // SIGKILL and SIGSTOP refuse
	}
	if err := ClearMask(); err != nil {
		return err
	}
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", []string{"owner"}, []string{role + "=clean-owner"})
}

func cleanOwner() error {
	if err := ResetSignals(); err != nil {
		return err
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGTERM, syscall.SIGTSTP)
	if err := ClearMask(); err != nil {
		return err
	}
	cmd := exec.Command("/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
	cmd.Stdout = os.Stdout
	return cmd.Run()
}

// start runs a shell that ends when its standard input does.
func start(t *testing.T, script string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "up" {
		t.Fatalf("the shell said %q, %v", line, err)
	}
	return cmd, in
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
