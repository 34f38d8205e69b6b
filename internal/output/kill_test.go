package output

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test holds master and pipe; capturing processes are killed at random
// moments, most while they move bytes, some while they recover, and succeeded at
// once.
func TestKillsLoseAndDoubleNothing(t *testing.T) {
	for _, v := range []struct {
		name             string
		kills            int
		history, segment int64
	}{
		{"kept", 110, 1 << 30, 32 << 10},
		{"dropped", 30, 128 << 10, 16 << 10},
	} {
		t.Run(v.name, func(t *testing.T) {
			g := newRig(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			w := startWriter(g, seed)
			for range v.kills {
				killOne(t, g, v.history, v.segment)
			}
			w.stop.Store(true)
			c, stop := g.capture(t, Options{History: v.history, segment: v.segment})
			total, err := w.wait(t)
			if err != nil {
				t.Fatal(err)
			}
			g.drained(t, c)
			stop()
			t.Logf("%d kills, %d bytes", v.kills, total)
			if v.name == "dropped" && c.Tail() == 0 {
				t.Error("nothing was dropped")
			}
			same(t, g.reader(t), newStream(seed), total)
			checkIndex(t, g.dir, total)
		})
	}
}

// writer feeds the terminal until it is told to stop.
type writer struct {
	stop  atomic.Bool
	total int64
	done  chan error
}

func startWriter(g *rig, seed uint64) *writer {
	w := &writer{done: make(chan error, 1)}
	go func() {
		s := newStream(seed)
		for !w.stop.Load() {
			n, err := g.slave.Write(s.next())
			w.total += int64(n)
			if err != nil {
				w.done <- err
				return
			}
		}
		w.done <- nil
	}()
	return w
}

func (w *writer) wait(t *testing.T) (int64, error) {
	t.Helper()
	select {
	case err := <-w.done:
		return w.total, err
	case <-time.After(60 * time.Second):
		t.Fatal("the writer is blocked")
		return 0, nil
	}
}

func killOne(t *testing.T, g *rig, history, segment int64) {
	t.Helper()
	cmd := reexec("capture", fmt.Sprintf("%s=%d", roleHistory, history), fmt.Sprintf("%s=%d", roleSegment, segment))
	cmd.ExtraFiles = []*os.File{g.dir, g.master, g.pipeR, g.pipeW}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Duration(rand.Int64N(int64(6 * time.Millisecond)))
	if rand.IntN(5) > 0 {
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			t.Errorf("a successor could not capture: %v", err)
		}
	} else {
		after += time.Duration(rand.Int64N(int64(10 * time.Millisecond)))
	}
	gone := make(chan struct{})
	go func() {
		io.Copy(io.Discard, ready)
		close(gone)
	}()
	select {
	case <-time.After(after):
	case <-gone:
		t.Error("the capturer ended by itself")
	}
	cmd.Process.Kill()
	<-gone
	cmd.Wait()
}

func checkIndex(t *testing.T, dir *os.File, end int64) {
	t.Helper()
	records, err := ReadIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) == 0 {
		t.Error("the index is empty")
	}
	var last Record
	for i, r := range records {
		if r.Offset < last.Offset || r.Time.Before(last.Time) || r.Offset > end {
			t.Fatalf("record %d: %v after %v, end %d", i, r, last, end)
		}
		last = r
	}
}

func TestFullDiskHoldsBytesBackUntilThereIsRoom(t *testing.T) {
	for _, noSplice := range []bool{false, true} {
		t.Run(fmt.Sprintf("copying=%v", noSplice), func(t *testing.T) { fullDisk(t, noSplice) })
	}
}

func fullDisk(t *testing.T, noSplice bool) {
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=2m,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Errorf("cannot unmount: %v", err)
		}
	})
	filler := path + "/filler"
	if err := os.WriteFile(filler, make([]byte, 1800<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newRigIn(t, path)
	states := make(chan State, 100)
	c, stop := g.capture(t, Options{segment: 64 << 10, noSplice: noSplice, OnState: func(s State) { states <- s }})
	expect := func(what string, ok func(State) bool) {
		t.Helper()
		limit := time.After(10 * time.Second)
		for {
			select {
			case s := <-states:
				if ok(s) {
					return
				}
			case <-limit:
				t.Fatalf("%s is not reported, the state is %+v", what, c.State())
			}
		}
	}
	w := startWriter(g, 7)
	expect("the full disk", func(s State) bool { return errors.Is(s.Err, unix.ENOSPC) })
	if _, err := c.Flush(bounded(t)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Flush gives %v", err)
	}
	w.stop.Store(true)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	expect("the recovery", func(s State) bool { return s.Err == nil })
	total, err := w.wait(t)
	if err != nil {
		t.Fatal(err)
	}
	g.drained(t, c)
	stop()
	same(t, g.reader(t), newStream(7), total)
}
