package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// Code names why something was refused or failed. A guardian's own codes are
// passed on as they are.
type Code = protocol.Code

// The codes that a guardian refuses with.
const (
	CodeVersion            = protocol.CodeVersion            // it speaks another protocol version
	CodeUnauthorized       = protocol.CodeUnauthorized       // it belongs to another execution
	CodeForbidden          = protocol.CodeForbidden          // the role does not allow the operation
	CodeInvalid            = protocol.CodeInvalid            // a value that cannot be
	CodeTooLarge           = protocol.CodeTooLarge           // more than a frame or the kernel takes
	CodeBusy               = protocol.CodeBusy               // a limit is reached; try again later
	CodeConflict           = protocol.CodeConflict           // the id, name or launch belongs to something else
	CodeNotStarted         = protocol.CodeNotStarted         // the session has no target yet
	CodeNotRunning         = protocol.CodeNotRunning         // the target has ended
	CodeNotEnded           = protocol.CodeNotEnded           // retire before the end
	CodeOwnerNotResponding = protocol.CodeOwnerNotResponding // the owner did not answer in time
	CodeReceiptsFull       = protocol.CodeReceiptsFull       // no room for a further receipt
	CodeNotDurable         = protocol.CodeNotDurable         // the journal cannot be written
	CodeUnknownOutcome     = protocol.CodeUnknownOutcome     // whether it had its effect is unknown
	CodeNotFound           = protocol.CodeNotFound           // no such receipt, offset or thing
	CodeUnsupported        = protocol.CodeUnsupported        // not offered by this version
	CodeInternal           = protocol.CodeInternal           // a fault of the guardian
)

// The codes that this package adds.
const (
	CodeNoSession    Code = "no_session"    // no session has this name or id
	CodeAmbiguous    Code = "ambiguous"     // several sessions begin with this
	CodeUnreachable  Code = "unreachable"   // the guardian could not be reached or started in time
	CodeGuardianLost Code = "guardian_lost" // an attachment broke and could not be made anew
)

// Retry says whether the same may be asked again.
type Retry = protocol.Retry

// The kinds of retry.
const (
	RetryNever  = protocol.RetryNever  // it will be refused again
	RetrySameID = protocol.RetrySameID // it may have had its effect: only with the same id
	RetryLater  = protocol.RetryLater  // it had no effect
)

// Error is a refusal or a failure of one request.
type Error struct {
	Code    Code
	Message string
	Retry   Retry
	// Holder is the mutation id that holds what was asked for (CodeConflict).
	Holder string
	// Candidates are the sessions that were meant (CodeAmbiguous).
	Candidates []string
	// Hint is a command that helps, where one does.
	Hint string
	// Snapshot is the session as of the refusal, if a guardian refused.
	Snapshot *Snapshot

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives what lay beneath, such as the end of the context.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf gives the code of err, or "" when it carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// refusal carries a guardian's answer over.
func refusal(e *protocol.Error, snap *Snapshot) *Error {
	return &Error{Code: e.Code, Message: e.Message, Retry: e.Retry, Holder: e.Holder, Snapshot: snap}
}

// unreachable says that no guardian answered, and why not at the last attempt.
func (s *Session) unreachable(ctx context.Context, last error) error {
	cause := ctx.Err()
	if last == nil {
		last = cause
	}
	e := &Error{
		Code: CodeUnreachable, Retry: RetrySameID, cause: errors.Join(cause, last),
		Message: fmt.Sprintf("the guardian of %s cannot be reached: %v", s.ID(), last),
		Hint:    "mur show " + s.ID(),
	}
	// One that lives and is silent is not cured by waiting.
	guardian, held, err := s.dir.Holder(sessiondir.GuardianLock)
	if err != nil || !held || guardian.PID == 0 {
		return e
	}
	switch {
	case guardian.Stopped():
		e.Message = fmt.Sprintf("the guardian of %s (process %d) is stopped", s.ID(), guardian.PID)
	case errors.Is(last, context.DeadlineExceeded):
		e.Message = fmt.Sprintf("the guardian of %s (process %d) did not answer in time", s.ID(), guardian.PID)
	default:
		return e
	}
	e.Hint = "mur recover --force " + s.ID()
	return e
}

// guardianLost ends a stream whose guardian has gone and that found no other.
func guardianLost(id string, cause error) error {
	if errors.Is(cause, sessiondir.ErrNotFound) {
		return &Error{
			Code: CodeNoSession, Retry: RetryNever, Hint: "mur ls", cause: cause,
			Message: "the directory of " + id + " was removed; the session is hung up on",
		}
	}
	return &Error{
		Code: CodeGuardianLost, Retry: RetryLater, Hint: "mur show " + id, cause: cause,
		Message: "guardian lost, and no other can be reached; the session goes on: " + cause.Error(),
	}
}

// createError explains why a session could not be made.
func createError(err error) error {
	var taken *sessiondir.NameTakenError
	var other *sessiondir.ConflictError
	e := &Error{Retry: RetryNever, cause: err, Message: err.Error()}
	switch {
	case errors.As(err, &taken):
		e.Code, e.Candidates = CodeConflict, []string{string(taken.Holder)}
		e.Message = fmt.Sprintf("the name %s belongs to session %s", taken.Name, taken.Holder)
		e.Hint = "mur retire " + taken.Name
	case errors.As(err, &other):
		e.Code, e.Candidates = CodeConflict, []string{string(other.Session)}
		e.Message = fmt.Sprintf("its operation id was used for a session with another %s", other.What)
	case errors.Is(err, sessiondir.ErrBadName):
		e.Code = CodeInvalid
	case errors.Is(err, sessiondir.ErrBusy):
		e.Code, e.Retry = CodeBusy, RetryLater
	default:
		return err
	}
	return e
}

// resolveError explains why a text names no session.
func resolveError(text string, err error) error {
	var several *sessiondir.AmbiguousError
	switch {
	case errors.As(err, &several):
		e := &Error{Code: CodeAmbiguous, Retry: RetryNever, cause: err, Message: err.Error(), Hint: "mur ls"}
		for _, id := range several.Candidates {
			e.Candidates = append(e.Candidates, string(id))
		}
		return e
	case errors.Is(err, sessiondir.ErrNotFound):
		return &Error{
			Code: CodeNoSession, Retry: RetryNever, cause: err, Hint: "mur ls",
			Message: fmt.Sprintf("no session is called %q", text),
		}
	default:
		return err
	}
}
