package guardian

import (
	"errors"
	"fmt"
	"io"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// mutate sends a mutation to the session. fields are what makes two requests the
// same: all of it but the ids.
func (c *conn) mutate(op protocol.Op, id protocol.MutationID, request, fields any, answer func(protocol.Response)) {
	if id == (protocol.MutationID{}) {
		answer(protocol.Response{Error: protocol.Refuse(protocol.CodeInvalid,
			fmt.Sprintf("cannot %s: it has no mutation id", op))})
		return
	}
	fp, err := receipts.NewFingerprint(string(op), fingerprintVersion, fields)
	if err != nil {
		answer(protocol.Response{Error: protocol.Refuse(protocol.CodeInvalid, fmt.Sprintf("cannot %s: %v", op, err))})
		return
	}
	m := &mutation{id: id, op: op, fingerprint: fp, request: request, answer: answer}
	select {
	case c.server.session.inbox <- m:
	case <-c.server.session.left:
		answer(protocol.Response{Error: leaving()})
	}
}

func leaving() *protocol.Error {
	return protocol.Refuse(protocol.CodeLeaving, "cannot serve: the guardian is leaving; connect anew")
}

// status is the published state with what is known as of now. It waits for
// nobody.
func (c *conn) status() *lifecycle.Snapshot {
	return c.server.snapshot(c.outputReader())
}

func (c *conn) outputReader() *output.Reader {
	if c.reader == nil {
		c.reader = openReader(c.server.session.dir, c.server.log)
	}
	return c.reader
}

func (c *conn) input(r *protocol.InputRequest, answer func(protocol.Response)) {
	size := int64(len(r.Bytes))
	if before := c.typing.Add(size) - size; before > 0 && before+size > int64(c.server.limits.InputCredit) {
		c.typing.Add(-size)
		answer(protocol.Response{Error: protocol.Refuse(protocol.CodeBusy, "cannot type: more input waits on this connection than its credit allows")})
		return
	}
	c.server.session.term.input.add(&inputJob{from: c, bytes: r.Bytes, done: func(n int, why *protocol.Error) {
		c.typing.Add(-size)
		if why != nil && n == 0 {
			answer(protocol.Response{Error: why})
			return
		}
		body, err := protocol.Marshal(protocol.InputAnswer{Written: n})
		if err != nil {
			answer(protocol.Response{Error: protocol.Refuse(protocol.CodeInternal, err.Error())})
			return
		}
		answer(protocol.Response{OK: body})
	}})
}

func (c *conn) resize(r *protocol.ResizeRequest) protocol.Response {
	if err := checkSize(r.Size); err != nil {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInvalid, "cannot resize: "+err.Error())}
	}
	if state := c.server.board.read().State; state == lifecycle.Exited || state.Final() {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeNotRunning, "cannot resize: the target has ended")}
	}
	if err := c.server.session.term.setSize(r.Size); err != nil {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInternal, "cannot resize: "+err.Error())}
	}
	return protocol.Response{}
}

// maxRead leaves room for the frame around the bytes.
const maxRead = protocol.MaxFrame - 16_384

func (c *conn) readOutput(r *protocol.ReadRequest) protocol.Response {
	reader := c.outputReader()
	if reader == nil || r.From < 0 || r.Max < 0 {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInvalid, "cannot read: there is no such offset")}
	}
	size := r.Max
	if size == 0 || size > maxRead {
		size = maxRead
	}
	buf := make([]byte, size)
	from := r.From
	n, err := reader.ReadAt(buf, from)
	var gap *output.GapError
	if errors.As(err, &gap) {
		from = gap.To
		n, err = reader.ReadAt(buf, from)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInternal, "cannot read: "+err.Error())}
	}
	_, end, _ := reader.Bounds()
	body, err := protocol.Marshal(protocol.ReadAnswer{From: from, Bytes: buf[:n], End: end})
	if err != nil {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInternal, err.Error())}
	}
	return protocol.Response{OK: body}
}

// listReceipts answers with the receipts as the session's goroutine has them.
type listReceipts struct {
	request *protocol.ReceiptsRequest
	answer  func(protocol.Response)
}

// maxReceipts is how many receipts fit into one answer.
const maxReceipts = 512

func (e listReceipts) handle(s *session) {
	// After the commit: what is not durable is not told.
	s.then(func(bool) { e.answer(e.list(s)) })
}

func (e listReceipts) list(s *session) protocol.Response {
	var list []receipts.Receipt
	if id := e.request.MutationID; id != nil {
		r, ok := s.book.Get(*id)
		if !ok {
			return protocol.Response{Error: protocol.Refuse(protocol.CodeNotFound, "cannot show the operation: there is no receipt with this id")}
		}
		list = append(list, r)
	} else {
		list = s.book.List()
		list = list[max(0, len(list)-maxReceipts):]
	}
	answer := protocol.ReceiptsAnswer{Receipts: []protocol.Receipt{}}
	for _, r := range list {
		out := protocol.Receipt{
			MutationID: r.ID, Op: r.Op, Code: r.Code, AdmittedAt: r.AdmittedAt.UnixNano(),
		}
		if r.Done {
			out.CompletedAt = r.CompletedAt.UnixNano()
		}
		if e.request.MutationID != nil {
			out.Response = r.Response
		}
		answer.Receipts = append(answer.Receipts, out)
	}
	body, err := protocol.Marshal(answer)
	if err != nil {
		return protocol.Response{Error: protocol.Refuse(protocol.CodeInternal, err.Error())}
	}
	return protocol.Response{OK: body}
}

// leave lets the guardian go; the session lives on under its owner.
type leave struct{ successor bool }

func (e leave) handle(s *session) {
	s.successor = e.successor
	// A start would be lost with us until there is an owner to go on with it, and so
	// would be what could not be written down.
	starting := s.launch != nil && !s.launch.answered
	unwritten := s.unwritten != nil || s.fault != nil
	if s.departs = starting || unwritten && !errors.Is(s.fault, errRemoved); s.departs {
		s.log.Info("asked to leave, and not yet", "starting", starting, "unwritten", unwritten, "fault", fmt.Sprint(s.fault))
		return
	}
	s.then(func(bool) { s.leaveSoon() })
}
