package cli

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// onTerminal gives a console on a real terminal and what is shown there.
func onTerminal(t *testing.T) (*console, *os.File, func() unix.Termios) {
	t.Helper()
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 90, Rows: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	termios := func() (now unix.Termios) {
		err := ptmx.Control(slave, func(fd int) (err error) {
			now, err = ptmx.GetTermios(fd)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	return &console{in: slave, out: slave}, master, termios
}

func readUntil(t *testing.T, master *os.File, end string) []byte {
	t.Helper()
	master.SetReadDeadline(time.Now().Add(10 * time.Second))
	var got []byte
	buf := make([]byte, 1024)
	for !bytes.HasSuffix(got, []byte(end)) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, buf[:n]...)
	}
	return got
}

func TestTheTerminalIsGivenBackAsItWas(t *testing.T) {
	c, master, termios := onTerminal(t)
	before := termios()
	if err := c.raw(); err != nil {
		t.Fatal(err)
	}
	if termios() == before {
		t.Error("raw mode changed nothing")
	}
	if err := c.raw(); err != nil { // as after a stop
		t.Fatal(err)
	}
	if err := c.write(c.out, []byte("\x1b[?1049h\x1b[?1000hx")); err != nil {
		t.Fatal(err)
	}
	c.restore()
	c.restore()
	if termios() != before {
		t.Error("it is not as it was")
	}
	readUntil(t, master, "\x1b[?1000l\x1b[?1049l")
	if err := c.write(c.out, []byte("late")); err == nil {
		t.Error("output went to a terminal that was given back")
	}
	if err := c.raw(); err != nil || termios() != before {
		t.Errorf("it was taken again: %v", err)
	}
}

func TestAPanicGivesTheTerminalBack(t *testing.T) {
	c, master, termios := onTerminal(t)
	before := termios()
	v := &viewer{c: c}
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		defer v.onPanic()
		if err := c.raw(); err != nil {
			panic(err)
		}
		c.write(c.out, []byte("\x1b[?2004h"))
		panic("on purpose")
	}()
	if p := <-done; p != "on purpose" {
		t.Fatalf("the panic became %v", p)
	}
	if termios() != before {
		t.Error("it is not as it was")
	}
	readUntil(t, master, "\x1b[?2004l")
}

func TestATerminalThatTakesNothingGetsItsModeBack(t *testing.T) {
	c, master, termios := onTerminal(t)
	before := termios()
	if err := c.raw(); err != nil {
		t.Fatal(err)
	}
	// Nobody reads the master: the write hangs once the terminal is full.
	stuck := make(chan error, 1)
	go func() { stuck <- c.write(c.out, bytes.Repeat([]byte("x"), 1<<20)) }()
	select {
	case err := <-stuck:
		t.Fatalf("a terminal took a mebibyte: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	began := time.Now()
	c.restore()
	if took := time.Since(began); took > 10*undoPatience {
		t.Errorf("it took %v", took)
	}
	if termios() != before {
		t.Error("it is not as it was")
	}
	master.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.CopyN(io.Discard, master, 1<<20); err != nil {
		t.Fatal(err)
	}
	<-stuck
}

func TestTheSizeIsThatOfTheTerminal(t *testing.T) {
	c, master, _ := onTerminal(t)
	if size := c.size(); size == nil || size.Cols != 90 || size.Rows != 20 {
		t.Errorf("size %v", size)
	}
	ptmx.Control(master, func(fd int) error { return ptmx.SetSize(fd, ptmx.Size{}) })
	if size := c.size(); size != nil {
		t.Errorf("a terminal without a size has %v", size)
	}
	if size := (&console{}).size(); size != nil {
		t.Errorf("no terminal has %v", size)
	}
	if terminal(io.Discard) != nil || terminal(nil) != nil {
		t.Error("something is taken for a terminal")
	}
}
