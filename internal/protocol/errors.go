package protocol

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

// Code names why a request was refused. The list is closed: documentation, the
// guardian and the exit codes of the command line share it.
type Code string

// The codes.
const (
	CodeMalformed          Code = "malformed"            // the frame is not a request
	CodeVersion            Code = "version"              // the protocol version is not spoken here
	CodeUnauthorized       Code = "unauthorized"         // wrong secret or token; which is not said
	CodeForbidden          Code = "forbidden"            // the role does not allow the operation
	CodeUnknownOp          Code = "unknown_op"           // no such operation
	CodeInvalid            Code = "invalid"              // a field has a value that cannot be
	CodeTooLarge           Code = "too_large"            // more than a frame or the kernel takes
	CodeBusy               Code = "busy"                 // a limit is reached; try again later
	CodeConflict           Code = "conflict"             // the id, name or launch belongs to something else
	CodeNotStarted         Code = "not_started"          // the session has no target yet
	CodeNotRunning         Code = "not_running"          // the target has ended
	CodeNotEnded           Code = "not_ended"            // retire before the end
	CodeOwnerNotResponding Code = "owner_not_responding" // the owner did not answer in time
	CodeReceiptsFull       Code = "receipts_full"        // no room for a further receipt of this kind
	CodeNotDurable         Code = "not_durable"          // the journal cannot be written
	CodeUnknownOutcome     Code = "unknown_outcome"      // begun before a crash, its effect is unknown
	CodeNotFound           Code = "not_found"            // no such receipt, offset or thing
	CodeLeaving            Code = "leaving"              // the guardian goes away; connect anew
	CodeUnsupported        Code = "unsupported"          // known, and not offered by this version
	CodeInternal           Code = "internal"             // a fault of the guardian
)

// Codes lists every code.
func Codes() []Code {
	return []Code{
		CodeMalformed, CodeVersion, CodeUnauthorized, CodeForbidden, CodeUnknownOp, CodeInvalid,
		CodeTooLarge, CodeBusy, CodeConflict, CodeNotStarted, CodeNotRunning, CodeNotEnded,
		CodeOwnerNotResponding, CodeReceiptsFull, CodeNotDurable, CodeUnknownOutcome, CodeNotFound,
		CodeLeaving, CodeUnsupported, CodeInternal,
	}
}

// Retry says whether the same request may be sent again.
type Retry string

// The kinds of retry.
const (
	RetryNever  Retry = "never"   // it will be refused again
	RetrySameID Retry = "same_id" // it may have had its effect: only with the same id
	RetryLater  Retry = "later"   // it had no effect
)

// Error is a refusal on the wire. It never holds why an execution failed: that
// is in the snapshot.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Retry   Retry  `json:"retry"`
	// Holder is the mutation id that holds what was asked for (conflict).
	Holder string `json:"holder,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Refuse builds a refusal with the retry rule of its code.
func Refuse(code Code, message string) *Error {
	return &Error{Code: code, Message: message, Retry: retryOf(code)}
}

func retryOf(code Code) Retry {
	switch code {
	case CodeBusy, CodeLeaving, CodeNotDurable, CodeNotEnded, CodeNotStarted:
		return RetryLater
	case CodeOwnerNotResponding, CodeUnknownOutcome, CodeInternal:
		return RetrySameID
	default:
		return RetryNever
	}
}

// Response answers one request.
type Response struct {
	ID uint64 `json:"id"`
	// OK is the operation's answer, absent when Error is there. That of a
	// mutation is stored and given again, byte by byte, for the same id.
	OK    cbor.RawMessage `json:"ok,omitempty"`
	Error *Error          `json:"error,omitempty"`
	// Replayed: OK is a stored answer, no effect was had.
	Replayed bool `json:"replayed,omitempty"`
	// NotDurable: the operation was carried out and its receipt is not on the
	// disk yet.
	NotDurable bool `json:"not_durable,omitempty"`
	// Snapshot is the session as of the answer.
	Snapshot *lifecycle.Snapshot `json:"snapshot,omitempty"`
}
