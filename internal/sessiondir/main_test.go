package sessiondir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const childEnv = "MUR_SESSIONDIR_TEST"

func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		if err := runChild(strings.Split(args, "\n")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runChild is what the tests do in a process of its own, to kill it or to give
// it another umask.
func runChild(args []string) error {
	switch args[0] {
	case "create": // root umask name id...
		mask, err := strconv.ParseUint(args[2], 8, 32)
		if err != nil {
			return err
		}
		syscall.Umask(int(mask))
		return childCreate(args[1], args[3], args[4:])
	case "hold": // directory lock note|mute
		return childHold(args[1], args[2], args[3] == "note")
	}
	return fmt.Errorf("unknown child %q", args[0])
}

func childCreate(path, name string, ids []string) error {
	r, err := OpenRoot(path)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for i, text := range ids {
		id, err := protocol.ParseMutationID(text)
		if err != nil {
			return err
		}
		o := CreateOptions{Name: name}
		if len(ids) > 1 {
			o.Name = fmt.Sprint(name, i)
		}
		if _, _, err := r.Create(id, o); err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

func childHold(path, lock string, note bool) error {
	d, err := Open(path)
	if err != nil {
		return err
	}
	f, err := d.openLock(lock, os.O_RDWR)
	if err != nil {
		return err
	}
	if ok, err := procs.Lock(f); err != nil || !ok {
		return errors.Join(err, errors.New("not locked"))
	}
	self, err := procs.Self()
	if err != nil {
		return err
	}
	if note {
		if err := NoteHolder(f, self, 0); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

type child struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	once sync.Once
}

// spawn starts a child and waits for its first line. It is killed at the end.
func spawn(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.CommandContext(bounded(t), os.Args[0])}
	c.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "\n"))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	c.out = bufio.NewReader(out)
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return c
}

func (c *child) kill() {
	c.once.Do(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newRoot(t testing.TB) *Root {
	t.Helper()
	return openRoot(t, filepath.Join(t.TempDir(), "state"))
}

func openRoot(t testing.TB, path string) *Root {
	t.Helper()
	r, err := OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func newID() protocol.MutationID { return protocol.NewMutationID(time.Now()) }

func create(t testing.TB, r *Root, id protocol.MutationID, o CreateOptions) *Dir {
	t.Helper()
	d, created, err := r.Create(id, o)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// wantTidy checks that nothing but sessions and names is there, that every name
// is that of one session, and that everything is private.
func wantTidy(t *testing.T, r *Root) {
	t.Helper()
	ids, err := r.List()
	if err != nil {
		t.Fatal(err)
	}
	found, err := readNames(r.sessions)
	if err != nil || len(found) != len(ids) {
		t.Errorf("%d sessions in %q, %v", len(ids), found, err)
	}
	byName := make(map[string]protocol.SessionID)
	for _, id := range ids {
		d, err := r.Open(id)
		if err != nil {
			t.Error(err)
			continue
		}
		if name := d.boot.Name; name != "" {
			if other := byName[name]; other != "" {
				t.Errorf("%s and %s are both %s", other, id, name)
			}
			byName[name] = id
		}
		d.Close()
	}
	for name, id := range byName {
		if got, err := r.Resolve(name); got != id || err != nil {
			t.Errorf("%s is %q, %v, want %s", name, got, err, id)
		}
	}
	entries, err := readNames(r.names)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries {
		if durable.IsTemp(name) {
			t.Errorf("%s was left in the names", name)
		}
	}
	wantPrivate(t, r.path)
}

func wantPrivate(t *testing.T, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
