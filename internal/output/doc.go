// Package output keeps what a terminal wrote: a log addressed by absolute byte
// offsets, in segments of one directory, written by one Capture and read by any
// number of Readers in any process.
//
// # What is on the disk
//
// A segment is named after the offset of its first byte (16 hex digits, then
// ".seg") and consists of a head of 4,096 bytes and the output. The file's size
// says how much there is; nothing else does, and no size is ever set in advance.
// The head is complete before the name exists. "index" holds records of
// (offset, time, size); "lock" is locked while somebody captures.
//
// # What survives a crash
//
// Bytes move from the master into a pipe and from there into a segment by
// splice, so that at every instruction each byte is in exactly one kernel object.
// As long as another process holds master and pipe, a kill loses and doubles
// nothing: the next Capture takes the end of the last segment for the end of the
// log and empties the pipe first. Where a kernel or a file system cannot splice,
// bytes are copied and State.Copying says that a kill may lose some. After power
// loss a segment may be short; a Reader reports the hole as a gap.
//
// When a segment cannot be written the bytes stay in pipe and terminal, the
// writer blocks once both are full, and capture goes on by itself when the cause
// is gone.
//
// # What it never does
//
// It never looks at the bytes, never reads from a segment that it writes, never
// changes a byte once written, and never removes anything but the oldest
// segments. It does not create the directory.
package output

import (
	"errors"
	"fmt"
)

var (
	// ErrBusy is returned when somebody else captures into the directory.
	ErrBusy = errors.New("another process is capturing")
	// ErrStopped is returned when the capture has been stopped.
	ErrStopped = errors.New("the capture was stopped")
	// ErrFull is returned when a lossless log has reached its limit and waits for
	// Trim.
	ErrFull = errors.New("the history is full and nothing of it may be dropped")
	// ErrDamaged is returned when a segment's head is not what its name promises.
	ErrDamaged = errors.New("the segment is damaged")
)

// GapError is returned when the bytes from From up to To are no longer there.
// Reading can go on at To.
type GapError struct {
	From, To int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("output %d to %d is no longer kept", e.From, e.To)
}
