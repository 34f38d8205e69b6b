package client

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every wait of the tests.
const patience = 30 * time.Second

// binDir is where TestMain puts the programs.
func binDir() string { return os.Getenv("MUR_CLIENT_TEST_BIN") }

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	if path := os.Getenv(hangVar); path != "" {
		return hang(path, os.Getenv(hangVar+"_NOTED") != "")
	}
	dir, err := os.MkdirTemp("", "mur-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"guardian", "owner"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "mur-"+name), "github.com/seed-8e62c83d/mur/cmd/"+name)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	os.Setenv("MUR_CLIENT_TEST_BIN", dir)
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// bench is a state directory whose sessions are ended with the test.
type bench struct {
	t *testing.T
	c *Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	root, err := os.MkdirTemp("", "mur-c-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Root: root, Bin: binDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, c: c}
	t.Cleanup(func() {
		b.endAll()
		c.Close()
		os.RemoveAll(root)
	})
	return b
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// endAll leaves neither processes nor files.
func (b *bench) endAll() {
	ids, err := b.c.IDs()
	if err != nil {
		b.t.Error(err)
	}
	for _, id := range ids {
		if err := b.end(id); err != nil {
			b.t.Errorf("cannot end %s: %v", id, err)
		}
	}
}

func (b *bench) end(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := b.c.Open(id)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	if st.State != StateNew {
		if _, err := s.Sweep(ctx, NewMutationID()); err != nil {
			return err
		}
		if _, err := s.WaitEnd(ctx); err != nil {
			return err
		}
	}
	if _, err := s.Retire(ctx, NewMutationID()); err != nil {
		return err
	}
	return s.Purge(ctx)
}

func (b *bench) create(name string) *Session {
	b.t.Helper()
	s, err := b.c.Create(b.ctx(), CreateOptions{Name: name})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	return s
}

// shell makes a session and starts a shell line in it.
func (b *bench) shell(name, line string) *Session {
	b.t.Helper()
	s := b.create(name)
	r, err := s.Start(b.ctx(), NewMutationID(), shellSpec(line))
	if err != nil || r.Answer.State != StateRunning {
		b.t.Fatalf("start: %+v, %v", r.Answer, err)
	}
	return s
}

func shellSpec(line string) StartSpec {
	return StartSpec{
		Program: []byte("/bin/sh"), Args: [][]byte{[]byte("-c"), []byte(line)}, Cwd: []byte("/"),
		Env: map[Bytes]Bytes{"PATH": "/usr/bin:/bin"},
	}
}

// stop stops a process and waits until each of its threads has: kill(2) returns
// before that, and the last of them may still answer somebody.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all threads to be stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range threads {
			var b []byte
			if b, err = os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(") T ")) {
				return false
			}
		}
		return err == nil && len(threads) > 0
	})
}

// eventually polls a condition that nothing announces.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// hit signals one process. A pid that is not known (yet) is 0, and kill(2) takes that
// for everybody in our own group.
func hit(pid int, sig syscall.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("cannot signal process %d", pid)
	}
	return syscall.Kill(pid, sig)
}
