package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

func TestCaptureOfOtherProcessesIsByteExact(t *testing.T) {
	const pieces = 400 // about 1 MiB
	for _, noSplice := range []bool{false, true} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("copying=%v,watched=%v", noSplice, watched), func(t *testing.T) {
				g := newRig(t)
				c, stop := g.capture(t, Options{History: 1 << 20, segment: 20_000, noSplice: noSplice})
				if watched {
					defer c.Watch()()
				}
				cmd := reexec("write", fmt.Sprintf("%s=%d", rolePieces, pieces))
				cmd.Stdout = g.slave
				if err := cmd.Run(); err != nil {
					t.Fatal(err)
				}
				total := g.drained(t, c)
				if got := c.State().Copying; got != noSplice {
					t.Errorf("copying: %v", got)
				}
				stop()
				want := int64(0)
				for s, i := newStream(1), 0; i < pieces; i++ {
					want += int64(len(s.next()))
				}
				if total != want || c.End() != want {
					t.Errorf("captured %d, end %d, want %d bytes", total, c.End(), want)
				}
				same(t, g.reader(t), newStream(1), want)
			})
		}
	}
}

func TestSecondCapturerIsRefusedAndSuccessorGoesOn(t *testing.T) {
	g := newRig(t)
	c, stop := g.capture(t, Options{})
	if _, err := NewCapture(g.dir, g.master, g.pipeR, g.pipeW, Options{}); !errors.Is(err, ErrBusy) {
		t.Fatalf("a second capturer gets %v", err)
	}
	write(t, g, "first ")
	if err := c.Wait(bounded(t), 5); err != nil {
		t.Fatal(err)
	}
	stop()
	// What a predecessor left in the pipe comes before what is in the terminal.
	if _, err := g.pipeW.WriteString("second "); err != nil {
		t.Fatal(err)
	}
	write(t, g, "third")
	next, _ := g.capture(t, Options{})
	if got := next.End(); got != 13 {
		t.Errorf("after the take-over the log ends at %d, want 13", got)
	}
	if err := next.Wait(bounded(t), 17); err != nil {
		t.Fatal(err)
	}
	if got := read(t, g.reader(t), 0, 100); got != "first second third" {
		t.Errorf("the log holds %q", got)
	}
}

func TestStopWithoutRunGivesEverythingBack(t *testing.T) {
	g := newRig(t)
	c, err := NewCapture(g.dir, g.master, g.pipeR, g.pipeW, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c.Stop()
	if err := c.Run(); err != nil {
		t.Errorf("Run gives %v", err)
	}
	if _, err := c.Flush(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("Flush gives %v", err)
	}
	if err := c.Sync(); !errors.Is(err, ErrStopped) {
		t.Errorf("Sync gives %v", err)
	}
	if err := c.Wait(t.Context(), 0); !errors.Is(err, ErrStopped) {
		t.Errorf("Wait gives %v", err)
	}
	g.capture(t, Options{})
}

func TestFlushCoversEverythingInThePipe(t *testing.T) {
	g := newRig(t)
	c, _ := g.capture(t, Options{})
	total := int64(0)
	for i := range 200 {
		n := 1 + i%50
		if _, err := g.slave.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		total += int64(n)
		if end := g.drained(t, c); end != total || c.End() != total {
			t.Fatalf("Flush %d gives %d, End %d, want %d", i, end, c.End(), total)
		}
	}
	if err := c.Sync(); err != nil {
		t.Error(err)
	}
	write(t, g, "x")
	if err := c.Sync(); err != nil {
		t.Error(err)
	}
}

func TestHangUpIsReportedAndEndsWhenTheSlaveIsOpenedAgain(t *testing.T) {
	g := newRig(t)
	states := make(chan State, 10)
	c, _ := g.capture(t, Options{OnState: func(s State) { states <- s }})
	write(t, g, "before")
	g.slave.Close()
	if s := <-states; !s.HungUp {
		t.Fatalf("state %+v", s)
	}
	if end := g.drainedHungUp(t, c); end != 6 {
		t.Errorf("the log ends at %d", end)
	}
	var fd int
	err := ptmx.Control(g.master, func(master int) error {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		fd = int(n)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	g.slave = os.NewFile(uintptr(fd), "pts")
	write(t, g, "after")
	if err := c.Wait(bounded(t), 10); err != nil {
		t.Fatal(err)
	}
	if s := <-states; s.HungUp {
		t.Errorf("state %+v", s)
	}
	if got := read(t, g.reader(t), 0, 100); got != "beforeafter" {
		t.Errorf("the log holds %q", got)
	}
}

func (g *rig) drainedHungUp(t *testing.T, c *Capture) int64 {
	t.Helper()
	end, err := c.Flush(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestManyTinyPiecesDoNotStickInThePipe(t *testing.T) {
	g := newRig(t)
	// A pipe of one page holds a single piece, however short.
	if _, err := unix.FcntlInt(g.pipeW.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	c, _ := g.capture(t, Options{})
	for range 2000 {
		write(t, g, "x")
	}
	if end := g.drained(t, c); end != 2000 {
		t.Errorf("the log ends at %d", end)
	}
}

func TestWaitersAreWokenByGrowthContextAndStop(t *testing.T) {
	g := newRig(t)
	c, stop := g.capture(t, Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ended, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait gives %v", err)
	}
	var wg sync.WaitGroup
	const total = 5000
	for i := range 8 {
		wg.Go(func() {
			if i%2 == 0 {
				defer c.Watch()()
			}
			for off := int64(0); off < total; off = c.End() {
				if err := c.Wait(bounded(t), off); err != nil {
					t.Error(err)
					return
				}
			}
			if err := c.Wait(bounded(t), total); !errors.Is(err, ErrStopped) {
				t.Errorf("Wait at the end gives %v", err)
			}
		})
	}
	for range total / 5 {
		write(t, g, "piece")
	}
	if err := c.Wait(bounded(t), total-1); err != nil {
		t.Fatal(err)
	}
	<-c.Changed(0)
	stop()
	wg.Wait()
}

func TestSlowReaderIsToldOfTheGap(t *testing.T) {
	g := newRig(t)
	c, _ := g.capture(t, Options{History: 40_000, segment: 20_000})
	r := g.reader(t)
	if _, err := r.ReadAt(make([]byte, 10), 0); !errors.Is(err, io.EOF) {
		t.Errorf("an empty log gives %v", err)
	}
	s := newStream(3)
	total := int64(0)
	put := func(n int) {
		for range n {
			p := s.next()
			if _, err := g.slave.Write(p); err != nil {
				t.Fatal(err)
			}
			total += int64(len(p))
		}
		g.drained(t, c)
	}
	for total <= 20_000 {
		put(1)
	}
	if n, err := r.ReadAt(make([]byte, 10), 0); n != 10 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
	put(100)
	// The open segment may still be read to its end; then comes the gap.
	_, err := r.ReadAt(make([]byte, 10), 20_000)
	var gap *GapError
	if !errors.As(err, &gap) || gap.From != 20_000 || gap.To != c.Tail() || gap.To < total-80_000 || gap.To > total-40_000 {
		t.Fatalf("got %v, tail %d, end %d", err, c.Tail(), total)
	}
	if n, err := r.ReadAt(make([]byte, 10), gap.To); n != 10 || err != nil {
		t.Errorf("after the gap %d, %v", n, err)
	}
	same(t, r, newStream(3), total)
}

func TestLosslessLogBlocksUntilTrimmed(t *testing.T) {
	g := newRig(t)
	states := make(chan State, 10)
	c, stop := g.capture(t, Options{History: 20_000, segment: 4096, Lossless: true, OnState: func(s State) { states <- s }})
	w := startWriter(g, 5)
	if s := <-states; !errors.Is(s.Err, ErrFull) {
		t.Fatalf("state %+v", s)
	}
	if c.Tail() != 0 || c.End() != 20_000 {
		t.Errorf("the log holds %d to %d", c.Tail(), c.End())
	}
	for mark := int64(0); mark < 200_000; {
		mark = c.End()
		c.Trim(mark)
		if err := c.Wait(bounded(t), mark); err != nil {
			t.Fatal(err)
		}
		for len(states) > 0 {
			<-states
		}
	}
	w.stop.Store(true)
	c.Trim(1 << 40) // as far as there is
	var total int64
	until(t, func() bool {
		c.Trim(c.End())
		for len(states) > 0 {
			<-states
		}
		select {
		case err := <-w.done:
			total = w.total
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
	until(t, func() bool {
		c.Trim(c.End())
		for len(states) > 0 {
			<-states
		}
		return c.End() == total
	})
	stop()
	same(t, g.reader(t), newStream(5), total)
}

func write(t testing.TB, g *rig, s string) {
	t.Helper()
	if _, err := g.slave.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, r *Reader, off int64, n int) string {
	t.Helper()
	p := make([]byte, n)
	n, err := r.ReadAt(p, off)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}

func TestLeftoversOfACrashAreCleared(t *testing.T) {
	g := newRig(t)
	left := filepath.Join(g.path, tempPrefix+segmentName(77))
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := g.capture(t, Options{})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if c.End() != 0 {
		t.Errorf("the log ends at %d", c.End())
	}
}
