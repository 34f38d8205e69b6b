package cli

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/seed-8e62c83d/mur/client"
)

// undoPatience bounds how long a terminal that takes nothing can delay the end.
const undoPatience = 500 * time.Millisecond

var errConsoleClosed = errors.New("the terminal was given back")

// console is the operator's terminal while a session is shown on it. Whatever
// ends that, restore puts it back as it was, once.
type console struct {
	in  *os.File // nil: input is no terminal
	out *os.File // nil: output is no terminal

	mu     sync.Mutex // held while writing; guards the following
	modes  modes
	before *term.State // nil: input is not in raw mode
	closed bool
	midway bool // the cursor may be in the middle of a line
}

// raw switches the terminal's own line editing, echo and signals off.
func (c *console) raw() error {
	if c.in == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	before, err := term.MakeRaw(int(c.in.Fd()))
	if err != nil {
		return err
	}
	if c.before == nil {
		c.before = before // not that of a second time, after a stop
	}
	return nil
}

// write shows output and remembers what it changes on the terminal.
func (c *console) write(w interface{ Write([]byte) (int, error) }, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errConsoleClosed
	}
	if c.out != nil {
		c.modes.follow(b)
		c.midway = len(b) > 0 && b[len(b)-1] != '\n' || len(b) == 0 && c.midway
	}
	_, err := w.Write(b)
	return err
}

// restore puts the terminal back: first what programs have switched on, then
// what raw has. A terminal that takes no more output, because it is stopped or
// gone, still gets its line settings back.
func (c *console) restore() {
	if !c.lock() {
		if c.before != nil {
			term.Restore(int(c.in.Fd()), c.before)
		}
		return
	}
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if undo := c.modes.undo(); c.out != nil && len(undo) > 0 {
		c.midway = true // where it was before a full-screen program
		c.tell(undo)
	}
	if c.before != nil {
		term.Restore(int(c.in.Fd()), c.before)
	}
}

// tell writes to a terminal that may take nothing.
func (c *console) tell(b []byte) { within(func() { c.out.Write(b) }) }

// within gives up on a write to a terminal that takes nothing: nobody reads it,
// and the end must not wait for that.
func within(write func()) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		write()
	}()
	select {
	case <-written:
	case <-time.After(undoPatience):
	}
}

// freshLine makes what mur says next, after restore, begin a line.
func (c *console) freshLine() {
	if c.out == nil || !c.lock() {
		return
	}
	defer c.mu.Unlock()
	if c.midway {
		c.midway = false
		c.tell([]byte("\n")) // the terminal makes it \r\n again
	}
}

// lock gives up on a write that hangs.
func (c *console) lock() bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(undoPatience); !c.mu.TryLock(); {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// size is the terminal's size; nil if there is none or it has none.
func (c *console) size() *client.Size {
	for _, f := range []*os.File{c.out, c.in} {
		if f == nil {
			continue
		}
		if ws, err := pty.GetsizeFull(f); err == nil && ws.Cols > 0 && ws.Rows > 0 {
			return &client.Size{Cols: int(ws.Cols), Rows: int(ws.Rows)}
		}
	}
	return nil
}

// eol ends a line of talk: in raw mode the terminal does not go to its beginning.
func (c *console) eol() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.before != nil && !c.closed {
		return "\r\n"
	}
	return "\n"
}
