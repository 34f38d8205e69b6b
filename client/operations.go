package client

import (
	"fmt"
	"time"

	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// Outcome is what is known of what became of an operation.
type Outcome string

// The outcomes.
const (
	// OutcomeDone: it was carried out, and its answer is final.
	OutcomeDone Outcome = "done"
	// OutcomePending: a guardian lives that is about it.
	OutcomePending Outcome = "pending"
	// OutcomeUnknown: it was begun, the guardian was lost, and no other has settled
	// it yet. Recover has one do so.
	OutcomeUnknown Outcome = "unknown"
)

// Operation is what is kept of a change: its receipt, and what it means now.
type Operation struct {
	ID      MutationID
	Op      string // start, term, signal, sweep, retire
	Outcome Outcome
	Code    string // ok, or the Code it ended with; empty until then
	// Admitted and Completed are zero where they are no longer kept, Completed also
	// until then.
	Admitted, Completed time.Time
	// Answer is a *StartAnswer, *ControlAnswer, *SweepAnswer or *RetireAnswer; nil
	// until there is one, and when only the code is still kept.
	Answer any
}

// Operations lists the changes of the session, oldest first, from the files: no
// guardian is woken or needed.
func (s *Session) Operations() ([]Operation, error) {
	v, err := s.dir.Read()
	if err != nil {
		return nil, err
	}
	all := make([]Operation, len(v.Receipts))
	for i, r := range v.Receipts {
		if all[i], err = operation(r, v.GuardianLive); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Operation finds one change by its id, from the files. CodeNotFound: it was
// never admitted, so it had no effect.
func (s *Session) Operation(id MutationID) (Operation, error) {
	v, err := s.dir.Read()
	if err != nil {
		return Operation{}, err
	}
	for _, r := range v.Receipts {
		if r.ID == id {
			return operation(r, v.GuardianLive)
		}
	}
	return Operation{}, &Error{
		Code: CodeNotFound, Retry: RetryNever, Hint: "mur op ls " + s.ID(),
		Message: fmt.Sprintf("the session has no operation %s", id),
	}
}

func operation(r receipts.Receipt, served bool) (Operation, error) {
	op := Operation{ID: r.ID, Op: r.Op, Code: r.Code, Admitted: r.AdmittedAt, Completed: r.CompletedAt}
	switch {
	case r.Done:
		op.Outcome = OutcomeDone
	case served:
		op.Outcome = OutcomePending
	default:
		op.Outcome = OutcomeUnknown
	}
	if len(r.Response) == 0 {
		return op, nil
	}
	switch protocol.Op(r.Op) {
	case protocol.OpStart:
		op.Answer = new(StartAnswer)
	case protocol.OpTerm, protocol.OpSignal:
		op.Answer = new(ControlAnswer)
	case protocol.OpSweep:
		op.Answer = new(SweepAnswer)
	case protocol.OpRetire:
		op.Answer = new(RetireAnswer)
	default:
		return op, nil // of a version that knew more
	}
	if err := protocol.Unmarshal(r.Response, op.Answer); err != nil {
		return op, fmt.Errorf("cannot read the answer of %s: %w", r.ID, err)
	}
	return op, nil
}
