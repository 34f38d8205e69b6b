package output

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

const lockName = "lock"

// Options say how a log is kept.
type Options struct {
	// History is how many bytes are kept at least; up to one segment more may be
	// there. 0 means DefaultHistory.
	History int64
	// Lossless keeps everything above the mark that Trim moves. At History bytes
	// above it the log is full and the writer blocks.
	Lossless bool
	// OnState is called after each change of State, by NewCapture or on Run's
	// thread, and must not block. It may be nil.
	OnState func(State)

	segment  int64 // tests want short segments
	noSplice bool  // tests want the fall-back
}

// State is how capturing goes.
type State struct {
	// Err is why the log cannot be written at the moment (nil: it can); ErrFull
	// where it waits for Trim. Bytes stay where they are, and writing is tried
	// again until it succeeds.
	Err error
	// HungUp: nobody has the terminal's slave open, and all its output is taken.
	// It ends when the slave is opened again.
	HungUp bool
	// Copying: there is no splice here, so a kill may lose or double bytes.
	Copying bool
	// IndexErr is why the last record of the index could not be written.
	IndexErr error
}

// Capture moves a terminal's output into the log. Its methods may be called from
// any goroutine.
type Capture struct {
	dir  directory
	lock *os.File
	wake *os.File // eventfd
	move *mover

	end, tail atomic.Int64
	state     atomic.Pointer[State]
	grown     notice
	watchers  atomic.Int64
	stopping  atomic.Bool
	size      atomic.Uint64 // newest NoteSize not yet recorded, 0 if none
	trimTo    atomic.Int64
	finished  chan struct{} // closed when no more bytes will be moved

	mu      sync.Mutex // guards what follows
	running bool
	ended   bool
	flushes []chan flushed

	syncMu sync.Mutex // guards synced and makes one Sync follow another
	synced int64

	loop loop // the capturing thread's own
}

type flushed struct {
	end int64
	err error
}

// NewCapture becomes the one that captures into dir: ErrBusy if another process
// is. It finds the end of the log and moves there what its predecessor left in the
// pipe. It works on duplicates of the descriptors, which stay the caller's;
// somebody else must hold master and both ends of the pipe too if nothing is to
// be lost by a kill. The master becomes nonblocking.
func NewCapture(dir, master, pipeR, pipeW *os.File, opts Options) (*Capture, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	c := &Capture{dir: d, finished: make(chan struct{})}
	c.state.Store(&State{})
	if err := c.open(master, pipeR, pipeW, opts); err != nil {
		c.release()
		return nil, fmt.Errorf("cannot capture output: %w", err)
	}
	c.loop.recover()
	return c, nil
}

func (c *Capture) open(master, pipeR, pipeW *os.File, opts Options) (err error) {
	if c.lock, err = c.dir.open(lockName, unix.O_RDWR|unix.O_CREAT); err != nil {
		return err
	}
	// Nothing of the directory may be looked at before.
	if ok, err := procs.Lock(c.lock); err != nil {
		return err
	} else if !ok {
		return ErrBusy
	}
	if c.move, err = dupMover(master, pipeR, pipeW); err != nil {
		return err
	}
	c.move.copyIn, c.move.copyOut = opts.noSplice, opts.noSplice
	c.state.Store(&State{Copying: opts.noSplice})
	return c.loop.open(c, opts)
}

// release gives back what open has got so far.
func (c *Capture) release() {
	c.loop.release()
	if c.move != nil {
		c.move.close()
	}
	for _, f := range []*os.File{c.wake, c.lock, c.dir.f} {
		if f != nil {
			f.Close()
		}
	}
}

// Stop ends Run after one more attempt to empty the pipe, and gives lock and
// descriptors back. What could not be written stays in pipe and terminal for the
// next Capture.
func (c *Capture) Stop() {
	c.stopping.Store(true)
	c.mu.Lock()
	running, ended := c.running, c.ended
	if !running && !ended {
		c.ended = true
	}
	c.mu.Unlock()
	switch {
	case running || ended:
		c.kick()
		<-c.finished
	default: // Run was never called
		c.finish()
	}
}

// finish is done once, by Run's thread or, if there was none, by Stop.
func (c *Capture) finish() {
	c.mu.Lock()
	c.ended = true
	waiting := c.flushes
	c.flushes = nil
	c.mu.Unlock()
	for _, ch := range waiting {
		ch <- flushed{c.End(), ErrStopped}
	}
	c.syncMu.Lock() // a Sync may still use the directory
	c.release()
	c.syncMu.Unlock()
	close(c.finished)
	c.grown.close()
}

func (c *Capture) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// kick makes the capturing thread look at what was asked of it.
func (c *Capture) kick() {
	one := [8]byte{0: 1, 7: 1} // not zero in either byte order
	c.wake.Write(one[:])
}

// End is the offset after the last byte in the log.
func (c *Capture) End() int64 { return c.end.Load() }

// Tail is the offset of the oldest byte in the log.
func (c *Capture) Tail() int64 { return c.tail.Load() }

// State tells how capturing goes.
func (c *Capture) State() State { return *c.state.Load() }

// Changed gives a channel that is closed as soon as End is above off, or the
// capture has been stopped. It may be closed at a growth that does not reach off.
func (c *Capture) Changed(off int64) <-chan struct{} {
	ch := c.grown.next()
	if c.End() > off {
		return alwaysClosed()
	}
	return ch
}

func alwaysClosed() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// Wait returns nil once End is above off. It ends early with ctx's error or
// ErrStopped.
func (c *Capture) Wait(ctx context.Context, off int64) error {
	for c.End() <= off {
		ch := c.Changed(off)
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for output: %w", ctx.Err())
		}
		select {
		case <-c.finished:
			if c.End() <= off {
				return fmt.Errorf("cannot wait for output: %w", ErrStopped)
			}
		default:
		}
	}
	return nil
}

// Watch makes every piece of output reach the log at once, until the function
// that it returns is called. Without a watcher it may take 5 ms.
func (c *Capture) Watch() (unwatch func()) {
	if c.watchers.Add(1) == 1 {
		c.kick()
	}
	return sync.OnceFunc(func() { c.watchers.Add(-1) })
}

// Flush returns when everything that was in terminal and pipe before the call is in the
// log, with the log's end, or as soon as writing fails. Run must be running.
func (c *Capture) Flush(ctx context.Context) (end int64, err error) {
	ch := make(chan flushed, 1)
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.flushes = append(c.flushes, ch)
	}
	c.mu.Unlock()
	if ended {
		return c.End(), fmt.Errorf("cannot flush output: %w", ErrStopped)
	}
	c.kick()
	select {
	case done := <-ch:
		if done.err != nil {
			return done.end, fmt.Errorf("cannot flush output: %w", done.err)
		}
		return done.end, nil
	case <-ctx.Done():
		return c.End(), fmt.Errorf("cannot flush output: %w", ctx.Err())
	}
}

// Sync makes the log durable up to its present end. It does not flush, and it
// does not hold up capturing.
func (c *Capture) Sync() error {
	c.syncMu.Lock()
	defer c.syncMu.Unlock()
	if c.hasEnded() {
		return fmt.Errorf("cannot make the output durable: %w", ErrStopped)
	}
	end := c.End()
	if err := syncFrom(c.dir, c.synced); err != nil {
		return err
	}
	c.synced = end
	return nil
}

// NoteSize records that what is written from now on is written to a terminal of
// this size. The newest of several in a row wins.
func (c *Capture) NoteSize(size ptmx.Size) {
	c.size.Store(1<<32 | uint64(size.Cols)<<16 | uint64(size.Rows))
	c.kick()
}

// SetState stores what a reader of the log has found out about the stream up to
// start, the first offset of a segment, for Reader.State to find. A segment
// dropped meanwhile is no error.
func (c *Capture) SetState(start int64, state []byte) error {
	c.syncMu.Lock()
	defer c.syncMu.Unlock()
	if c.hasEnded() {
		return fmt.Errorf("cannot store a segment's state: %w", ErrStopped)
	}
	return setState(c.dir, start, state)
}

// Trim lets a lossless log drop what lies below to, in whole segments. The mark
// lives as long as the Capture; the next one begins at its Tail.
func (c *Capture) Trim(to int64) {
	for {
		old := c.trimTo.Load()
		if to <= old {
			return
		}
		if c.trimTo.CompareAndSwap(old, to) {
			c.kick()
			return
		}
	}
}

// Run captures until Stop, on a thread of its own. It is called once.
func (c *Capture) Run() error {
	c.mu.Lock()
	twice, ended := c.running, c.ended
	c.running = true
	c.mu.Unlock()
	switch {
	case twice:
		return errors.New("cannot capture output: it is being captured already")
	case ended: // stopped before it began
		return nil
	}
	defer c.finish()
	return c.loop.run()
}
