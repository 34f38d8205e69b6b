// Package line is the part of a terminal driver the shell needs while a
// command runs: it echoes what is typed, lets a line be corrected before it is
// read, makes ^D the end of the input and ^C an interruption.
//
// The terminal stays in raw mode throughout, because a driver that hands over
// whole lines hands over ^C only with the next Return; so the shell does the
// driver's work itself. The package owns the typed text that nobody has read
// yet. It survives nothing and starts no goroutine: who reads the terminal
// calls [Discipline.Feed].
package line

import (
	"io"
	"sync"
	"unicode/utf8"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
)

// maxTyped bounds the text that waits to be read.
const maxTyped = 64 << 10

// Discipline is the input of the commands of one terminal. Only [New] makes
// one that works.
type Discipline struct {
	mu      sync.Mutex // guards all below
	change  chan struct{}
	running bool   // a command is in the foreground
	keys    bool   // the command wants keys, not lines
	typed   []byte // the line that is being typed
	ready   []byte // finished lines
	ended   bool   // ^D: one read finds the end
	stopped bool   // ^C
}

// New returns a discipline with nothing typed.
func New() *Discipline { return &Discipline{change: make(chan struct{})} }

// signal wakes all readers. The caller holds the lock.
func (d *Discipline) signal() {
	close(d.change)
	d.change = make(chan struct{})
}

// IsTerminal is for "test -t".
func (d *Discipline) IsTerminal() bool { return true }

// Begin says that a command starts.
func (d *Discipline) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.stopped, d.ended = true, false, false
}

// Finish says that the command ended. Who still reads, such as a command in
// the background, finds the end of the input. It returns what was typed and
// not read.
func (d *Discipline) Finish() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := append(d.ready, d.typed...)
	d.ready, d.typed = nil, nil
	d.running, d.keys = false, false
	d.signal()
	return rest
}

// Hangup says that the terminal is gone: all reads find the end.
func (d *Discipline) Hangup() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.signal()
}

// Keys turns the delivery of single keys on and off, for a pager.
func (d *Discipline) Keys(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = on
	if on {
		d.ready = append(d.ready, d.typed...)
		d.typed = nil
	}
	d.signal()
}

// Feed takes bytes of the terminal. It returns what to echo, and whether ^C
// was among them: then what was typed before it is forgotten and what comes
// after it is left in rest.
func (d *Discipline) Feed(input []byte) (echo []byte, interrupted bool, rest []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.signal()
	for i, b := range input {
		if b == 0x03 && !d.keys {
			d.typed, d.ready = nil, nil
			d.stopped = true
			return append(echo, "^C\r\n"...), true, input[i+1:]
		}
		if d.keys {
			if len(d.ready) < maxTyped {
				d.ready = append(d.ready, b)
			}
			continue
		}
		echo = append(echo, d.take(b)...)
	}
	return echo, false, nil
}

// take acts on one byte of a line and returns its echo.
func (d *Discipline) take(b byte) []byte {
	switch b {
	case '\r', '\n':
		d.ready = append(append(d.ready, d.typed...), '\n')
		d.typed = nil
		return []byte("\r\n")
	case 0x04:
		if len(d.typed) == 0 {
			d.ended = true
		}
		d.ready = append(d.ready, d.typed...)
		d.typed = nil
		return nil
	case 0x7f, 0x08:
		return d.erase()
	case 0x15:
		var echo []byte
		for len(d.typed) > 0 {
			echo = append(echo, d.erase()...)
		}
		return echo
	case 0x17:
		return d.eraseWord()
	}
	if len(d.ready)+len(d.typed) >= maxTyped {
		return []byte{'\a'}
	}
	d.typed = append(d.typed, b)
	switch {
	case b == '\t':
		return []byte{' '}
	case b < 0x20:
		return []byte{'^', b ^ 0x40}
	}
	return []byte{b}
}

// erase takes back the last character that was typed.
func (d *Discipline) erase() []byte {
	if len(d.typed) == 0 {
		return nil
	}
	r, size := utf8.DecodeLastRune(d.typed)
	d.typed = d.typed[:len(d.typed)-size]
	cells := width.Rune(r)
	switch {
	case r == '\t':
		cells = 1
	case r < 0x20:
		cells = 2
	}
	var echo []byte
	for range cells {
		echo = append(echo, "\b \b"...)
	}
	return echo
}

func (d *Discipline) eraseWord() []byte {
	var echo []byte
	last := func() byte { return d.typed[len(d.typed)-1] }
	for len(d.typed) > 0 && last() == ' ' {
		echo = append(echo, d.erase()...)
	}
	for len(d.typed) > 0 && last() != ' ' {
		echo = append(echo, d.erase()...)
	}
	return echo
}

// Read gives a command the next finished line, or a part of it. It returns
// io.EOF after ^D, after ^C, and when no command is in the foreground.
func (d *Discipline) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		wait, n, err := d.poll(p)
		if wait == nil {
			return n, err
		}
		<-wait
	}
}

// poll returns what there is to read, or what to wait for.
func (d *Discipline) poll(p []byte) (wait <-chan struct{}, n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped:
		return nil, 0, io.EOF
	case len(d.ready) > 0 && d.running:
		end := len(d.ready)
		if !d.keys {
			for i, b := range d.ready {
				if b == '\n' {
					end = i + 1
					break
				}
			}
		}
		n := copy(p, d.ready[:end])
		d.ready = d.ready[n:]
		return nil, n, nil
	case d.ended:
		d.ended = false
		return nil, 0, io.EOF
	case !d.running:
		return nil, 0, io.EOF
	}
	return d.change, 0, nil
}
