package machine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// openFiles counts the process's descriptors; that of the listing is among them.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestWhatSessionsNeedIsThereAndNothingIsLeft(t *testing.T) {
	parent := t.TempDir()
	// The first of these opens what the runtime keeps: its poller.
	if _, err := PidFDs(); err != nil {
		t.Errorf("pidfds: %v", err)
	}
	before := openFiles(t)
	for name, probe := range map[string]func() error{
		"close_range": CloseRange, "sealed memory": SealedMemory, "subreaper": Subreaper, "children": ChildrenFiles,
		"pidfds":      func() error { _, err := PidFDs(); return err },
		"terminals":   func() error { _, _, err := Terminals(); return err },
		"descriptors": func() error { _, err := Descriptors(); return err },
	} {
		if err := probe(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	trial, err := NewTrial(parent)
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	if err := trial.Names(ctx); err != nil {
		t.Errorf("names: %v", err)
	}
	if err := trial.Locks(); err != nil {
		t.Errorf("locks: %v", err)
	}
	if copying, err := trial.Splice(ctx); err != nil {
		t.Errorf("splice: copying %v, %v", copying, err)
	}
	if err := trial.Notices(ctx); err == unix.EINVAL {
		t.Log("this kernel has no F_NOTIFY")
	} else if err != nil {
		t.Errorf("notices: %v", err)
	}
	if err := trial.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
	if is, err := isSubreaper(); is != 0 || err != nil {
		t.Errorf("subreaper %v, %v", is, err)
	}
}

func TestWhoIsASubreaperStaysOne(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	if err := Subreaper(); err != nil {
		t.Fatal(err)
	}
	if is, err := isSubreaper(); is != 1 || err != nil {
		t.Errorf("subreaper %v, %v", is, err)
	}
}

func TestAGroupThatWasTriedIsRemoved(t *testing.T) {
	c, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	if c.Dir == "" {
		t.Skipf("no group to try: %v", c)
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "mur-doctor-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheFileSystemOfADirectoryIsKnown(t *testing.T) {
	fs, err := FileSystemOf(t.TempDir())
	if err != nil || fs.Kind == "" || fs.Free == 0 {
		t.Errorf("%+v, %v", fs, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skipf("/dev/shm is no tmpfs: %#x, %v", st.Type, err)
	}
	if fs, err := FileSystemOf("/dev/shm"); err != nil || !fs.Volatile || fs.Kind != "tmpfs" {
		t.Errorf("%+v, %v", fs, err)
	}
	if _, err := FileSystemOf(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a path that does not exist has a file system")
	}
}

func TestATrialNeedsAPlace(t *testing.T) {
	if _, err := NewTrial(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a trial was made nowhere")
	}
}

func TestATerminalThatIsInUseIsCounted(t *testing.T) {
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 80, Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	used, limit, err := Terminals()
	if err != nil {
		t.Fatal(err)
	}
	if limit > 0 && used < 1 {
		t.Errorf("%d of %d terminals are in use, and we have one", used, limit)
	}
}
