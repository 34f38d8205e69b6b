package client

import (
	"context"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Status asks the living guardian; Snapshot also works without one.
func (s *Session) Status(ctx context.Context) (Snapshot, error) {
	r, err := s.ask(ctx, reading(), statusRequest)
	if err != nil {
		return Snapshot{}, err
	}
	if r.Snapshot == nil {
		return Snapshot{}, fmt.Errorf("cannot read the answer: %w: no snapshot", protocol.ErrMalformed)
	}
	return *r.Snapshot, nil
}

func statusRequest(id uint64) any {
	return protocol.StatusRequest{Head: protocol.Head{ID: id, Op: protocol.OpStatus}}
}

// Start launches the session's program, once and for all: the same id and spec
// again give the first answer, anything else is a CodeConflict. A program that
// could not be started is an answer in state launch-failed, not an error.
func (s *Session) Start(ctx context.Context, op MutationID, spec StartSpec) (Reply[StartAnswer], error) {
	return change[StartAnswer](ctx, s, func(id uint64) any {
		return protocol.StartRequest{Head: protocol.Head{ID: id, Op: protocol.OpStart}, MutationID: op, StartSpec: spec}
	})
}

// Term asks the program's process group to end (SIGTERM). If it has not after
// grace, at most a week, the session is swept; 0 leaves it at the asking. It
// returns once the signal is delivered; the owner keeps the clock, guardian or not.
func (s *Session) Term(ctx context.Context, op MutationID, grace time.Duration) (Reply[ControlAnswer], error) {
	ms := uint64(max(0, (grace+time.Millisecond-1)/time.Millisecond))
	return change[ControlAnswer](ctx, s, func(id uint64) any {
		return protocol.TermRequest{Head: protocol.Head{ID: id, Op: protocol.OpTerm}, MutationID: op, GraceMS: ms}
	})
}

// Signal sends one signal.
func (s *Session) Signal(ctx context.Context, op MutationID, signal int, group SignalGroup) (Reply[ControlAnswer], error) {
	return change[ControlAnswer](ctx, s, func(id uint64) any {
		return protocol.SignalRequest{
			Head: protocol.Head{ID: id, Op: protocol.OpSignal}, MutationID: op, Signal: signal, Group: group,
		}
	})
}

// Sweep ends every process of the session with SIGKILL and reports them.
func (s *Session) Sweep(ctx context.Context, op MutationID) (Reply[SweepAnswer], error) {
	return change[SweepAnswer](ctx, s, func(id uint64) any {
		return protocol.SweepRequest{Head: protocol.Head{ID: id, Op: protocol.OpSweep}, MutationID: op}
	})
}

// Retire acknowledges the final record; guardian and owner go away.
func (s *Session) Retire(ctx context.Context, op MutationID) (Reply[RetireAnswer], error) {
	return change[RetireAnswer](ctx, s, func(id uint64) any {
		return protocol.RetireRequest{Head: protocol.Head{ID: id, Op: protocol.OpRetire}, MutationID: op}
	})
}

// Resize sets the terminal's size.
func (s *Session) Resize(ctx context.Context, size Size) error {
	_, err := s.ask(ctx, reading(), func(id uint64) any {
		return protocol.ResizeRequest{Head: protocol.Head{ID: id, Op: protocol.OpResize}, Size: size}
	})
	return err
}

// Input types bytes into the terminal and returns how many were written to it.
// It is sent once: CodeUnknownOutcome when its answer was lost.
func (s *Session) Input(ctx context.Context, data []byte) (written int, err error) {
	r, err := s.ask(ctx, plan{}, func(id uint64) any {
		return protocol.InputRequest{Head: protocol.Head{ID: id, Op: protocol.OpInput}, Bytes: data}
	})
	answer, bad := decode[protocol.InputAnswer](r.OK)
	if err == nil {
		err = bad
	}
	return answer.Written, err
}

// Read gives output from an offset on, at most max bytes (0: as many as fit). It
// asks the guardian; a Log reads the files.
func (s *Session) Read(ctx context.Context, from int64, max int) (ReadAnswer, error) {
	r, err := s.ask(ctx, reading(), func(id uint64) any {
		return protocol.ReadRequest{Head: protocol.Head{ID: id, Op: protocol.OpRead}, From: from, Max: max}
	})
	if err != nil {
		return ReadAnswer{}, err
	}
	return decode[ReadAnswer](r.OK)
}

// Receipts lists what is kept of the changes, oldest first; with op only its own.
func (s *Session) Receipts(ctx context.Context, op *MutationID) ([]Receipt, error) {
	r, err := s.ask(ctx, reading(), func(id uint64) any {
		return protocol.ReceiptsRequest{Head: protocol.Head{ID: id, Op: protocol.OpReceipts}, MutationID: op}
	})
	if err != nil {
		return nil, err
	}
	answer, err := decode[protocol.ReceiptsAnswer](r.OK)
	return answer.Receipts, err
}

// change sends a mutation until its answer is known.
func change[T any](ctx context.Context, s *Session, build func(id uint64) any) (Reply[T], error) {
	r, err := s.ask(ctx, changing(), build)
	if err != nil {
		return Reply[T]{}, err
	}
	answer, err := decode[T](r.OK)
	return Reply[T]{Answer: answer, Replayed: r.Replayed, NotDurable: r.NotDurable, Snapshot: r.Snapshot}, err
}

// decode reads an operation's answer; none is the zero value.
func decode[T any](raw cbor.RawMessage) (T, error) {
	var answer T
	if len(raw) == 0 {
		return answer, nil
	}
	if err := protocol.Unmarshal(raw, &answer); err != nil {
		return answer, fmt.Errorf("cannot read the answer: %w", err)
	}
	return answer, nil
}
