package guardian

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// terminal is what attachers share of the session's terminal: its size, who sets
// it, and the notice of new output. Input has its own queue.
type terminal struct {
	turns hub // the size, or whether there is a terminal, has changed
	input *inputQueue

	// The figures of the capture for those who only look.
	capture atomic.Pointer[output.Capture]

	mu     sync.Mutex // guards the fields below; held over one ioctl at most
	master *os.File   // nil before the start and after the owner's end
	size   protocol.Size
	holder *attachment // the last attacher to have typed
	joined map[*attachment]struct{}
}

func newTerminal(size *protocol.Size) *terminal {
	t := &terminal{
		input:  newInputQueue(),
		size:   protocol.Size{Cols: defaultCols, Rows: defaultRows},
		joined: map[*attachment]struct{}{},
	}
	if size != nil {
		t.size = *size
	}
	return t
}

// firstSize is the size the terminal is opened with: what the start asks for,
// else what was set before it.
func (t *terminal) firstSize(asked *protocol.Size) protocol.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	if asked != nil {
		t.size = *asked
	}
	return t.size
}

// open gives the terminal to attachers.
func (t *terminal) open(o *owner) {
	t.capture.Store(o.capture)
	t.mu.Lock()
	t.master = o.master
	size := t.size
	t.mu.Unlock()
	t.input.open(o.master)
	// A resize between the terminal's opening and now would be lost.
	t.setSize(size)
	t.turns.wake()
}

// conclude tells everybody that the final record is there.
func (t *terminal) conclude() {
	t.input.close()
	t.turns.wake()
}

// close lets the master go.
func (t *terminal) close() {
	t.input.close()
	t.mu.Lock()
	t.master = nil
	t.mu.Unlock()
	t.turns.wake()
}

// forget lets the capture go. What was captured stays readable.
func (t *terminal) forget() {
	t.capture.Store(nil)
	t.turns.wake()
}

// setSize makes size the terminal's. The kernel tells the foreground group once
// for each real change.
func (t *terminal) setSize(size protocol.Size) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setSizeLocked(size)
}

func (t *terminal) setSizeLocked(size protocol.Size) error {
	changed := size != t.size
	t.size = size
	if t.master != nil {
		err := ptmx.Control(t.master, func(fd int) error {
			return ptmx.SetSize(fd, ptmx.Size{Cols: uint16(size.Cols), Rows: uint16(size.Rows)})
		})
		if err != nil {
			return err
		}
		if c := t.capture.Load(); c != nil && changed {
			c.NoteSize(ptmx.Size{Cols: uint16(size.Cols), Rows: uint16(size.Rows)})
		}
	}
	if changed {
		t.turns.wake()
	}
	return nil
}

func (t *terminal) currentSize() protocol.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

// join makes a an attacher. One that may type sets the size at once: attaching
// is the most recent thing anybody did.
func (t *terminal) join(a *attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.joined[a] = struct{}{}
	if !a.readOnly && a.size != nil {
		t.holder = a
		t.setSizeLocked(*a.size)
	}
}

func (t *terminal) leave(a *attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.joined, a)
	if t.holder == a {
		t.holder = nil
	}
}

// resized is a's new size. It counts if a was the last to type, or nobody is.
func (t *terminal) resized(a *attachment, size protocol.Size) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.size = &size
	if a.readOnly || t.holder != nil && t.holder != a {
		return
	}
	t.holder = a
	t.setSizeLocked(size)
}

// typed makes a the one whose size counts.
func (t *terminal) typed(a *attachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == a {
		return
	}
	t.holder = a
	if a.size != nil {
		t.setSizeLocked(*a.size)
	}
}

func (t *terminal) attached() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.joined)
}

// nudge asks the programs in the foreground to repaint. SIGWINCH is ignored by
// whoever does not draw, so a group that has changed meanwhile is not harmed.
func (t *terminal) nudge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.master == nil {
		return
	}
	ptmx.Control(t.master, func(fd int) error {
		group, err := ptmx.ForegroundGroup(fd)
		if err == nil && group > 1 {
			err = unix.Kill(-group, unix.SIGWINCH)
		}
		return err
	})
}

// live is the part of a snapshot that is as of now.
func (t *terminal) live(reader *output.Reader) *lifecycle.Live {
	size := t.currentSize()
	l := &lifecycle.Live{Cols: size.Cols, Rows: size.Rows, Attached: t.attached(), GuardianPID: os.Getpid()}
	if reader != nil {
		l.OutputStart, l.OutputEnd, _ = reader.Bounds()
	}
	if c := t.capture.Load(); c != nil {
		l.OutputEnd = c.End()
		state := c.State()
		l.LossPossible = state.Copying
		if state.Err != nil {
			l.OutputFault = state.Err.Error()
		}
	}
	return l
}
