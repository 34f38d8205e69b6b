package durable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

func names(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

func TestWriteFileReplacesAndKeepsItPrivate(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for _, content := range []string{"first", "", "third, longer"} {
		if err := durable.WriteFile(dir, "f", []byte(content)); err != nil {
			t.Fatal(err)
		}
		wantContent(t, filepath.Join(path, "f"), content)
	}
	info, err := os.Stat(filepath.Join(path, "f"))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if got := names(t, path); len(got) != 1 {
		t.Fatalf("left behind: %q", got)
	}
}

func TestWriteFileReplacesALinkInsteadOfFollowingIt(t *testing.T) {
	path := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(path, "f")); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, path)
	if err := durable.CreateFile(dir, "f", []byte("new")); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("create over a link: %v", err)
	}
	if err := durable.WriteFile(dir, "f", []byte("new")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, victim, "untouched")
	wantContent(t, filepath.Join(path, "f"), "new")
}

func TestTheFirstOfManyCreatorsWins(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	var (
		group sync.WaitGroup
		errs  [16]error
	)
	for i := range errs {
		group.Go(func() { errs[i] = durable.CreateFile(dir, "f", []byte(fmt.Sprint(i))) })
	}
	group.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case !errors.Is(err, fs.ErrExist):
			t.Fatalf("creator %d: %v after winner %d", i, err, winner)
		}
	}
	wantContent(t, filepath.Join(path, "f"), fmt.Sprint(winner))
	if got := names(t, path); len(got) != 1 {
		t.Fatalf("left behind: %q", got)
	}
}

func TestAPathLongerThanTheKernelTakesDoesNotMatter(t *testing.T) {
	dir := openDir(t, t.TempDir())
	part := strings.Repeat("d", 200)
	for range 25 { // 5,000 bytes, PATH_MAX is 4,096
		if err := unix.Mkdirat(int(dir.Fd()), part, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(dir.Fd()), part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir = os.NewFile(uintptr(fd), part)
		t.Cleanup(func() { _ = dir.Close() })
	}
	if err := durable.WriteFile(dir, "f", []byte("deep")); err != nil {
		t.Fatal(err)
	}
	if err := durable.CreateFile(dir, "f", nil); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := durable.ClearTemps(dir); err != nil {
		t.Fatal(err)
	}
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for _, name := range []string{"", ".", "..", "a/b", "/a", "../a", "a\x00b", ".tmp-mine"} {
		if err := durable.WriteFile(dir, name, nil); err == nil {
			t.Errorf("wrote %q", name)
		}
		if err := durable.CreateFile(dir, name, nil); err == nil {
			t.Errorf("created %q", name)
		}
	}
	if got := names(t, path); len(got) != 0 {
		t.Fatalf("left behind: %q", got)
	}
}

func TestAFailedWriteLeavesTheOldContentAndNothingElse(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	if err := durable.WriteFile(dir, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	_, err := durable.Replace(dir, "f", func(f *os.File) error {
		_, _ = f.WriteString("half")
		return syscall.ENOSPC
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(path, "f"), "old")
	if got := names(t, path); len(got) != 1 {
		t.Fatalf("left behind: %q", got)
	}
}

func TestAReplacedFileStaysOpenAndUnlocked(t *testing.T) {
	path := t.TempDir()
	f, err := durable.Replace(openDir(t, path), "f", func(f *os.File) error {
		_, err := f.WriteString("one")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := os.OpenFile(filepath.Join(path, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(other.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type != unix.F_UNLCK {
		t.Fatalf("still locked: %+v (%v)", lock, err)
	}
	if _, err := f.WriteAt([]byte("two"), 3); err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(path, "f"), "onetwo")
}

func TestClearTempsTakesOnlyStaleFiles(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	for _, name := range []string{".tmp-stale1", ".tmp-stale2", "kept"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("kept", filepath.Join(path, ".tmp-link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(path, ".tmp-fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(path, ".tmp-dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := durable.Replace(dir, "f", func(*os.File) error {
		if err := durable.ClearTemps(dir); err != nil { // in the middle of a write
			return err
		}
		left := names(t, path)
		for _, name := range left {
			if strings.HasPrefix(name, ".tmp-stale") {
				return fmt.Errorf("stale file kept: %q", left)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	want := []string{".tmp-dir", ".tmp-fifo", ".tmp-link", "f", "kept"}
	if got := names(t, path); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("after clearing: %q, want %q", got, want)
	}
}

func TestClearingBesideWritersBreaksNoWrite(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	var writers, clearer sync.WaitGroup
	done := make(chan struct{})
	clearer.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := durable.ClearTemps(dir); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				name := fmt.Sprintf("f%d", w)
				if err := durable.WriteFile(dir, name, bytes.Repeat([]byte{byte(i)}, 5000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	clearer.Wait()
	if got := names(t, path); len(got) != 4 {
		t.Fatalf("left behind: %q", got)
	}
}
