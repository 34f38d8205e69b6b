// Package sessiondir is the session directory on disk: how it is made, found,
// checked, read without a guardian, watched and removed.
//
// # Layout
//
// The state root (0700) holds
//
//	sessions/<id>/   one directory for each session
//	names/<name>     the id of the session that has the name
//	names.lock       locked while a name changes hands
//
// and a session's directory holds the files named by the constants of this
// package. Every directory is 0700 and every file 0600, whatever the umask says.
//
// # What it owns
//
// The making and removing of session directories, the bootstrap, the names, the
// text inside the two lock files, and the format of one journal record ([Entry]).
// Journal, outcome, output and sockets belong to guardian and owner; here they
// are only read.
//
// # What survives a crash
//
// A session is made as ".new-<id>.<random>", complete and synced, and then
// renamed; it is purged by a rename to ".gone-<id>.<random>" before anything in
// it is removed. So a directory under its final name is always whole, and the
// two kinds of leftovers are cleared by the next [Root.Create]. A name is entered
// before its session gets its final name and removed after the session has lost
// it: a kill leaves at most an entry without a session, and such an entry is free
// for whoever asks next. All of it happens under names.lock, so that no two
// sessions have one name.
//
// # What it never does
//
// It follows no link at or below the state root (what lies above is the user's
// business), uses nothing there that is not ours alone, judges only what it has
// opened, takes no lock to ask whether one is held, and never changes what belongs
// to a session that it only reads.
package sessiondir

import (
	"errors"
	"fmt"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// The files of a session's directory.
const (
	BootstrapFile  = "bootstrap.cbor"
	GuardianLock   = "guardian.lock" // held: a guardian lives
	OwnerLock      = "owner.lock"    // free: no owner exists and none can appear
	GuardianSocket = "guardian.sock"
	OwnerSocket    = "owner.sock"
	JournalFile    = "journal" // the guardian's, see Entry
	OutcomeFile    = "outcome" // the owner's, records of lifecycle.OutcomeRecord
	OutputDir      = "output"
	GuardianLog    = "guardian.log"
)

// The entries of the state root.
const (
	sessionsDir = "sessions"
	namesDir    = "names"
	namesLock   = "names.lock"
)

const (
	newPrefix  = ".new-"  // a session being made
	gonePrefix = ".gone-" // a session, or what was to become one, being removed
)

var (
	// ErrNotFound is returned when there is no such session, or no longer.
	ErrNotFound = errors.New("no such session")
	// ErrUnsafe is returned when something at or below the state root is not
	// ours alone: foreign-owned, open to group or others, a link, or not the kind
	// of file that belongs there.
	ErrUnsafe = errors.New("not safe to use")
	// ErrNotRetired is returned when a session is to be purged that has not been
	// retired.
	ErrNotRetired = errors.New("the session is not retired")
	// ErrBadName is returned when a name cannot be a session's name.
	ErrBadName = errors.New("not a session name")
	// ErrBusy is returned when another process holds the lock of the names for
	// longer than anybody needs it; nothing was changed.
	ErrBusy = errors.New("the names are locked by another process")
)

// NameTakenError is returned when a name belongs to another session.
type NameTakenError struct {
	Name   string
	Holder protocol.SessionID
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("cannot take the name %s: session %s has it", e.Name, e.Holder)
}

// ConflictError is returned when a session exists that was created with the same
// operation id and something else than asked for now.
type ConflictError struct {
	Session protocol.SessionID
	What    string // name or size
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("cannot create session %s: it exists with another %s", e.Session, e.What)
}

// AmbiguousError is returned when the beginning of an id fits several sessions.
type AmbiguousError struct {
	Text       string
	Candidates []protocol.SessionID
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("cannot tell which session %s is: it begins %d ids", e.Text, len(e.Candidates))
}

// CorruptError is returned when a file of a session does not hold what it must.
// Other sessions are not concerned.
type CorruptError struct {
	Session protocol.SessionID
	File    string
	Err     error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("cannot read %s of session %s: %v", e.File, e.Session, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
