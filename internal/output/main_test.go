package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// The test binary plays the processes of the tests.
const (
	role        = "OUTPUT_TEST_ROLE"
	roleSegment = "OUTPUT_TEST_SEGMENT"
	roleHistory = "OUTPUT_TEST_HISTORY"
	rolePieces  = "OUTPUT_TEST_PIECES"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		goleak.VerifyTestMain(m)
		return
	case "capture":
		err = captureChild()
	case "write":
		err = writeChild()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(key string) int64 {
	n, _ := strconv.ParseInt(os.Getenv(key), 10, 64)
	return n
}

// captureChild captures until it is killed.
func captureChild() error {
	dir, master := os.NewFile(3, "dir"), os.NewFile(4, "master")
	r, w := os.NewFile(5, "r"), os.NewFile(6, "w")
	c, err := NewCapture(dir, master, r, w, Options{History: number(roleHistory), segment: number(roleSegment)})
	if err != nil {
		return err
	}
	os.Stdout.Write([]byte("r"))
	return c.Run()
}

func writeChild() error {
	s := newStream(1)
	for range number(rolePieces) {
		if _, err := os.Stdout.Write(s.next()); err != nil {
			return err
		}
	}
	return nil
}

// stream makes the same pieces for the same seed: of all lengths, with stretches
// of zeros and of repeated text, where a doubled piece would be hard to see.
type stream struct{ rnd *rand.Rand }

func newStream(seed uint64) *stream { return &stream{rand.New(rand.NewPCG(seed, 0))} }

func (s *stream) next() []byte {
	n := 1 + s.rnd.IntN(64)
	if s.rnd.IntN(3) == 0 {
		n = 1 + s.rnd.IntN(16<<10)
	}
	switch s.rnd.IntN(4) {
	case 0:
		return make([]byte, n)
	case 1:
		return bytes.Repeat([]byte("again\r\n"), n/7+1)[:n]
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(s.rnd.Uint32())
	}
	return p
}

// rig is a terminal in raw mode, a pipe and an output directory, held by the test
// as an owner would.
type rig struct {
	path                             string
	dir, master, slave, pipeR, pipeW *os.File
}

func newRig(t testing.TB) *rig { return newRigIn(t, t.TempDir()) }

func newRigIn(t testing.TB, path string) *rig {
	t.Helper()
	if r, w, err := os.Pipe(); err == nil { // the runtime opens its poller now
		r.Close()
		w.Close()
	}
	before := openFiles(t)
	g := &rig{path: path}
	var err error
	if g.dir, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	if g.master, g.slave, err = ptmx.Open(ptmx.Size{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	if g.pipeR, g.pipeW, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	raw(t, g.slave)
	t.Cleanup(func() {
		for _, f := range []*os.File{g.dir, g.master, g.slave, g.pipeR, g.pipeW} {
			f.Close()
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
	return g
}

func openFiles(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func raw(t testing.TB, slave *os.File) {
	t.Helper()
	err := ptmx.Control(slave, func(fd int) error {
		s, err := ptmx.GetTermios(fd)
		if err != nil {
			return err
		}
		s.Iflag, s.Oflag = 0, 0
		s.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
		return ptmx.SetTermios(fd, s)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// capture starts capturing; stop ends it and is called at the test's end too.
func (g *rig) capture(t testing.TB, opts Options) (c *Capture, stop func()) {
	t.Helper()
	c, err := NewCapture(g.dir, g.master, g.pipeR, g.pipeW, opts)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run() }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		c.Stop()
		if err := <-done; err != nil {
			t.Errorf("Run gives %v", err)
		}
	}
	t.Cleanup(stop)
	return c, stop
}

func (g *rig) reader(t testing.TB) *Reader {
	t.Helper()
	r, err := OpenReader(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// drained waits until the master has nothing, then flushes.
func (g *rig) drained(t testing.TB, c *Capture) int64 {
	t.Helper()
	until(t, func() bool {
		in := true
		ptmx.Control(g.master, func(fd int) (err error) {
			in, _, err = ptmx.Readable(fd)
			return err
		})
		return !in
	})
	end, err := c.Flush(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// reexec starts a role in a process of its own.
func reexec(as string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append([]string{role + "=" + as}, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until polls a condition that nothing announces.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	limit := time.After(60 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it did not happen in 60 s")
		}
	}
}

// same compares the log from its tail on with the stream's first total bytes.
func same(t testing.TB, r *Reader, s *stream, total int64) {
	t.Helper()
	tail, end, err := r.Bounds()
	if err != nil {
		t.Fatal(err)
	}
	if end != total {
		t.Fatalf("the log ends at %d, %d bytes were written", end, total)
	}
	want := make([]byte, 0, 64<<10)
	off := int64(0)
	for off < total {
		want = append(want[:0], s.next()...)
		want = want[:min(int64(len(want)), total-off)]
		if skip := tail - off; skip > 0 {
			skip = min(skip, int64(len(want)))
			off += skip
			want = want[skip:]
		}
		if len(want) == 0 {
			continue
		}
		got := make([]byte, len(want))
		if n, err := r.ReadAt(got, off); n != len(got) {
			t.Fatalf("read %d of %d bytes at %d: %v", n, len(got), off, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("the log differs in the %d bytes from %d on", len(want), off)
		}
		off += int64(len(want))
	}
	if _, err := r.ReadAt(make([]byte, 1), total); !errors.Is(err, io.EOF) {
		t.Errorf("a read at the end gives %v", err)
	}
}
