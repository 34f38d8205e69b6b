package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// errBroken is returned when a connection ended before the answer came: whether
// the request had its effect is not known.
var errBroken = errors.New("the connection to the guardian was lost")

// silentPatience is how long a new connection may stay without an answer before it
// is asked whether there is a guardian at all.
const silentPatience = time.Second

// dial connects to the session's guardian and introduces us.
func (s *Session) dial(ctx context.Context) (*net.UnixConn, protocol.Welcome, error) {
	var welcome protocol.Welcome
	conn, err := peersock.Dial(ctx, s.dir.File(), sessiondir.GuardianSocket)
	if err != nil {
		return nil, welcome, err
	}
	// Whoever waits at a socket that the next guardian cannot be given comes again.
	stop := s.startIfNobody(ctx, func() { conn.Close() })
	defer stop()
	if err := greet(ctx, conn, s.dir.Bootstrap(), &welcome); err != nil {
		conn.Close()
		return nil, welcome, err
	}
	return conn, welcome, nil
}

// startIfNobody starts a guardian when nobody answers and nobody holds the lock: the
// owner, which keeps the socket and would start one, may be stopped. Then again is
// called.
func (s *Session) startIfNobody(ctx context.Context, again func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(silentPatience):
			}
			if _, held, err := s.dir.Holder(sessiondir.GuardianLock); err == nil && !held {
				if _, err := s.spawnGuardian(ctx); err == nil {
					again()
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func greet(ctx context.Context, conn *net.UnixConn, b sessiondir.Bootstrap, welcome *protocol.Welcome) error {
	uid, _, err := peersock.PeerUID(conn)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return &Error{Code: CodeForbidden, Retry: RetryNever, Message: fmt.Sprintf("the socket belongs to user %d", uid)}
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = protocol.WriteFrame(conn, protocol.Hello{
		Version: protocol.Version, ExecutionToken: b.ExecutionToken, Authentication: b.Secret,
		Capabilities: protocol.Capabilities(),
	})
	// Also after a failed write: who turns us away may have closed already, and
	// has said why.
	if answer := receive(conn, welcome); err == nil || answer == nil {
		err = answer
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %v", errBroken, err)
	}
	if e := welcome.Error; e != nil && (e.Code == protocol.CodeLeaving || e.Code == protocol.CodeMalformed) {
		return fmt.Errorf("%w: %s", errBroken, e.Message) // it left before it had read the hello
	}
	if welcome.Error != nil {
		return refusal(welcome.Error, nil)
	}
	return nil
}

func receive(conn *net.UnixConn, v any) error {
	frame, err := protocol.ReadFrame(conn, nil)
	if err != nil {
		return err
	}
	return protocol.Unmarshal(frame, v)
}

// link is one connection with requests in flight.
type link struct {
	conn *net.UnixConn
	done chan struct{} // closed when no further answer will come

	writing sync.Mutex // held for the length of one frame

	mu      sync.Mutex // guards the following
	pending map[uint64]chan protocol.Response
	lastID  uint64
}

func newLink(conn *net.UnixConn) *link {
	l := &link{conn: conn, done: make(chan struct{}), pending: make(map[uint64]chan protocol.Response)}
	go l.read()
	return l
}

func (l *link) read() {
	defer close(l.done)
	defer l.conn.Close()
	for {
		var r protocol.Response
		if err := receive(l.conn, &r); err != nil {
			return
		}
		l.mu.Lock()
		waiter := l.pending[r.ID]
		delete(l.pending, r.ID)
		l.mu.Unlock()
		if waiter != nil {
			waiter <- r // has room for the one answer
		}
	}
}

// call sends one request, made for the id it gets, and waits for its answer.
func (l *link) call(ctx context.Context, build func(id uint64) any) (protocol.Response, error) {
	answer := make(chan protocol.Response, 1)
	l.mu.Lock()
	l.lastID++
	id := l.lastID
	l.pending[id] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.pending, id)
		l.mu.Unlock()
	}()
	frame, err := protocol.AppendFrame(nil, build(id))
	if errors.Is(err, protocol.ErrFrameSize) {
		return protocol.Response{}, &Error{Code: CodeTooLarge, Retry: RetryNever, cause: err, Message: err.Error()}
	}
	if err != nil {
		return protocol.Response{}, err
	}
	if err := l.send(ctx, frame); err != nil {
		return protocol.Response{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-l.done:
		// The last answer may have come just before the end.
		select {
		case r := <-answer:
			return r, nil
		default:
			return protocol.Response{}, errBroken
		}
	case <-ctx.Done():
		return protocol.Response{}, ctx.Err()
	}
}

// send writes one whole frame. A frame that was cut short makes the connection
// useless, so then it is closed.
func (l *link) send(ctx context.Context, frame []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var cut sync.WaitGroup
	cut.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer cut.Done()
		l.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := l.conn.Write(frame)
	if !stop() {
		cut.Wait()
		l.conn.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	l.conn.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errBroken
}

func (l *link) alive() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// close ends the connection and waits for its reader.
func (l *link) close() {
	l.conn.Close()
	<-l.done
}
