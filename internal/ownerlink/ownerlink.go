// Package ownerlink is the contract between the guardians of a session and its
// owner: the descriptors that each starts the other with, what to launch, the two
// messages of their channel, and the claim of a session at owner.sock.
//
// The channel is a SOCK_SEQPACKET pair; each message is one packet of strict
// CBOR, each side sends without blocking. The guardian has at most one
// [Control] outstanding. What the owner has to say is its [State], whole, the
// latest wins: nothing queues, and a lost message is made good by the next.
//
// Nothing here survives a crash; what has to is in the owner's outcome file.
package ownerlink

import (
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Version is the version of the channel's messages.
const Version = 1

// MaxMessage bounds one message, in bytes.
const MaxMessage = 131_072

// The owner's descriptors besides the terminal on 0, 1 and 2. All but the
// channel are for safe-keeping or for a look: the guardian does the work on its
// own duplicates.
const (
	FDChannel  = 3 // its end of the pair
	FDLaunch   = 4 // sealed memfd with a [Launch]
	FDMaster   = 5 // the terminal's master
	FDPipeR    = 6 // the capture pipe, both ends
	FDPipeW    = 7
	FDListener = 8  // the guardian's listening socket
	FDLock     = 9  // owner.lock, already locked
	FDDir      = 10 // the session's directory
	FDGuardian = 11 // the guardian's executable, from which the next is started
)

// Launch is what the owner starts, complete before the owner exists.
type Launch struct {
	Version int                `json:"version"`
	Session protocol.SessionID `json:"session"`
	// Program without a slash is looked up in the PATH of Env (none: /usr/bin:/bin).
	Program []byte                            `json:"program"`
	Args    [][]byte                          `json:"args,omitempty"` // after the program's name
	Cwd     []byte                            `json:"cwd"`
	Env     map[protocol.Bytes]protocol.Bytes `json:"env,omitempty"`
	Umask   int                               `json:"umask"`
	// Report gives the target the write end of a pipe as descriptor 3, on which a
	// capsule's runtime tells how its guest fares (frames of lifecycle.Report).
	Report bool `json:"report,omitempty"`
	// History is how many bytes of output are kept.
	History int64 `json:"history"`
	// Idle is how long a guardian with nothing to do stays.
	Idle time.Duration `json:"idle"`
	// Socket is the file of the listener that the owner is given.
	Socket Socket `json:"socket"`
}

// ControlKind is what the guardian asks of the owner.
type ControlKind string

// The controls.
const (
	ControlSignal  ControlKind = "signal"
	ControlTerm    ControlKind = "term" // SIGTERM to the target's group
	ControlSweep   ControlKind = "sweep"
	ControlRelease ControlKind = "release" // a retirement is committed: leave
	// ControlBye: the guardian leaves; the next is needed only when there is work.
	// It has no answer.
	ControlBye ControlKind = "bye"
)

// Socket tells a socket's file from every other that exists beside it: whether a
// name still leads to a listener cannot be asked of the listener.
type Socket struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Control is one message from the guardian. The owner carries out each Mutation
// once, whatever the number of times it arrives.
type Control struct {
	Seq      uint64               `json:"seq"`
	Mutation string               `json:"mutation,omitempty"`
	Kind     ControlKind          `json:"kind"`
	Signal   int                  `json:"signal,omitempty"`
	Group    protocol.SignalGroup `json:"group,omitempty"`
	// Grace comes with ControlTerm: after it a target that lives is swept. 0: never.
	Grace time.Duration `json:"grace,omitempty"`
	// Successor comes with ControlBye: another guardian is about to claim the
	// session.
	Successor bool `json:"successor,omitempty"`
}

// State is the one message from the owner: all that it knows, as of now.
type State struct {
	Version int    `json:"version"`
	Build   string `json:"build"`
	// Outcome is what is durable in the outcome file, without its list of
	// applied mutations.
	Outcome lifecycle.Outcome `json:"outcome"`
	// Answer is to the latest control that was carried out.
	Answer *Answer `json:"answer,omitempty"`
	// Taken is the mutation of a control that takes long and was begun.
	Taken string `json:"taken,omitempty"`
	// History and Socket are for a guardian that did not make the session itself.
	History int64  `json:"history"`
	Socket  Socket `json:"socket"`
	// NotDurable says why the outcome file cannot be written.
	NotDurable string `json:"not_durable,omitempty"`
}

// Answer says what became of a control.
type Answer struct {
	Seq      uint64                `json:"seq"`
	Mutation string                `json:"mutation,omitempty"`
	Delivery protocol.Delivery     `json:"delivery,omitempty"` // signal, term
	Errno    int                   `json:"errno,omitempty"`
	Sweep    *protocol.SweepAnswer `json:"sweep,omitempty"` // its MutationID is left zero
}
