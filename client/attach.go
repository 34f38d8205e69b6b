package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	// inputPiece is the largest input frame, in bytes: small, so that a refused
	// one says precisely where.
	inputPiece = 4096
	// attachPatience is how long a connection may take to be made, or made anew.
	attachPatience = 10 * time.Second
)

// The frames of an attachment.
type (
	// Frame is what an attacher receives; exactly one field is set.
	Frame = protocol.AttachFrame
	// OutputFrame is output as written, with its offset.
	OutputFrame = protocol.OutputFrame
	// GapFrame says which output is no longer kept.
	GapFrame = protocol.GapFrame
	// AckFrame says that an input frame was written to the terminal.
	AckFrame = protocol.AckFrame
	// RefusedFrame says that an input frame was not written, or not whole.
	RefusedFrame = protocol.RefusedFrame
	// EndFrame is the last frame.
	EndFrame = protocol.EndFrame
)

var errDetached = errors.New("the attachment has ended")

// AttachOptions say where an attachment begins and what it may do.
type AttachOptions struct {
	// Size is the terminal's size; nil leaves the session's as it is.
	Size *Size
	// ReadOnly attachments never type and never own the size.
	ReadOnly bool
	// Since is the offset to begin at; nil: Back bytes before the present.
	Since *int64
	Back  int64
	// Nudge asks full-screen programs to repaint.
	Nudge bool
	// Patience bounds the making of a connection; 0: 10 s.
	Patience time.Duration
}

// Attachment shows a session and types into it. One goroutine ranges over
// Frames; Input, Resize and Detach may be called by others meanwhile.
type Attachment struct {
	s     *Session
	o     AttachOptions
	ctx   context.Context
	first Snapshot

	writing sync.Mutex // held for the length of one frame

	mu       sync.Mutex // guards the following
	conn     *net.UnixConn
	broken   bool  // conn is lost, and not replaced yet
	offset   int64 // of the next output byte; -1: none was received
	lastSeq  uint64
	inFlight []sent
	bytes    int // the sum of inFlight
	window   int // how many may be in flight
	over     bool
	changed  chan struct{} // closed and replaced when there is more room, or the end
}

type sent struct {
	seq  uint64
	size int
}

// Attach joins the session, whose guardian is started when none lives. A lost
// connection is made anew at the last offset; CodeGuardianLost when that cannot
// be. The context is that of the whole attachment.
func (s *Session) Attach(ctx context.Context, o AttachOptions) (*Attachment, error) {
	if o.Patience == 0 {
		o.Patience = attachPatience
	}
	a := &Attachment{s: s, o: o, ctx: ctx, offset: -1, changed: make(chan struct{})}
	if err := a.connect(); err != nil {
		return nil, err
	}
	return a, nil
}

// Snapshot is the session as of the moment of attaching.
func (a *Attachment) Snapshot() Snapshot { return a.first }

// connect makes the connection, at the offset where the last one broke.
func (a *Attachment) connect() error {
	ctx, cancel := context.WithTimeout(a.ctx, a.o.Patience)
	defer cancel()
	pause := firstPause
	for {
		conn, begun, err := a.s.openStream(ctx, a.request)
		if err == nil {
			a.use(conn, begun)
			return nil
		}
		if ctx.Err() == nil && noListener(err) {
			if wakeErr := a.s.ensureGuardian(ctx); wakeErr != nil {
				return wakeErr
			}
		} else if ctx.Err() == nil && !passing(err) {
			return err
		}
		if rest(ctx, &pause) != nil {
			return a.s.unreachable(ctx, err)
		}
	}
}

func (a *Attachment) request(id uint64) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := protocol.AttachRequest{
		Head: protocol.Head{ID: id, Op: protocol.OpAttach},
		Size: a.o.Size, ReadOnly: a.o.ReadOnly, Since: a.o.Since, Back: a.o.Back, Nudge: a.o.Nudge,
	}
	if a.offset >= 0 {
		from := a.offset
		r.Since, r.Back, r.Nudge = &from, 0, false
	}
	return r
}

func (a *Attachment) use(conn *net.UnixConn, begun opening) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn, a.broken = conn, false
	// A window of our own: what an Ack says of the credit does not know what is on
	// its way.
	a.window = protocol.DefaultLimits().InputCredit
	if begun.limits != nil {
		a.window = begun.limits.InputCredit
	}
	if begun.snapshot != nil && a.offset < 0 {
		a.first = *begun.snapshot
	}
	if a.over {
		conn.Close()
	}
	a.wakeWriters()
}

// Frames gives what the session sends, up to and including the End frame. Input
// whose fate is unknown after a lost connection comes as a Refused frame with
// CodeUnknownOutcome. After Detach or Close the sequence just ends.
func (a *Attachment) Frames() iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		defer a.Close()
		stop := context.AfterFunc(a.ctx, func() { a.Close() })
		defer stop()
		for {
			f, err := a.next()
			if err == nil {
				if !yield(f, nil) || f.End != nil {
					return
				}
				continue
			}
			if a.ended() {
				if a.ctx.Err() != nil {
					yield(Frame{}, a.ctx.Err())
				}
				return
			}
			if err := a.resume(yield, err); err != nil {
				if !errors.Is(err, errDetached) {
					yield(Frame{}, err)
				}
				return
			}
		}
	}
}

// next receives one frame and keeps the books.
func (a *Attachment) next() (Frame, error) {
	var f Frame
	if err := receive(a.connection(), &f); err != nil {
		return f, err
	}
	switch {
	case f.End != nil && f.End.Error != nil && f.End.Error.Code == protocol.CodeLeaving:
		return f, errBroken
	case f.Output != nil:
		a.at(f.Output.Next)
	case f.Gap != nil:
		a.at(f.Gap.To)
	case f.Ack != nil:
		a.settle(f.Ack.Seq)
	case f.Refused != nil:
		a.settle(f.Refused.Seq)
	}
	return f, nil
}

func (a *Attachment) connection() *net.UnixConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn
}

func (a *Attachment) at(offset int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offset = offset
}

func (a *Attachment) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// settle takes a frame out of flight; a refusal may overtake an earlier frame.
func (a *Attachment) settle(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, f := range a.inFlight {
		if f.seq == seq {
			a.bytes -= f.size
			a.inFlight = slices.Delete(a.inFlight, i, i+1)
			break
		}
	}
	a.wakeWriters()
}

// wakeWriters is called with mu held.
func (a *Attachment) wakeWriters() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// resume reports what was in flight and connects again.
func (a *Attachment) resume(yield func(Frame, error) bool, cause error) error {
	if errors.Is(cause, protocol.ErrMalformed) || errors.Is(cause, protocol.ErrFrameSize) {
		return fmt.Errorf("cannot go on with %s: %w", a.s.ID(), cause)
	}
	a.mu.Lock()
	a.conn.Close()
	a.broken = true // what is typed from here on waits for the next connection
	unknown := a.inFlight
	a.inFlight, a.bytes = nil, 0
	a.mu.Unlock()
	for _, f := range unknown {
		refused := Frame{Refused: &RefusedFrame{Seq: f.seq, Error: protocol.Refuse(protocol.CodeUnknownOutcome,
			"the connection was lost: whether this was typed is unknown")}}
		if !yield(refused, nil) {
			return errDetached
		}
	}
	if err := a.connect(); err != nil {
		if a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		return guardianLost(a.s.ID(), err)
	}
	if a.ended() {
		return errDetached
	}
	return nil
}

// Input types data. It blocks while the session has not taken earlier input, so
// somebody has to range over Frames meanwhile. That it was written is told by
// Ack frames, that it was not by Refused frames.
func (a *Attachment) Input(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), inputPiece)
		if err := a.input(ctx, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (a *Attachment) input(ctx context.Context, piece []byte) error {
	for {
		a.mu.Lock()
		over, changed, conn := a.over, a.changed, a.conn
		// With nothing in flight no acknowledgement would ever bring more credit.
		room := !a.broken && (a.bytes == 0 || a.bytes+len(piece) <= a.window)
		var seq uint64
		if room && !over {
			a.lastSeq++
			seq = a.lastSeq
			a.inFlight = append(a.inFlight, sent{seq: seq, size: len(piece)})
			a.bytes += len(piece)
		}
		a.mu.Unlock()
		if over {
			return errDetached
		}
		if room {
			// A failure to send shows at the reading end, which resumes. What is in
			// flight on one connection must not go out on the next: by then it was
			// reported as unknown.
			a.sendOn(conn, protocol.AttachInput{Input: &protocol.InputFrame{Seq: seq, Bytes: piece}})
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
}

// Settle waits until the session has answered for all input that was sent, or
// the attachment is over.
func (a *Attachment) Settle(ctx context.Context) error {
	for {
		a.mu.Lock()
		settled, changed := a.bytes == 0 || a.over, a.changed
		a.mu.Unlock()
		if settled {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Resize tells the size of the attacher's terminal.
func (a *Attachment) Resize(size Size) {
	a.mu.Lock()
	a.o.Size = &size // also for a connection that is made anew
	a.mu.Unlock()
	a.send(protocol.AttachInput{Resize: &size})
}

// Detach leaves the session, which goes on.
func (a *Attachment) Detach() error {
	a.send(protocol.AttachInput{Detach: true})
	return a.Close()
}

// Close ends the attachment at once.
func (a *Attachment) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil
	}
	a.over = true
	a.wakeWriters()
	return a.conn.Close()
}

func (a *Attachment) send(f protocol.AttachInput) { a.sendOn(a.connection(), f) }

func (a *Attachment) sendOn(conn *net.UnixConn, f protocol.AttachInput) {
	a.writing.Lock()
	defer a.writing.Unlock()
	protocol.WriteFrame(conn, f) // a lost connection is the reader's to notice
}
