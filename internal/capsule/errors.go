package capsule

import (
	"errors"
	"fmt"
)

var (
	// ErrNotCapsule is returned when a path exists but holds nothing that can be run as a capsule.
	ErrNotCapsule = errors.New("not a capsule")
	// ErrTooLarge is returned when a manifest or the files of a capsule are over the bounds.
	ErrTooLarge = errors.New("too large")
)

// ManifestError is one fault in a manifest, with its place.
type ManifestError struct {
	File    string
	Line    int
	Column  int
	Reason  string
	Nearest string // the known key that was probably meant, or empty
}

// Error is FILE:LINE:COLUMN: REASON, as editors and compilers read it.
func (e *ManifestError) Error() string {
	text := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
	if e.Nearest != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Nearest)
	}
	return text
}
