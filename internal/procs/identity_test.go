package procs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestIdentityOutlivesNothing(t *testing.T) {
	cmd, in := start(t, "echo up; read x")
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Error("a running process is not alive")
	}
	for name, other := range map[string]Identity{
		"other start": {id.PID, id.Start + 1, id.Boot},
		"other boot":  {id.PID, id.Start, "0"},
		"no pid":      {0, id.Start, id.Boot},
	} {
		if other.Alive() {
			t.Errorf("%s: alive", name)
		}
		if p, err := Open(other); !errors.Is(err, ErrGone) {
			t.Errorf("%s: Open gives %v, %v", name, p, err)
		}
	}
	p, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in.Close()
	if err := p.Wait(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if id.Alive() || !p.Exited() {
		t.Error("a zombie is alive")
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a zombie gives %v", err)
	}
	cmd.Wait()
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("a signal to nobody gives %v", err)
	}
	if _, err := Open(id); !errors.Is(err, ErrGone) {
		t.Errorf("Open of nobody gives %v", err)
	}
	if _, err := Of(id.PID); !errors.Is(err, ErrGone) {
		t.Errorf("Of nobody gives %v", err)
	}
}

func TestWaitsAreIndependent(t *testing.T) {
	cmd, in := start(t, "echo up; read x")
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	long := make(chan error, 1)
	ctx := bounded(t)
	go func() { long <- p.Wait(ctx) }()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled Wait gives %v", err)
	}
	select {
	case err := <-long:
		t.Fatalf("the other Wait ended too: %v", err)
	default:
	}
	in.Close()
	if err := <-long; err != nil {
		t.Error(err)
	}
}

func TestCloseEndsWait(t *testing.T) {
	p, err := Open(mustSelf(t))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx := bounded(t)
	for range 8 {
		wg.Go(func() {
			if err := p.Wait(ctx); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Wait gives %v", err)
			}
		})
	}
	p.Close()
	wg.Wait()
}

func TestAdoptedPidFDFromClone(t *testing.T) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Adopt(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Exited() {
		t.Error("we have exited")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait gives %v", err)
	}
	if _, err := Adopt(1 << 20); err == nil {
		t.Error("a closed descriptor was adopted")
	}
}

func TestTreeOfProcesses(t *testing.T) {
	cmd, _ := start(t, `exec 3<&0; sh -c 'cat <&3 & echo up; wait' & wait`)
	pid := cmd.Process.Pid
	children, err := Children(pid)
	if err != nil || len(children) != 1 {
		t.Fatalf("children %v, %v", children, err)
	}
	if byScan, err := childrenByScan(pid); err != nil || !slices.Equal(byScan, children) {
		t.Errorf("a scan finds %v, %v, want %v", byScan, err, children)
	}
	all, err := Descendants(pid)
	if err != nil || len(all) != 2 || all[0] != children[0] {
		t.Fatalf("descendants %v, %v", all, err)
	}
	members, err := SessionMembers(pid)
	if err != nil || len(members) != 3 {
		t.Errorf("session %v, %v", members, err)
	}
	waitName(t, all[1], "cat")
	for _, p := range []int{all[0], all[1], pid} {
		unix.Kill(p, unix.SIGKILL)
	}
	cmd.Wait()
	if _, err := Children(pid); !errors.Is(err, ErrGone) {
		t.Errorf("Children of nobody gives %v", err)
	}
	if _, err := Name(pid); !errors.Is(err, ErrGone) {
		t.Errorf("Name of nobody gives %v", err)
	}
}

// waitName waits for the exec that changes the name.
func waitName(t *testing.T, pid int, want string) {
	t.Helper()
	ctx := bounded(t)
	for tick := time.NewTicker(time.Millisecond); ; {
		name, err := Name(pid)
		if name == want {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("its name is %q, %v", name, err)
		}
	}
}

func TestLockIsAskedForWithoutBeingTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func(flag int) *os.File {
		f, err := os.OpenFile(path, flag|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	holder, rival, reader := open(os.O_RDWR), open(os.O_RDWR), open(os.O_RDONLY)
	expect := func(step string, want bool) {
		t.Helper()
		if got, err := Locked(reader); err != nil || got != want {
			t.Errorf("%s: locked %v, %v", step, got, err)
		}
		if got, err := Lock(rival); err != nil || got == want {
			t.Errorf("%s: the rival gets the lock: %v, %v", step, got, err)
		} else if got {
			if err := Unlock(rival); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("new", false)
	if ok, err := Lock(holder); !ok || err != nil {
		t.Fatalf("Lock gives %v, %v", ok, err)
	}
	expect("locked", true)
	dup, err := unix.FcntlInt(holder.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	holder.Close()
	expect("a duplicate is open", true)
	unix.Close(dup)
	expect("all closed", false)
	if _, err := Lock(reader); err == nil {
		t.Error("a read-only file was locked for writing")
	}
}

func TestSealedMemoryIsWholeAndFixed(t *testing.T) {
	for _, data := range []string{"", "what to launch"} {
		f, err := SealedMemfd("launch", []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := ReadSealed(f, len(data))
		if err != nil || string(got) != data {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Error("sealed memory was written")
		}
		if data == "" {
			continue
		}
		if _, err := ReadSealed(f, len(data)-1); err == nil {
			t.Error("the limit was passed")
		}
	}
}

func TestUnsealedFilesAreRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "open")
	defer memory.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, f := range []*os.File{memory, file} {
		if _, err := ReadSealed(f, 10); !errors.Is(err, ErrNotSealed) {
			t.Errorf("got %v", err)
		}
	}
}

func mustSelf(t *testing.T) Identity {
	t.Helper()
	id, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1 (a) b) R 2 3 4 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0"))
	f.Add([]byte("1 (a"))
	f.Add([]byte(")\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if st, err := parseStat(b); err == nil && st.state == 0 {
			t.Error("no state")
		}
	})
}

func TestNameWithParenthesesDoesNotShiftFields(t *testing.T) {
	st, err := parseStat([]byte("7 (a) Z 1 (x) R 2 3 4 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0"))
	if err != nil || st != (stat{state: 'R', ppid: 2, session: 4, start: 77}) {
		t.Errorf("got %+v, %v", st, err)
	}
}

func TestAProcessIsBornBetweenTwoLooksAtTheClock(t *testing.T) {
	const tick = 10 * time.Millisecond
	before, err := Uptime()
	if err != nil {
		t.Fatal(err)
	}
	forks, err := Forks()
	if err != nil {
		t.Fatal(err)
	}
	cmd, in := start(t, "echo up; read x")
	defer in.Close()
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Uptime()
	if err != nil {
		t.Fatal(err)
	}
	if born := id.Born(); born < before-tick || born > after {
		t.Errorf("born at %v, between %v and %v", born, before, after)
	}
	if now, err := Forks(); err != nil || now <= forks {
		t.Errorf("%d processes made, then %d, %v", forks, now, err)
	}
	if most, err := MaxPID(); err != nil || most < uint64(id.PID) {
		t.Errorf("the largest pid is %d, %v", most, err)
	}
}
