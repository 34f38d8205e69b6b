package guardian

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// server accepts connections for one session.
type server struct {
	session *session
	board   *board
	log     *slog.Logger
	limits  protocol.Limits
	leaving chan struct{} // closed when the guardian goes

	requestConns, subscribers, attachers atomic.Int64

	mu    sync.Mutex // guards the fields below
	conns map[*net.UnixConn]struct{}
	quiet time.Time // since when there is no connection
	open  sync.WaitGroup
}

func (sv *server) patience() time.Duration {
	return time.Duration(sv.limits.FrameTimeoutMS) * time.Millisecond
}

// accept takes connections until the listener is closed. Where the process or
// the machine is out of descriptors, the one in reserve serves to say so.
func (sv *server) accept(listener *net.UnixListener) {
	reserve, _ := os.Open(os.DevNull)
	for {
		nc, err := listener.AcceptUnix()
		switch {
		case err == nil:
			sv.admit(nc)
		case errors.Is(err, net.ErrClosed):
			reserve.Close()
			return
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			reserve.Close()
			if nc, err := listener.AcceptUnix(); err == nil {
				busy(nc, "cannot serve: the guardian is out of file descriptors")
			}
			reserve, _ = os.Open(os.DevNull)
			time.Sleep(10 * time.Millisecond) // the cause will not go by asking again
		default:
			sv.log.Warn("cannot accept", "error", err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// admit serves one connection, or says that there are too many.
func (sv *server) admit(nc *net.UnixConn) {
	most := 2*sv.limits.RequestConns + sv.limits.Subscribers + sv.limits.Attachers
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if len(sv.conns) >= most {
		go busy(nc, "cannot serve: too many connections")
		return
	}
	sv.conns[nc] = struct{}{}
	sv.open.Go(func() {
		sv.serve(nc)
		sv.mu.Lock()
		defer sv.mu.Unlock()
		delete(sv.conns, nc)
		sv.quiet = time.Now()
	})
}

// busy refuses a connection that nobody will serve. One frame always fits into
// a fresh socket's buffer.
func busy(nc *net.UnixConn, message string) {
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(100 * time.Millisecond))
	protocol.WriteFrame(nc, protocol.Welcome{
		Version: protocol.Version, MinVersion: protocol.MinVersion,
		Error: protocol.Refuse(protocol.CodeBusy, message),
	})
	// The hello is on its way: closed too early, the client would see a broken
	// pipe instead of the reason.
	nc.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(nc, protocol.MaxFrame))
}

// idle tells for how long there was no connection.
func (sv *server) idle() time.Duration {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if len(sv.conns) > 0 {
		return 0
	}
	return time.Since(sv.quiet)
}

// shut ends every connection: the streams say why, answers under way are given
// a moment to be taken.
func (sv *server) shut() {
	close(sv.leaving)
	sv.mu.Lock()
	for nc := range sv.conns {
		nc.SetReadDeadline(time.Unix(1, 0))
	}
	sv.mu.Unlock()
	done := make(chan struct{})
	go func() {
		sv.open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// snapshot is the published state with the live part.
func (sv *server) snapshot(reader *output.Reader) *lifecycle.Snapshot {
	live := sv.session.term.live(reader)
	live.Subscribers = int(sv.subscribers.Load())
	live.OwnerSilent = sv.board.silent.Load()
	return &lifecycle.Snapshot{Durable: sv.board.read(), Live: live}
}

func openReader(session *sessiondir.Dir, log *slog.Logger) *output.Reader {
	dir, err := session.Output()
	if err != nil {
		log.Error("cannot open the output", "error", err)
		return nil
	}
	defer dir.Close()
	reader, err := output.OpenReader(dir)
	if err != nil {
		log.Error("cannot read the output", "error", err)
		return nil
	}
	return reader
}
