package guardian

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// maxReplies bounds the answers to input that wait for the client to read them;
// beyond that no more of its input is taken.
const maxReplies = 256

// attachChunk is how much output one frame carries at most, in bytes.
const attachChunk = 65_536

// attachment is one attacher: a cursor on the log. There is no queue of output
// for it; it reads the log when its connection has taken what came before.
type attachment struct {
	conn     *conn
	readOnly bool
	size     *protocol.Size // guarded by terminal.mu

	room chan struct{} // one for each reply that is owed
	left chan struct{} // closed when no reply will be sent any more

	mu      sync.Mutex // guards the fields below
	replies []protocol.AttachFrame
	credit  int // bytes of input that may still come
	wake    chan struct{}
}

// attach runs the connection as an attachment until either side ends it.
func (c *conn) attach(r *protocol.AttachRequest) {
	term := c.server.session.term
	a := &attachment{
		conn: c, readOnly: r.ReadOnly, size: r.Size,
		credit: c.server.limits.InputCredit, wake: make(chan struct{}, 1),
		room: make(chan struct{}, maxReplies), left: make(chan struct{}),
	}
	turned, stop := term.turns.listen()
	defer stop()
	changed, stopChanges := c.server.board.changes.listen()
	defer stopChanges()
	term.join(a)
	defer term.leave(a)
	defer term.input.cancel(a)
	if err := c.begin(r.ID); err != nil {
		return
	}
	gone := make(chan struct{})
	go c.server.contain(func() {
		defer close(gone)
		a.read()
	})
	defer func() {
		c.net.Close()
		close(a.left)
		<-gone
	}()
	if r.Nudge {
		term.nudge()
	}
	a.write(r, turned, changed, gone)
}

// write sends what there is, then waits for more.
func (a *attachment) write(r *protocol.AttachRequest, turned, changed, gone <-chan struct{}) {
	server := a.conn.server
	reader := a.conn.outputReader()
	if reader == nil {
		a.send(protocol.AttachFrame{End: &protocol.EndFrame{Error: protocol.Refuse(protocol.CodeInternal, "cannot attach: the output cannot be read")}})
		return
	}
	var unwatch func()
	defer func() {
		if unwatch != nil {
			unwatch()
		}
	}()
	cursor := firstOffset(r, reader)
	buf := make([]byte, attachChunk)
	size := server.session.term.currentSize()
	if a.send(protocol.AttachFrame{Size: &size}) != nil {
		return
	}
	revision := server.board.read().Revision
	term := server.session.term
	for {
		capture := term.capture.Load()
		if capture != nil && unwatch == nil {
			unwatch = capture.Watch()
		}
		for _, f := range a.takeReplies() {
			<-a.room
			if a.send(f) != nil {
				return
			}
		}
		// First how far the log goes, then the state: what is in the log while the
		// target is not known to have ended is part of what the record counts, and
		// what is in it when the record is there is cut where the record says.
		limit := a.logEnd(reader)
		d := server.board.read()
		next, more, err := a.output(reader, cursor, buf, d, limit)
		if err != nil {
			return
		}
		cursor = next
		if now := server.session.term.currentSize(); now != size {
			size = now
			if a.send(protocol.AttachFrame{Size: &size}) != nil {
				return
			}
		}
		if d.Revision > revision {
			revision = d.Revision
			if a.send(protocol.AttachFrame{Snapshot: &lifecycle.Snapshot{Durable: d}}) != nil {
				return
			}
		}
		if more {
			continue
		}
		if d.State.Final() {
			a.send(protocol.AttachFrame{End: &protocol.EndFrame{Record: d.Record}})
			return
		}
		var output <-chan struct{}
		if capture != nil {
			output = capture.Changed(cursor)
		}
		select {
		case <-output:
		case <-turned:
		case <-changed:
		case <-a.wake:
		case <-gone:
			return
		case <-server.leaving:
			a.send(protocol.AttachFrame{End: &protocol.EndFrame{Error: leaving()}})
			return
		}
	}
}

// firstOffset is where an attachment begins.
func firstOffset(r *protocol.AttachRequest, reader *output.Reader) int64 {
	if r.Since != nil {
		return *r.Since
	}
	tail, end, err := reader.Bounds()
	if err != nil {
		return 0
	}
	return max(tail, end-r.Back)
}

// output sends one piece of output, or the gap before it, and tells whether
// there may be more. Nothing beyond the end that a final record names is sent.
func (a *attachment) output(reader *output.Reader, cursor int64, buf []byte, d lifecycle.Durable, limit int64) (next int64, more bool, err error) {
	switch {
	case d.State == lifecycle.Exited:
		return cursor, false, nil // until it is known where the output ends
	case d.State.Final() && d.Record != nil && d.Record.Drain != lifecycle.DrainUnknown:
		limit = d.Record.EndOffset
	case d.State.Final():
		limit = a.logEnd(reader)
		if d.Record != nil { // of a removed directory nothing is listed any more
			limit = max(limit, d.Record.EndOffset)
		}
	}
	buf = buf[:max(0, min(int64(len(buf)), limit-cursor))]
	if len(buf) == 0 {
		return cursor, false, nil
	}
	n, err := reader.ReadAt(buf, cursor)
	var gap *output.GapError
	switch {
	case errors.As(err, &gap):
		err = a.send(protocol.AttachFrame{Gap: &protocol.GapFrame{From: cursor, To: gap.To}})
		return gap.To, true, err
	case errors.Is(err, io.EOF):
		return cursor, false, nil
	case err != nil:
		a.conn.server.log.Error("cannot read the output", "error", err)
		a.send(protocol.AttachFrame{End: &protocol.EndFrame{Error: protocol.Refuse(protocol.CodeInternal, "cannot read the output: "+err.Error())}})
		return cursor, false, err
	}
	next = cursor + int64(n)
	err = a.send(protocol.AttachFrame{Output: &protocol.OutputFrame{Offset: cursor, Next: next, Bytes: buf[:n]}})
	return next, n > 0, err
}

// logEnd is the end of the log as of now.
func (a *attachment) logEnd(reader *output.Reader) int64 {
	if c := a.conn.server.session.term.capture.Load(); c != nil {
		return c.End()
	}
	_, end, _ := reader.Bounds()
	return end
}

// send writes one frame, however long the client takes: a viewer is never closed
// for being slow, and holds no more than this frame.
func (a *attachment) send(f protocol.AttachFrame) error {
	return protocol.WriteFrame(a.conn.net, f)
}

func (a *attachment) takeReplies() []protocol.AttachFrame {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.replies
	a.replies = nil
	return r
}

func (a *attachment) reply(f protocol.AttachFrame) {
	a.mu.Lock()
	a.replies = append(a.replies, f)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// read takes the client's frames until it detaches or leaves.
func (a *attachment) read() {
	patience := a.conn.server.patience()
	for {
		a.conn.net.SetReadDeadline(time.Time{})
		if isClosed(a.conn.server.leaving) { // after the deadline was lifted: shut sets it once
			return
		}
		frame, err := protocol.ReadFrame(a.conn.net, func() { a.conn.net.SetReadDeadline(time.Now().Add(patience)) })
		if err != nil {
			return
		}
		var in protocol.AttachInput
		if err := protocol.Unmarshal(frame, &in); err != nil || in.Detach {
			return
		}
		if in.Resize != nil && checkSize(*in.Resize) == nil {
			a.conn.server.session.term.resized(a, *in.Resize)
		}
		if in.Input != nil {
			select {
			case a.room <- struct{}{}:
			case <-a.left:
				return
			}
			a.input(*in.Input)
		}
	}
}

// input queues one frame of input within the attacher's credit.
func (a *attachment) input(in protocol.InputFrame) {
	refuse := func(n int, why *protocol.Error) {
		a.reply(protocol.AttachFrame{Refused: &protocol.RefusedFrame{Seq: in.Seq, Written: n, Error: why}})
	}
	if a.readOnly {
		refuse(0, protocol.Refuse(protocol.CodeForbidden, "cannot type: the attachment is read-only"))
		return
	}
	a.mu.Lock()
	fits := len(in.Bytes) <= a.credit
	if fits {
		a.credit -= len(in.Bytes)
	}
	a.mu.Unlock()
	if !fits {
		refuse(0, protocol.Refuse(protocol.CodeBusy, "cannot type: more input than the credit allows"))
		return
	}
	term := a.conn.server.session.term
	term.typed(a)
	term.input.add(&inputJob{from: a, bytes: in.Bytes, done: func(n int, why *protocol.Error) {
		a.mu.Lock()
		a.credit += len(in.Bytes)
		credit := a.credit
		a.mu.Unlock()
		if why != nil {
			refuse(n, why)
			return
		}
		a.reply(protocol.AttachFrame{Ack: &protocol.AckFrame{Seq: in.Seq, Written: n, Credit: credit}})
	}})
}
