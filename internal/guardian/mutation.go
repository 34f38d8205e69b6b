package guardian

import (
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// fingerprintVersion changes when the fields of a mutation that count change.
const fingerprintVersion = 1

// codeOK is the receipt's code of a mutation that was carried out.
const codeOK = "ok"

// mutation is one request that has an effect, on its way to its receipt.
type mutation struct {
	id          protocol.MutationID
	op          protocol.Op
	fingerprint receipts.Fingerprint
	request     any
	// answer sends the response and may be called from any goroutine, once.
	answer func(protocol.Response)
	// until is when a mutation that waits for the start gives up.
	until time.Time
}

// handle decides by the receipts whether the mutation is new; only a new one
// reaches its verb. What can be refused without effect is refused there, before
// anything is recorded.
func (m *mutation) handle(s *session) {
	verdict, _ := s.book.Check(m.id, string(m.op), m.fingerprint)
	switch verdict {
	case receipts.Replay:
		s.then(func(bool) { s.replay(m) })
	case receipts.Pending:
		s.waiting[m.id] = append(s.waiting[m.id], m)
		s.expire(m)
	case receipts.Conflict:
		why := "cannot " + string(m.op) + ": the operation id was used before for something else"
		if m.op == protocol.OpStart {
			why += " (of a start everything counts: program, arguments, environment, directory, umask, size)"
		}
		s.refuse(m, protocol.Refuse(protocol.CodeConflict, why))
	default:
		if err := s.book.Room(string(m.op)); err != nil {
			s.refuse(m, protocol.Refuse(protocol.CodeReceiptsFull, "cannot "+string(m.op)+": "+err.Error()))
			return
		}
		s.act(m)
	}
}

// act is what each mutation does once it is known to be new.
func (s *session) act(m *mutation) {
	switch r := m.request.(type) {
	case *protocol.StartRequest:
		s.startTarget(m, r)
	case *protocol.TermRequest:
		s.termTarget(m, time.Duration(min(r.GraceMS, protocol.MaxGraceMS+1))*time.Millisecond)
	case *protocol.SignalRequest:
		s.signalTarget(m, r)
	case *protocol.SweepRequest:
		s.sweepSession(m)
	case *protocol.RetireRequest:
		s.retireSession(m)
	}
}

// replay answers with the stored response. It is looked up again: a completion of
// the same batch may have been taken back.
func (s *session) replay(m *mutation) {
	r, ok := s.book.Get(m.id)
	if !ok || !r.Done {
		m.answer(protocol.Response{Error: protocol.Refuse(protocol.CodeNotDurable,
			"cannot "+string(m.op)+": the operation could not be recorded; repeat it later")})
		return
	}
	body := r.Response
	if r.Shrunk && m.op == protocol.OpSweep && len(body) == 0 {
		body = s.sweptLongAgo(m.id)
	}
	m.answer(protocol.Response{OK: body, Replayed: true, NotDurable: s.fault != nil})
	if m.op == protocol.OpRetire && s.state.State == lifecycle.Retired {
		s.leaveSoon() // as after the first answer: this guardian came only for this one
	}
}

// sweptLongAgo is the answer to a sweep whose report is no longer kept.
func (s *session) sweptLongAgo(id protocol.MutationID) []byte {
	answer := protocol.SweepAnswer{MutationID: id, Proved: s.state.GroupConsumed, Processes: []protocol.Swept{}}
	if !answer.Proved {
		answer.Partial = "the report was given long ago and is no longer kept"
	}
	body, err := protocol.Marshal(answer)
	if err != nil {
		s.log.Error("cannot encode an answer", "op", id.String(), "error", err)
	}
	return body
}

// refuse answers a mutation that left nothing behind.
func (s *session) refuse(m *mutation, why *protocol.Error) {
	s.then(func(bool) { m.answer(protocol.Response{Error: why}) })
}

// admit records the intent; false: it was refused. act runs once that is durable.
func (s *session) admit(m *mutation, act func()) bool {
	r, err := s.book.Admit(m.id, string(m.op), m.fingerprint, time.Now())
	if err != nil {
		s.refuse(m, protocol.Refuse(protocol.CodeInternal, "cannot admit the operation: "+err.Error()))
		return false
	}
	s.record(r)
	t := s.txs[len(s.txs)-1]
	t.reserved = m.op == protocol.OpTerm || m.op == protocol.OpSweep || m.op == protocol.OpRetire
	t.strict = m.op != protocol.OpTerm && m.op != protocol.OpSweep
	s.waiting[m.id] = append(s.waiting[m.id], m)
	s.then(func(bool) { act() })
	s.otherwise(func(why *protocol.Error) {
		mine := *why
		mine.Message = "cannot " + string(m.op) + ": " + why.Message
		s.fail(m.id, &mine)
	})
	return true
}

// complete records the outcome of an admitted mutation and answers everybody who
// waits for it once that is durable.
func (s *session) complete(id protocol.MutationID, answer any) {
	body, err := protocol.Marshal(answer)
	if err != nil {
		s.log.Error("cannot encode an answer", "op", id.String(), "error", err)
		return
	}
	r, err := s.book.Complete(id, codeOK, body, time.Now())
	if err != nil {
		s.log.Error("cannot complete", "op", id.String(), "error", err)
		return
	}
	s.record(r)
	delete(s.signals, id)
	s.txs[len(s.txs)-1].reserved = true
	s.then(func(durable bool) {
		for _, m := range s.waiting[id] {
			m.answer(protocol.Response{OK: body, NotDurable: !durable})
		}
		delete(s.waiting, id)
		if r, ok := s.book.Get(id); ok {
			s.log.Info("mutation", "op", id.String(), "verb", r.Op, "answer", answer)
		}
	})
}

// settleNow admits and completes in one commit what has no effect outside of it.
func (s *session) settleNow(m *mutation, answer any) {
	if s.admit(m, func() {}) {
		s.complete(m.id, answer)
	}
}

// fail answers everybody who waits for a mutation with a refusal. Its receipt,
// if there is one, stays as it is.
func (s *session) fail(id protocol.MutationID, why *protocol.Error) {
	for _, m := range s.waiting[id] {
		m.answer(protocol.Response{Error: why})
	}
	delete(s.waiting, id)
}

// hold keeps a mutation until the start is decided; after 3 s it is refused.
func (s *session) hold(m *mutation) {
	const patience = 3 * time.Second
	if m.until.IsZero() {
		m.until = time.Now().Add(patience)
		s.after(patience, heldTooLong{})
	}
	s.held = append(s.held, m)
}

// heldTooLong refuses the held mutations whose time is over.
type heldTooLong struct{}

func (heldTooLong) handle(s *session) {
	now := time.Now()
	held := s.held
	s.held = nil
	for _, m := range held {
		if m.until.After(now) {
			s.held = append(s.held, m)
			continue
		}
		s.refuse(m, protocol.Refuse(protocol.CodeBusy,
			"cannot "+string(m.op)+": the start is not decided yet"))
	}
}

// resumeHeld lets held mutations go on once the start is decided and tells
// whether there is something to commit.
func (s *session) resumeHeld() bool {
	if len(s.held) == 0 || s.undecided() {
		return false
	}
	held := s.held
	s.held = nil
	for _, m := range held {
		s.run(m)
	}
	return true
}

func (s *session) starting() bool {
	return s.state.State == lifecycle.Reserved || s.state.State == lifecycle.Starting
}

// undecided tells that there may or may not be a target. A capsule's runtime can
// be signalled before its guest runs.
func (s *session) undecided() bool { return s.starting() && s.state.TargetPID == 0 }

// expire bounds how long m waits for somebody else's completion.
func (s *session) expire(m *mutation) {
	s.after(completionPatience, waitedTooLong{m})
}

// completionPatience is longer than the longest a mutation may take by itself.
const completionPatience = 20 * time.Second

// waitedTooLong answers a mutation that found its own id under way and saw no
// end of it.
type waitedTooLong struct{ m *mutation }

func (e waitedTooLong) handle(s *session) {
	waiting := s.waiting[e.m.id]
	for i, m := range waiting {
		if m == e.m {
			s.waiting[e.m.id] = append(waiting[:i:i], waiting[i+1:]...)
			s.then(func(bool) {
				m.answer(protocol.Response{Error: protocol.Refuse(protocol.CodeOwnerNotResponding,
					"cannot "+string(m.op)+": the operation is under way and not answered yet")})
			})
			return
		}
	}
}
