package guardian

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// conn is one client's connection. Its goroutine reads; answers go through a
// writer of their own, so that a slow reader delays nobody else.
type conn struct {
	net    *net.UnixConn
	server *server
	// answers has room for every request in flight: who answers never waits.
	answers chan protocol.Response
	// notes are answers of the reading goroutine itself, which may wait.
	notes  chan protocol.Response
	slots  chan struct{} // one for each request whose answer is not written yet
	gone   chan struct{} // closed when nothing is written any more
	reader *output.Reader
	counts bool         // it takes one of the places for request connections
	typing atomic.Int64 // bytes of input that are not written yet
}

// serve runs one connection to its end. A panic ends this connection only.
func (sv *server) serve(nc *net.UnixConn) {
	defer nc.Close()
	sv.contain(func() {
		c := &conn{net: nc, server: sv}
		if err := c.hello(); err != nil {
			sv.log.Info("refused a connection", "error", err)
			return
		}
		c.requests()
	})
}

// contain runs a part of a connection; a panic ends that part only.
func (sv *server) contain(part func()) {
	defer func() {
		if p := recover(); p != nil {
			sv.log.Error("a connection panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	part()
}

// hello checks who is there. Everything about a wrong secret takes the same time
// and gets the same answer.
func (c *conn) hello() error {
	limits := c.server.limits
	c.net.SetDeadline(time.Now().Add(c.server.patience()))
	uid, _, err := peersock.PeerUID(c.net)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return c.turnAway(protocol.Refuse(protocol.CodeUnauthorized, "cannot talk to this session: it belongs to another user"))
	}
	frame, err := protocol.ReadFrame(c.net, nil)
	if err != nil && isClosed(c.server.leaving) {
		return err // it starts over with the next guardian
	}
	if err != nil {
		return c.turnAway(protocol.Refuse(protocol.CodeMalformed, "cannot read the hello: "+err.Error()))
	}
	var h protocol.Hello
	if err := protocol.Unmarshal(frame, &h); err != nil {
		return c.turnAway(protocol.Refuse(protocol.CodeMalformed, "cannot read the hello: "+err.Error()))
	}
	if h.Version < protocol.MinVersion || h.Version > protocol.Version {
		return c.turnAway(protocol.Refuse(protocol.CodeVersion, fmt.Sprintf(
			"cannot speak version %d: versions %d to %d are spoken here", h.Version, protocol.MinVersion, protocol.Version)))
	}
	boot := c.server.session.dir.Bootstrap()
	if !same(h.Authentication, boot.Secret) || !same(h.ExecutionToken, boot.ExecutionToken) {
		return c.turnAway(protocol.Refuse(protocol.CodeUnauthorized, "cannot talk to this session: wrong credentials"))
	}
	err = protocol.WriteFrame(c.net, protocol.Welcome{
		Version: protocol.Version, MinVersion: protocol.MinVersion, Session: boot.Session,
		Role: protocol.RoleController, Capabilities: protocol.Capabilities(),
		Generation: c.server.board.read().Generation, Limits: &limits,
	})
	c.net.SetDeadline(time.Time{})
	return err
}

// same compares in a time that tells neither content nor length.
func same(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func (c *conn) turnAway(why *protocol.Error) error {
	protocol.WriteFrame(c.net, protocol.Welcome{
		Version: protocol.Version, MinVersion: protocol.MinVersion, Error: why,
	})
	// What the client still sends must be taken, or it sees a reset instead of
	// the reason.
	c.net.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(c.net, protocol.MaxFrame))
	return why
}

// requests reads requests until the client leaves or becomes a stream.
func (c *conn) requests() {
	c.answers = make(chan protocol.Response, c.server.limits.InFlight)
	c.notes = make(chan protocol.Response)
	c.slots = make(chan struct{}, c.server.limits.InFlight)
	c.gone = make(chan struct{})
	defer c.finish()
	if stream := c.serveRequests(); stream != nil {
		stream()
	}
}

// serveRequests answers requests. It returns, after the last answer, what the
// connection goes on as; nil is its end.
func (c *conn) serveRequests() (stream func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go c.server.contain(func() {
		defer close(done)
		defer close(c.gone)
		c.write(stop)
	})
	defer func() {
		close(stop)
		<-done
	}()
	stream = c.read()
	if stream == nil && c.abandoned() {
		return nil
	}
	c.settle()
	return stream
}

// settle waits until every answer is written: the client may have closed its
// side only, and a stream's first frame comes after the answers.
func (c *conn) settle() {
	enough := time.After(completionPatience)
	for range cap(c.slots) {
		select {
		case c.slots <- struct{}{}:
		case <-c.gone:
			return
		case <-c.server.leaving:
			return
		case <-enough:
			return
		}
	}
}

// abandoned tells that the client has closed the connection, not only its side of
// it (unix(7): then both directions are shut down here).
func (c *conn) abandoned() bool {
	raw, err := c.net.SyscallConn()
	if err != nil {
		return true
	}
	hup := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		for err == unix.EINTR {
			n, err = unix.Poll(p, 0)
		}
		hup = err != nil || n > 0 && p[0].Revents&unix.POLLHUP != 0
	})
	return hup || err != nil
}

func (c *conn) finish() {
	c.server.session.term.input.cancel(c)
	if c.counts {
		c.server.requestConns.Add(-1)
	}
	if c.reader != nil {
		c.reader.Close()
	}
}

// write sends answers until stop, and then what is there already. An answer that
// is not taken in time ends the connection.
func (c *conn) write(stop <-chan struct{}) {
	send := func(r protocol.Response) bool {
		c.net.SetWriteDeadline(time.Now().Add(c.server.patience()))
		err := protocol.WriteFrame(c.net, r)
		if err != nil {
			c.server.log.Info("closed a connection", "reason", "an answer was not taken: "+err.Error())
			c.net.Close() // wakes the reader
		}
		return err == nil
	}
	for {
		select {
		case r := <-c.answers:
			if !send(r) {
				return
			}
			<-c.slots
		case r := <-c.notes:
			if !send(r) {
				return
			}
		case <-stop:
			for len(c.answers) > 0 {
				if !send(<-c.answers) {
					return
				}
			}
			c.net.SetWriteDeadline(time.Time{})
			return
		}
	}
}

// read takes requests. It returns what the connection goes on as, nil for its end.
func (c *conn) read() (stream func()) {
	for {
		c.net.SetReadDeadline(time.Time{})
		if isClosed(c.server.leaving) { // after the deadline was lifted: shut sets it once
			return nil
		}
		frame, err := protocol.ReadFrame(c.net, func() { c.net.SetReadDeadline(time.Now().Add(c.server.patience())) })
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isClosed(c.server.leaving) {
			return nil
		}
		var head protocol.Head
		if err == nil {
			err = protocol.Unmarshal(frame, &head)
		}
		if err != nil {
			c.note(0, protocol.CodeMalformed, "cannot read a request: "+err.Error())
			return nil
		}
		if head.Op == protocol.OpSubscribe || head.Op == protocol.OpAttach {
			c.net.SetReadDeadline(time.Time{})
			return c.stream(head, frame)
		}
		if !c.takePlace() {
			c.note(head.ID, protocol.CodeBusy, "cannot serve: too many request connections")
			return nil
		}
		select {
		case c.slots <- struct{}{}:
			c.dispatch(head, frame, func(r protocol.Response) { c.answer(head.ID, r) })
		default:
			c.note(head.ID, protocol.CodeBusy, "cannot serve: too many requests in flight on this connection")
		}
	}
}

// takePlace makes the connection one of the request connections.
func (c *conn) takePlace() bool {
	if c.counts {
		return true
	}
	if c.server.requestConns.Add(1) > int64(c.server.limits.RequestConns) {
		c.server.requestConns.Add(-1)
		return false
	}
	c.counts = true
	return true
}

// answer answers a request that holds a slot. It never waits.
func (c *conn) answer(id uint64, r protocol.Response) {
	r.ID = id
	if r.Snapshot == nil {
		r.Snapshot = &lifecycle.Snapshot{Durable: c.server.board.read()}
	}
	c.answers <- r
}

// note refuses a request before it got a slot.
func (c *conn) note(id uint64, code protocol.Code, message string) {
	r := protocol.Response{
		ID: id, Error: protocol.Refuse(code, message), Snapshot: &lifecycle.Snapshot{Durable: c.server.board.read()},
	}
	select {
	case c.notes <- r:
	case <-c.gone:
	}
}

// dispatch starts one request. answer is called once, from any goroutine.
func (c *conn) dispatch(head protocol.Head, frame []byte, answer func(protocol.Response)) {
	var err error
	decode := func(v any) bool {
		err = protocol.Unmarshal(frame, v)
		return err == nil
	}
	switch head.Op {
	case protocol.OpStatus:
		answer(protocol.Response{Snapshot: c.status()})
	case protocol.OpStart:
		if r := new(protocol.StartRequest); decode(r) {
			c.mutate(head.Op, r.MutationID, r, r.StartSpec, answer)
		}
	case protocol.OpTerm:
		if r := new(protocol.TermRequest); decode(r) {
			fields := struct {
				GraceMS uint64 `json:"grace_ms,omitempty"`
			}{r.GraceMS}
			c.mutate(head.Op, r.MutationID, r, fields, answer)
		}
	case protocol.OpSweep:
		if r := new(protocol.SweepRequest); decode(r) {
			c.mutate(head.Op, r.MutationID, r, struct{}{}, answer)
		}
	case protocol.OpRetire:
		if r := new(protocol.RetireRequest); decode(r) {
			c.mutate(head.Op, r.MutationID, r, struct{}{}, answer)
		}
	case protocol.OpSignal:
		if r := new(protocol.SignalRequest); decode(r) {
			fields := struct {
				Signal int                  `json:"signal"`
				Group  protocol.SignalGroup `json:"group,omitempty"`
			}{r.Signal, r.Group}
			c.mutate(head.Op, r.MutationID, r, fields, answer)
		}
	case protocol.OpInput:
		if r := new(protocol.InputRequest); decode(r) {
			c.input(r, answer)
		}
	case protocol.OpResize:
		if r := new(protocol.ResizeRequest); decode(r) {
			answer(c.resize(r))
		}
	case protocol.OpRead:
		if r := new(protocol.ReadRequest); decode(r) {
			answer(c.readOutput(r))
		}
	case protocol.OpReceipts:
		if r := new(protocol.ReceiptsRequest); decode(r) {
			c.server.session.post(listReceipts{r, answer})
		}
	case protocol.OpLeave:
		if r := new(protocol.LeaveRequest); decode(r) {
			why := c.server.board.read().NotDurable
			if why == "" && c.server.board.holding.Load() {
				why = "the end of the output waits for room in the log"
			}
			if why != "" {
				answer(protocol.Response{Error: protocol.Refuse(protocol.CodeNotDurable,
					"cannot leave: what this guardian knows could not be written down: "+why)})
				return
			}
			answer(protocol.Response{})
			c.server.session.post(leave{r.Successor})
		}
	default:
		answer(protocol.Response{Error: protocol.Refuse(protocol.CodeUnknownOp, fmt.Sprintf("cannot %q: there is no such operation", head.Op))})
	}
	if err != nil {
		answer(protocol.Response{Error: protocol.Refuse(protocol.CodeInvalid, fmt.Sprintf("cannot %s: %v", head.Op, err))})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
