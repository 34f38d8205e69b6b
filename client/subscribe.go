package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"time"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// SubscribeOptions say what a subscription gives.
type SubscribeOptions struct {
	// Since is the last revision seen: only newer ones are given.
	Since uint64
	// Live asks for the live part too, at most once in so much time.
	Live time.Duration
}

// Update is one snapshot of a subscription.
type Update struct {
	Snapshot
	// Skipped: revisions between the last seen one and this were not given.
	Skipped bool
}

// Subscribe gives the guardian's snapshots as they happen, until the first with
// the final record. A lost connection is made anew at the last revision; an end
// that came meanwhile is read from the files. Watch does all by the files.
func (s *Session) Subscribe(ctx context.Context, o SubscribeOptions) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		pause := firstPause
		for {
			over, err := s.subscription(ctx, &o, yield)
			switch {
			case over:
				return
			case ctx.Err() != nil:
				err = ctx.Err()
			case passing(err):
				if err = s.whyNobody(ctx); err == nil {
					if err = rest(ctx, &pause); err == nil {
						continue
					}
				}
				if final := endOf(err); final != nil {
					yield(Update{Snapshot: *final, Skipped: final.Revision > o.Since+1}, nil)
					return
				}
			}
			yield(Update{}, err)
			return
		}
	}
}

// endOf is the snapshot of a session that has ended while nobody listened.
func endOf(err error) *Snapshot {
	var e *Error
	if errors.As(err, &e) && e.Snapshot != nil && e.Snapshot.State.Final() {
		return e.Snapshot
	}
	return nil
}

// subscription runs one connection's stream. over: the consumer or the session
// has had enough.
func (s *Session) subscription(ctx context.Context, o *SubscribeOptions, yield func(Update, error) bool) (over bool, err error) {
	conn, _, err := s.openStream(ctx, func(id uint64) any {
		return protocol.SubscribeRequest{
			Head:  protocol.Head{ID: id, Op: protocol.OpSubscribe},
			Since: o.Since, LiveMS: int(o.Live.Milliseconds()),
		}
	})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for {
		var f protocol.SubscribeFrame
		if err := receive(conn, &f); err != nil {
			return false, fmt.Errorf("%w: %v", errBroken, err)
		}
		if f.Snapshot == nil {
			return false, fmt.Errorf("cannot follow %s: %w", s.ID(), protocol.ErrMalformed)
		}
		o.Since = f.Snapshot.Revision
		if !yield(Update{Snapshot: *f.Snapshot, Skipped: f.Skipped}, nil) || f.Last {
			return true, nil
		}
	}
}

// rest waits for the pause, which gets longer, or the context's end.
func rest(ctx context.Context, pause *time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(*pause):
	}
	*pause = min(2**pause, lastPause)
	return nil
}

// opening is what a stream begins with.
type opening struct {
	snapshot *Snapshot
	limits   *protocol.Limits
}

// openStream makes a connection of its own and turns it into a stream.
func (s *Session) openStream(ctx context.Context, build func(id uint64) any) (*net.UnixConn, opening, error) {
	conn, welcome, err := s.dial(ctx)
	if err != nil {
		return nil, opening{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = protocol.WriteFrame(conn, build(1))
	var r protocol.Response
	if err == nil {
		err = receive(conn, &r)
	}
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("%w: %v", errBroken, err)
	case r.Error != nil && (r.Error.Code == protocol.CodeLeaving || r.ID == 0):
		err = errBroken // an answer to no request says why the connection ends
	case r.Error != nil:
		err = refusal(r.Error, r.Snapshot)
	}
	if err != nil {
		conn.Close()
		return nil, opening{}, err
	}
	return conn, opening{snapshot: r.Snapshot, limits: welcome.Limits}, nil
}
