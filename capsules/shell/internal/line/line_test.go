package line

import (
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// read reads once, and fails the test when that takes for ever.
func read(t *testing.T, d *Discipline) (string, error) {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		buf := make([]byte, 100)
		n, err := d.Read(buf)
		done <- result{string(buf[:n]), err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-time.After(10 * time.Second):
		t.Fatal("Read does not return")
		return "", nil
	}
}

func TestTypedLinesAreEchoedAndReadWhole(t *testing.T) {
	d := New()
	d.Begin()
	echo, interrupted, _ := d.Feed([]byte("one\rtw\x7fo\r"))
	if want := "one\r\ntw\b \bo\r\n"; string(echo) != want || interrupted {
		t.Errorf("echo %q, interrupted %v; want %q", echo, interrupted, want)
	}
	for _, want := range []string{"one\n", "to\n"} {
		if got, err := read(t, d); got != want || err != nil {
			t.Errorf("Read = %q, %v; want %q", got, err, want)
		}
	}
}

func TestCorrections(t *testing.T) {
	for _, tc := range []struct{ typed, echo, line string }{
		{"ab\x15c\r", "ab\b \b\b \bc\r\n", "c\n"},
		{"a bc\x17d\r", "a bc\b \b\b \bd\r\n", "a d\n"},
		{"日\x7fx\r", "日\b \b\b \bx\r\n", "x\n"},
		{"e\u0301\x7f\r", "e\u0301\r\n", "e\n"},
		{"\x01\x7f\r", "^A\b \b\b \b\r\n", "\n"},
		{"\x7f\r", "\r\n", "\n"},
	} {
		d := New()
		d.Begin()
		echo, _, _ := d.Feed([]byte(tc.typed))
		if string(echo) != tc.echo {
			t.Errorf("%q: echo %q, want %q", tc.typed, echo, tc.echo)
		}
		if got, err := read(t, d); got != tc.line || err != nil {
			t.Errorf("%q: Read = %q, %v; want %q", tc.typed, got, err, tc.line)
		}
	}
}

func TestEndOfInputIsReadOnce(t *testing.T) {
	d := New()
	d.Begin()
	d.Feed([]byte("rest\x04\x04more\r"))
	for _, want := range []struct {
		text string
		err  error
	}{{"restmore\n", nil}, {"", io.EOF}} {
		if got, err := read(t, d); got != want.text || err != want.err {
			t.Errorf("Read = %q, %v; want %q, %v", got, err, want.text, want.err)
		}
	}
}

func TestInterruptEndsAReaderAndForgetsTheLine(t *testing.T) {
	d := New()
	d.Begin()
	done := make(chan error, 1)
	go func() {
		_, err := d.Read(make([]byte, 10))
		done <- err
	}()
	echo, interrupted, rest := d.Feed([]byte("abc\x03next"))
	if string(echo) != "abc^C\r\n" || !interrupted || string(rest) != "next" {
		t.Errorf("Feed = %q, %v, %q", echo, interrupted, rest)
	}
	select {
	case err := <-done:
		if err != io.EOF {
			t.Errorf("Read: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the reader was not woken")
	}
	if left := d.Finish(); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	d.Begin()
	d.Feed([]byte("x\r"))
	if got, err := read(t, d); got != "x\n" || err != nil {
		t.Errorf("the next command reads %q, %v", got, err)
	}
}

func TestWhatIsNotReadIsHandedBackInOrder(t *testing.T) {
	d := New()
	d.Begin()
	d.Feed([]byte("ls\rpw"))
	if got := string(d.Finish()); got != "ls\npw" {
		t.Errorf("Finish = %q", got)
	}
	if _, err := read(t, d); err != io.EOF {
		t.Errorf("Read in the background: %v", err)
	}
}

func TestKeysAreDeliveredAsTheyAre(t *testing.T) {
	d := New()
	d.Begin()
	d.Keys(true)
	echo, interrupted, _ := d.Feed([]byte("\x1b[A\x03"))
	if len(echo) != 0 || interrupted {
		t.Errorf("Feed = %q, %v", echo, interrupted)
	}
	if got, err := read(t, d); got != "\x1b[A\x03" || err != nil {
		t.Errorf("Read = %q, %v", got, err)
	}
}

func TestAnyInputIsTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New()
		d.Begin()
		for _, chunk := range rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "chunks") {
			rest := chunk
			for interrupted := true; interrupted; {
				_, interrupted, rest = d.Feed(rest)
			}
		}
		d.Finish()
	})
}
