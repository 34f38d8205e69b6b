package peersock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/peersock"
)

const asChild = "PEERSOCK_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asChild); dir != "" {
		os.Exit(undumpableChild(dir))
	}
	goleak.VerifyTestMain(m)
}

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { dir.Close() })
	return dir
}

func listen(t *testing.T, dir *os.File) *net.UnixListener {
	t.Helper()
	l, err := peersock.Listen(dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDialReachesListenerInDeepDirectory(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, deep)
	l := listen(t, dir)
	st, err := os.Lstat(filepath.Join(deep, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
		t.Errorf("the file is %v", st.Mode())
	}
	c, err := peersock.Dial(bounded(t), dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	uid, pid, err := peersock.PeerUID(s)
	if err != nil || uid != os.Geteuid() || pid != os.Getpid() {
		t.Errorf("the peer is uid %d, pid %d, %v", uid, pid, err)
	}
}

func TestCloseLeavesTheNameToItsSuccessor(t *testing.T) {
	dir := openDir(t, t.TempDir())
	first := listen(t, dir)
	id, err := peersock.FileOf(dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	if !peersock.StillBound(dir, "s.sock", id) {
		t.Error("a new listener is not bound")
	}
	if _, err := peersock.Listen(dir, "s.sock"); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("a second Listen gives %v", err)
	}
	if err := os.Remove(filepath.Join(dir.Name(), "s.sock")); err != nil {
		t.Fatal(err)
	}
	if peersock.StillBound(dir, "s.sock", id) {
		t.Error("bound although the name is gone")
	}
	listen(t, dir)
	if peersock.StillBound(dir, "s.sock", id) {
		t.Error("the successor's file is taken for the first one's")
	}
	first.Close()
	c, err := peersock.Dial(bounded(t), dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestInheritedListenerKeepsItsBacklog(t *testing.T) {
	dir := openDir(t, t.TempDir())
	first := listen(t, dir)
	kept, err := first.File()
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	first.Close()
	c, err := peersock.Dial(bounded(t), dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next, err := peersock.FileListener(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	next.SetDeadline(time.Now().Add(10 * time.Second))
	s, err := next.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestFileListenerRefusesOtherFiles(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := peersock.FileListener(f); err == nil {
		t.Error("a device was taken for a listener")
	}
}

func TestDialOfStaleNameIsRefused(t *testing.T) {
	dir := openDir(t, t.TempDir())
	listen(t, dir).Close()
	if _, err := peersock.Dial(bounded(t), dir, "s.sock"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	if _, err := peersock.Dial(bounded(t), dir, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestDialWaitsForRoomInTheBacklog(t *testing.T) {
	dir := openDir(t, t.TempDir())
	l := listen(t, dir)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
	if err != nil {
		t.Fatal(err)
	}
	first, err := peersock.Dial(bounded(t), dir, "s.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := peersock.Dial(ended, dir, "s.sock"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Dial with a full backlog gives %v", err)
	}
	done := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		c, err := peersock.Dial(ctx, dir, "s.sock")
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	dir := openDir(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "a/b", "a\x00b", strings.Repeat("n", 81)} {
		if l, err := peersock.Listen(dir, name); err == nil {
			l.Close()
			t.Errorf("Listen takes %q", name)
		}
		if c, err := peersock.Dial(bounded(t), dir, name); err == nil {
			c.Close()
			t.Errorf("Dial takes %q", name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir.Name(), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := peersock.FileOf(dir, "file"); err == nil {
		t.Error("a plain file is taken for a socket")
	}
}

func TestPairKeepsMessagesWhole(t *testing.T) {
	a, b, err := peersock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, m := range []string{"one", "second"} {
		if _, err := a.Write([]byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	b.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 100)
	for _, want := range []string{"one", "second"} {
		n, err := b.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("read %q, %v, want %q", buf[:n], err, want)
		}
	}
	if n, err := b.Read(buf); n != 0 || err == nil {
		t.Errorf("after the close %d bytes, %v", n, err)
	}
}

// A process that is not dumpable owns nothing under its own /proc/self; as an
// ordinary user it must reach its directory all the same.
func TestUndumpableUserListensAndDials(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "peersock")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "test")
	if err := os.WriteFile(bin, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(t), bin)
	cmd.Env = []string{asChild + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func undumpableChild(path string) int {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = roundTrip(path)
	}
	if err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

func roundTrip(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	l, err := peersock.Listen(dir, "s.sock")
	if err != nil {
		return err
	}
	c, err := peersock.Dial(context.Background(), dir, "s.sock")
	if err != nil {
		return err
	}
	uid, _, err := peersock.PeerUID(c)
	if err == nil && uid != os.Geteuid() {
		err = errors.New("wrong uid")
	}
	l.Close()
	return err
}
