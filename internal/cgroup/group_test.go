package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// made makes a group for the test, which is skipped where that is not permitted.
func made(t *testing.T) *Group {
	t.Helper()
	g, err := Make(fmt.Sprintf("mur-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := g.Dissolve(); err != nil {
			t.Error(err)
		}
		g.Close()
	})
	return g
}

// in starts a process in a group.
func in(t *testing.T, g *Group, line ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(line[0], line[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.Dir().Fd())}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func empty(t *testing.T, g *Group) {
	t.Helper()
	over := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		populated, err := g.Populated()
		if err != nil {
			t.Fatal(err)
		}
		if !populated {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatal("somebody is left in the group")
		}
	}
}

func TestAGroupIsKilledWithWhatIsBelowIt(t *testing.T) {
	g := made(t)
	if populated, err := g.Populated(); populated || err != nil {
		t.Fatal("a new group is populated: ", populated, err)
	}
	direct := in(t, g, "sleep", "500")
	if err := os.Mkdir(filepath.Join(g.Path(), "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	below, err := Open(filepath.Join(g.Path(), "below"))
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	deeper := in(t, below, "sleep", "500")
	pids, err := g.Members()
	if want := []int{direct.Process.Pid, deeper.Process.Pid}; err != nil || !slices.Equal(pids, want) {
		t.Errorf("%v, want %v, %v", pids, want, err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	empty(t, g)
	for _, c := range []*exec.Cmd{direct, deeper} {
		var ended *exec.ExitError
		if err := c.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("it ended with %v", err)
		}
	}
}

func TestWhatLivesInADissolvedGroupGoesOnInTheOneAbove(t *testing.T) {
	g := made(t)
	c := in(t, g, "sleep", "500")
	if err := g.Dissolve(); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	its, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.Process.Pid))
	if err != nil || string(its) != string(own) {
		t.Errorf("it is in %q, not in %q, %v", its, own, err)
	}
	if _, err := os.Stat(g.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

// What somebody in the group has made below it is his as long as he lives.
func TestGroupsThatOthersHaveMadeBelowAreNotTouched(t *testing.T) {
	g := made(t)
	path := filepath.Join(g.Path(), "theirs")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	theirs, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c := in(t, theirs, "sleep", "500")
	if err := g.Dissolve(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("dissolved: %v", err)
	}
	if pids, err := theirs.Members(); err != nil || !slices.Equal(pids, []int{c.Process.Pid}) {
		t.Errorf("members %v, %v", pids, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	empty(t, g)
	if err := g.Dissolve(); err != nil {
		t.Error(err)
	}
}

func TestThreadedGroupsBelowHideNobody(t *testing.T) {
	g := made(t)
	c := in(t, g, "sleep", "500")
	path := filepath.Join(g.Path(), "threads")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "cgroup.type"), []byte("threaded"), 0); err != nil {
		t.Skipf("no threaded group can be made: %v", err)
	}
	if pids, err := g.Members(); err != nil || !slices.Equal(pids, []int{c.Process.Pid}) {
		t.Errorf("members %v, %v", pids, err)
	}
	if err := g.Dissolve(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

func TestANameIsUsedOnce(t *testing.T) {
	g := made(t)
	if _, err := Make(filepath.Base(g.Path())); !errors.Is(err, os.ErrExist) {
		t.Errorf("the second gets %v", err)
	}
}

func TestADirectoryOfAnotherKindIsNoGroup(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("it was taken for a group")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing at all: %v", err)
	}
}

func TestPopulatedIsReadAsTheKernelWritesIt(t *testing.T) {
	for text, want := range map[string]bool{"populated 1\nfrozen 0\n": true, "populated 0\nfrozen 0\n": false, "frozen 1\npopulated 1": true} {
		if got, err := parsePopulated([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "populated\n", "populated x\n", "frozen 1\n"} {
		if _, err := parsePopulated([]byte(text)); err == nil {
			t.Errorf("%q was understood", text)
		}
	}
}
