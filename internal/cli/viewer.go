package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

const (
	// viewBack is how much of the past a terminal is shown, in bytes.
	viewBack = 64 * 1024
	// settlePatience bounds how long leaving waits for what was typed before.
	settlePatience = time.Second
	// keyQueue is how many reads may wait for a session that takes no input: as
	// long as there is room, the detach key is seen.
	keyQueue = 256
	// winchPause joins a storm of size changes.
	winchPause = 10 * time.Millisecond
)

// viewOptions say how a session is shown.
type viewOptions struct {
	keys     chord
	keyName  string
	readOnly bool
	since    int64 // sensible, or an offset
	keepSize bool  // the session's size is not ours to set
	begin    bool  // the session was just started: show all of it
}

// sensible is an offset to begin at: the recent past on a terminal, else all.
const sensible = -1

// viewer shows one session on the operator's streams.
type viewer struct {
	d    *deps
	s    *client.Session
	a    *client.Attachment
	o    viewOptions
	c    *console
	old  replay       // nil filter once live output has begun
	live int64        // offset where old output ends
	size *client.Size // as the session knows it
	next int64        // offset of what was not shown yet
	// unwritten is how much of the output was not there to be shown at the end.
	unwritten int64

	leave     chan struct{} // closed when the detach key was pressed
	closed    chan struct{} // closed when the terminal has gone away
	inputDone chan struct{} // closed when nothing more will be sent
}

// view shows the session until it ends, and returns its record; a nil record
// without an error: detached.
func (d *deps) view(ctx context.Context, s *client.Session, o viewOptions) (*client.Record, error) {
	v := &viewer{
		d: d, s: s, o: o, c: &console{in: terminal(d.stdin), out: terminal(d.stdout)},
		leave: make(chan struct{}), closed: make(chan struct{}), inputDone: make(chan struct{}),
	}
	if err := v.attach(ctx); err != nil {
		return nil, cannot("attach to", called(s), err)
	}
	defer v.a.Close()
	defer v.c.restore()
	// Output that nobody reads any more must not end the process before the
	// terminal is given back: it makes the write fail instead.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	if err := v.c.raw(); err != nil {
		return nil, cannot("prepare", "the terminal", err)
	}
	// Only now: from this line on the detach key works.
	if v.c.in != nil {
		v.note("attached to %s%s", called(s), v.how())
	}
	if v.a.Snapshot().State == client.StateStopped {
		v.note("%s is stopped; continue it with: mur signal %s CONT --group all", called(s), called(s))
	}
	return v.run(ctx)
}

func (v *viewer) how() string {
	switch {
	case v.o.keys.off:
		return ""
	case v.o.readOnly:
		return ", read-only; detach: " + v.o.keyName
	default:
		return "; detach: " + v.o.keyName
	}
}

func (v *viewer) attach(ctx context.Context) error {
	o := client.AttachOptions{ReadOnly: v.o.readOnly, Since: &v.o.since}
	if !v.o.keepSize && !v.o.readOnly {
		v.size = v.c.size()
		o.Size = v.size
	}
	st, err := v.s.Snapshot(ctx)
	if err != nil {
		return err
	}
	if inside(st, v.d.stdin, v.d.stdout) {
		return fail(causeState, "", "this terminal is inside it")
	}
	if v.o.since == sensible {
		if v.c.out != nil && !v.o.begin && !st.State.Final() {
			o.Since, o.Back, o.Nudge = nil, viewBack, true
		} else {
			o.Since = new(int64)
		}
	}
	a, err := v.s.Attach(ctx, o)
	if err != nil {
		return err
	}
	v.a = a
	if o.Since != nil {
		v.next = *o.Since
	} else if live := a.Snapshot().Live; live != nil {
		v.next = live.OutputEnd
	}
	if live := a.Snapshot().Live; live != nil && v.c.out != nil {
		v.live = live.OutputEnd
	}
	if v.o.begin {
		v.live = 0 // its questions are fresh
	}
	return nil
}

// run moves bytes both ways until one of the ways out.
func (v *viewer) run(ctx context.Context) (*client.Record, error) {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	type result struct {
		record *client.Record
		err    error
	}
	shown := make(chan result, 1)
	go func() {
		defer v.onPanic()
		record, err := v.show()
		shown <- result{record, err}
	}()
	v.typeIn(ctx)
	background.Go(func() { v.followSize(ctx) })
	select {
	case r := <-shown:
		v.c.restore()
		if r.err != nil || r.record != nil && r.record.Result == lifecycle.ResultLost || v.unwritten > 0 {
			v.c.freshLine() // an error is to be told
		}
		v.d.sayMissing(called(v.s), v.unwritten)
		return r.record, v.lost(r.err)
	case <-v.leave:
		v.detach()
		return nil, nil
	case <-v.closed:
		// A SIGHUP comes with it, to whoever has the terminal as its own.
		select {
		case <-ctx.Done():
		case <-time.After(settlePatience):
		}
	case <-ctx.Done():
	}
	v.c.restore()
	v.comeBack()
	if ctx.Err() == nil {
		return nil, cannot("show", called(v.s), errors.New("the terminal is gone"))
	}
	return nil, context.Cause(ctx)
}

// lost explains the end of an attachment whose session goes on.
func (v *viewer) lost(err error) error {
	if err == nil {
		return nil
	}
	return cannot("go on with", called(v.s), err)
}

// onPanic gives the terminal back before a panic ends the process.
func (v *viewer) onPanic() {
	if p := recover(); p != nil {
		v.c.restore()
		panic(p)
	}
}

func (v *viewer) detach() {
	// What was typed before the detach key is still on its way.
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	var settled error
	select {
	case <-v.inputDone:
		settled = v.a.Settle(ctx)
	case <-ctx.Done():
		settled = ctx.Err()
	}
	v.a.Detach()
	v.c.restore()
	if settled != nil {
		v.c.freshLine()
		if pid := v.s.StoppedGuardian(); pid != 0 {
			within(func() { v.d.sayStopped(called(v.s), pid) })
		}
		within(func() { v.d.say("the session does not read: the end of the input was not taken") })
	}
	v.comeBack()
}

func (v *viewer) comeBack() {
	v.c.freshLine()
	if v.s.Removed() {
		within(func() { v.d.say("detached from %s, whose directory was removed: it is hung up on", called(v.s)) })
		return
	}
	within(func() { v.d.say("detached from %s; come back with: mur attach %s", called(v.s), called(v.s)) })
}

// note is talk while the session is shown.
func (v *viewer) note(format string, args ...any) {
	fmt.Fprintf(v.d.stderr, "mur: "+format+v.c.eol(), args...)
}

// show writes what the session writes, up to its end.
func (v *viewer) show() (*client.Record, error) {
	for f, err := range v.a.Frames() {
		switch {
		case err != nil:
			return nil, err
		case f.Output != nil:
			if err := v.output(f.Output); err != nil {
				return nil, fmt.Errorf("cannot write the output: %w", err)
			}
		case f.Gap != nil:
			v.next = f.Gap.To
			if f.Gap.From > 0 || v.c.out == nil {
				v.note("output %d to %d is no longer kept", f.Gap.From, f.Gap.To)
			}
		case f.Refused != nil && f.Refused.Error.Code == client.CodeUnknownOutcome:
			v.note("%s", f.Refused.Error.Message)
		case f.Refused != nil:
			v.note("input was refused: %s", f.Refused.Error.Message)
		case f.End != nil && f.End.Error != nil:
			return nil, &client.Error{
				Code: f.End.Error.Code, Message: f.End.Error.Message, Retry: f.End.Error.Retry,
			}
		case f.End != nil:
			v.unwritten = shortOf(f.End.Record, v.next)
			return f.End.Record, nil
		}
	}
	return nil, nil // left
}

// output shows a piece; of what was written before we came, without questions.
func (v *viewer) output(o *client.OutputFrame) error {
	b := o.Bytes
	v.next = o.Next
	if o.Offset < v.live {
		old := min(int64(len(b)), v.live-o.Offset)
		shown := v.old.filter(b[:old])
		if o.Offset+old == v.live {
			shown = append(shown, v.old.rest()...)
		}
		b = append(shown, b[old:]...)
	}
	return v.c.write(v.d.stdout, b)
}

// typeIn begins to send what is typed. The goroutine that reads may outlive the
// view: a read of a terminal cannot be woken, and the process is about to end.
func (v *viewer) typeIn(ctx context.Context) {
	if v.d.stdin == nil || v.c.in == nil && v.o.readOnly {
		close(v.inputDone)
		return
	}
	queue := make(chan []byte, keyQueue)
	go func() {
		defer v.onPanic()
		v.readKeys(ctx, queue)
	}()
	go func() {
		defer v.onPanic()
		defer close(v.inputDone)
		for b := range queue {
			if v.a.Input(ctx, b) != nil {
				return
			}
		}
	}()
}

// readKeys reads input up to its end or the detach key. The end of a pipe types
// nothing: which byte would mean the end is the session's terminal's business.
func (v *viewer) readKeys(ctx context.Context, queue chan<- []byte) {
	defer close(queue)
	keys := v.o.keys
	if v.c.in == nil {
		keys = chord{off: true} // bytes of a pipe are not pressed by anybody
	}
	for {
		buf := make([]byte, inputRead)
		n, err := v.d.stdin.Read(buf)
		send, detach := keys.feed(buf[:n])
		if err != nil {
			send = append(send, keys.rest()...)
		}
		if len(send) > 0 && !v.o.readOnly {
			select {
			case queue <- send:
			case <-ctx.Done():
				return
			}
		}
		switch {
		case detach:
			close(v.leave)
			return
		case v.c.in != nil && err != nil:
			close(v.closed)
			return
		case err != nil:
			if !errors.Is(err, io.EOF) {
				v.note("cannot read the input: %v", err)
			}
			return
		}
	}
}

// inputRead is how much input is read at once, in bytes.
const inputRead = 4096

// followSize hands on the size of the terminal, and takes it again after a stop.
func (v *viewer) followSize(ctx context.Context) {
	if v.c.in == nil && v.c.out == nil {
		return
	}
	signals := make(chan os.Signal, 1) // one is enough to look again
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	for {
		v.tellSize() // also at first: it may have changed before we listened
		select {
		case <-ctx.Done():
			return
		case <-time.After(winchPause):
		}
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			if got == syscall.SIGCONT {
				v.c.raw() // whoever had the terminal meanwhile has set it to their liking
			}
		}
	}
}

// tellSize is silent when nothing has changed.
func (v *viewer) tellSize() {
	now := v.c.size()
	if now == nil || v.o.keepSize || v.o.readOnly || v.size != nil && *now == *v.size {
		return
	}
	v.size = now
	v.a.Resize(*now)
}
