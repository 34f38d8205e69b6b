package client

import (
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// What sessions are described with. These are the types of the wire, under names
// that importers can use.
type (
	// MutationID is the UUID that makes a change happen once.
	MutationID = protocol.MutationID
	// Size is a terminal's size in character cells.
	Size = protocol.Size
	// Bytes is a byte string that can be the key of a map (an environment's).
	Bytes = protocol.Bytes

	// Snapshot is a session at one revision: State, exit, record and the rest.
	Snapshot = lifecycle.Snapshot
	// Live is the part of a snapshot that is as of now.
	Live = lifecycle.Live
	// Record is the final record of a session.
	Record = lifecycle.Record
	// Failure is why a program could not be started, with stage and errno.
	Failure = lifecycle.Failure
	// State is where a session stands.
	State = lifecycle.State
	// Capsule is what was resolved for a capsule's start.
	Capsule = lifecycle.Capsule

	// StartSpec is what to launch; nothing is inherited that is not listed.
	StartSpec = protocol.StartSpec
	// StartAnswer is the outcome of a start.
	StartAnswer = protocol.StartAnswer
	// ControlAnswer answers Term and Signal.
	ControlAnswer = protocol.ControlAnswer
	// SignalGroup is whom a signal is for.
	SignalGroup = protocol.SignalGroup
	// Delivery is what became of a signal.
	Delivery = protocol.Delivery
	// SweepAnswer reports a sweep.
	SweepAnswer = protocol.SweepAnswer
	// RetireAnswer carries the final record.
	RetireAnswer = protocol.RetireAnswer
	// Receipt is what is kept of a change.
	Receipt = protocol.Receipt
	// ReadAnswer is a piece of output.
	ReadAnswer = protocol.ReadAnswer
)

// The states.
const (
	StateNew          = lifecycle.New
	StateReserved     = lifecycle.Reserved
	StateStarting     = lifecycle.Starting
	StateRunning      = lifecycle.Running
	StateStopped      = lifecycle.Stopped
	StateExited       = lifecycle.Exited
	StateEnded        = lifecycle.Ended
	StateRetired      = lifecycle.Retired
	StateLaunchFailed = lifecycle.LaunchFailed
	StateLost         = lifecycle.Lost
)

// Whom a signal is for.
const (
	GroupForeground = protocol.GroupForeground // the terminal's foreground process group
	GroupTarget     = protocol.GroupTarget     // the target process alone
	GroupAll        = protocol.GroupAll        // every process of the session
)

// What became of a signal.
const (
	Delivered    = protocol.Delivered    // the kernel took it for a live process
	NotDelivered = protocol.NotDelivered // there was nothing to deliver to
	NotNeeded    = protocol.NotNeeded    // the target had ended before
)

// NewMutationID returns a fresh id.
func NewMutationID() MutationID { return protocol.NewMutationID(time.Now()) }

// ParseMutationID reads any UUID but the nil one.
func ParseMutationID(s string) (MutationID, error) { return protocol.ParseMutationID(s) }

// IDFor gives the id of the session that Create makes with op.
func IDFor(op MutationID) string { return string(protocol.NewSessionID(op)) }

// Reply is the answer to a change.
type Reply[T any] struct {
	Answer T
	// Replayed: the change was made before; this is its answer of then.
	Replayed bool
	// NotDurable: it was made, and its receipt is not on the disk yet.
	NotDurable bool
	// Snapshot is the session as of now.
	Snapshot *Snapshot
}
