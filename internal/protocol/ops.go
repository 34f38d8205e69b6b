package protocol

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

// Op names an operation.
type Op string

// The operations. Those of the first line are mutations: they carry a mutation
// id and have a receipt.
const (
	OpStart  Op = "start"
	OpTerm   Op = "term"
	OpSweep  Op = "sweep"
	OpRetire Op = "retire"
	OpSignal Op = "signal"

	OpStatus    Op = "status"
	OpSubscribe Op = "subscribe"
	OpAttach    Op = "attach"
	OpInput     Op = "input"
	OpResize    Op = "resize"
	OpRead      Op = "read"
	OpReceipts  Op = "receipts"
	OpLeave     Op = "leave"
	OpCancel    Op = "cancel"
)

// Head is the part that every request has; the rest is decoded by its Op.
type Head struct {
	ID uint64 `json:"id"`
	Op Op     `json:"op"`
}

// Size is a terminal's size in character cells.
type Size struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Bytes is a byte string that can be the key of a map.
type Bytes = cbor.ByteString

// StartRequest launches the target of a session, once.
type StartRequest struct {
	Head
	MutationID MutationID `json:"mutation_id,omitzero"`
	StartSpec
}

// StartSpec is what to launch. Nothing is inherited that is not listed.
type StartSpec struct {
	// Program without a slash is looked up in the PATH of Env, or in
	// /usr/bin:/bin. For a capsule it is the runtime that runs it.
	Program []byte `json:"program,omitempty"`
	// Args are the arguments after the program's name.
	Args    [][]byte           `json:"args,omitempty"`
	Cwd     []byte             `json:"cwd,omitempty"`   // absent: /
	Umask   *int               `json:"umask,omitempty"` // absent: 022
	Env     map[Bytes]Bytes    `json:"env,omitempty"`
	Size    *Size              `json:"size,omitempty"` // absent: the session's, else 80x24
	Capsule *lifecycle.Capsule `json:"capsule,omitempty"`
	// History is how many bytes of output are kept; 0: 16 MiB.
	History int64 `json:"history,omitempty"`
}

// StartAnswer is the outcome of a start: running, starting (the owner has not
// reported yet), or how it failed. The state is as of the answer, once and for
// all.
type StartAnswer struct {
	MutationID MutationID         `json:"mutation_id,omitzero"`
	State      lifecycle.State    `json:"state"`
	TargetPID  int                `json:"target_pid,omitempty"`
	Error      *lifecycle.Failure `json:"error,omitempty"`
}

// MaxGraceMS is the longest grace of a term, a week.
const MaxGraceMS = 7 * 24 * 3600 * 1000

// TermRequest asks the target's process group to end (SIGTERM). With a grace the
// owner sweeps the session if the target has not ended by then.
type TermRequest struct {
	Head
	MutationID MutationID `json:"mutation_id,omitzero"`
	GraceMS    uint64     `json:"grace_ms,omitempty"` // at most MaxGraceMS
}

// SignalRequest sends one signal.
type SignalRequest struct {
	Head
	MutationID MutationID  `json:"mutation_id,omitzero"`
	Signal     int         `json:"signal"`
	Group      SignalGroup `json:"group,omitempty"` // absent: foreground
}

// SignalGroup is whom a signal is for.
type SignalGroup string

// The groups.
const (
	GroupForeground SignalGroup = "foreground" // the terminal's foreground process group
	GroupTarget     SignalGroup = "target"     // the target process alone
	GroupAll        SignalGroup = "all"        // every descendant of the owner
)

// Delivery is what became of a signal.
type Delivery string

// The deliveries.
const (
	Delivered    Delivery = "delivered"     // the kernel took it for a live process
	NotDelivered Delivery = "not_delivered" // there was nothing to deliver to: it has ended or is lost
	NotNeeded    Delivery = "not_needed"    // the target had ended before
)

// ControlAnswer answers term and signal.
type ControlAnswer struct {
	MutationID MutationID `json:"mutation_id,omitzero"`
	Delivery   Delivery   `json:"delivery"`
	// Errno is why the kernel did not deliver the signal, where it says so.
	Errno int `json:"errno,omitempty"`
}

// SweepRequest ends every process of the session with SIGKILL.
type SweepRequest struct {
	Head
	MutationID MutationID `json:"mutation_id,omitzero"`
}

// SweepAnswer reports a sweep.
type SweepAnswer struct {
	MutationID MutationID `json:"mutation_id,omitzero"`
	// Proved: the kernel said that the owner has no child left.
	Proved    bool    `json:"proved"`
	Processes []Swept `json:"processes"`
	// Partial says what could not be ended or proved; empty when all was.
	Partial string `json:"partial,omitempty"`
}

// Swept is one process a sweep met.
type Swept struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	How    string `json:"how"`    // target, descendant, orphan; session, group: found without an owner
	Signal int    `json:"signal"` // 0: not touched, it may be a stranger's
	Gone   bool   `json:"gone"`
}

// RetireRequest acknowledges the final record and lets the session go.
type RetireRequest struct {
	Head
	MutationID MutationID `json:"mutation_id,omitzero"`
}

// RetireAnswer carries the final record.
type RetireAnswer struct {
	MutationID MutationID        `json:"mutation_id,omitzero"`
	Record     *lifecycle.Record `json:"record"`
}

// StatusRequest asks for the snapshot with its live part.
type StatusRequest struct{ Head }

// ResizeRequest sets the terminal's size.
type ResizeRequest struct {
	Head
	Size Size `json:"size"`
}

// InputRequest types bytes into the terminal; its answer comes when they were
// written to it.
type InputRequest struct {
	Head
	Bytes []byte `json:"bytes"`
}

// InputAnswer counts what was written.
type InputAnswer struct {
	Written int `json:"written"`
}

// ReadRequest reads output by offset.
type ReadRequest struct {
	Head
	From int64 `json:"from"`
	Max  int   `json:"max,omitempty"` // bytes, absent: as many as fit
}

// ReadAnswer is a piece of output. From is larger than asked when older output
// is no longer kept.
type ReadAnswer struct {
	From  int64  `json:"from"`
	Bytes []byte `json:"bytes"`
	End   int64  `json:"end"`
}

// ReceiptsRequest lists receipts, or one.
type ReceiptsRequest struct {
	Head
	MutationID *MutationID `json:"mutation_id,omitempty"`
}

// Receipt is what is kept of a mutation.
type Receipt struct {
	MutationID  MutationID `json:"mutation_id,omitzero"`
	Op          string     `json:"op"`
	AdmittedAt  int64      `json:"admitted_at"`
	CompletedAt int64      `json:"completed_at,omitempty"`
	Code        string     `json:"code,omitempty"` // ok, or a Code
	Response    []byte     `json:"response,omitempty"`
}

// ReceiptsAnswer is the list, oldest first.
type ReceiptsAnswer struct {
	Receipts []Receipt `json:"receipts"`
}

// LeaveRequest asks the guardian to go away; the session lives on.
type LeaveRequest struct {
	Head
	// Successor: who asks starts the next guardian at once; the owner is to wait for
	// it a moment.
	Successor bool `json:"successor,omitempty"`
}

// SubscribeRequest turns the connection into a stream of [SubscribeFrame].
type SubscribeRequest struct {
	Head
	// Since is the last revision seen: only newer ones are sent.
	Since uint64 `json:"since,omitempty"`
	// LiveMS asks for the live part too, at most once in so many milliseconds.
	LiveMS int `json:"live_ms,omitempty"`
}

// SubscribeFrame is one frame of a subscription.
type SubscribeFrame struct {
	Snapshot *lifecycle.Snapshot `json:"snapshot"`
	// Skipped: revisions between Since, or the frame before, and this one were
	// not sent.
	Skipped bool `json:"skipped,omitempty"`
	// Last: this snapshot carries the final record and the stream ends.
	Last bool `json:"last,omitempty"`
}
