// Package guest gives a capsule what WASI preview 1 has no word for: the
// terminal it is shown in.
//
// The package owns no state. Every call asks the host through the import
// module murmur_tty, which is linked even when the capsule's manifest does not
// grant it; a refused call returns [ErrNotGranted]. The host, not this
// package, puts the terminal back when the capsule ends, however it ends, so
// a crash in raw mode leaves nothing behind.
//
// It builds for every platform. Outside GOOS=wasip1 there is no host to ask:
// [TerminalSize] and [SetRaw] return [ErrNotSupported], [SizeChanges] is 0 and
// [Streams] is all false, so that a capsule's other code can be tested where
// it is written.
package guest

import (
	"errors"
	"fmt"
)

var (
	// ErrNotTerminal is returned when standard input is no terminal.
	ErrNotTerminal = errors.New("not a terminal")

	// ErrNotGranted is returned when the capsule was not granted the terminal.
	ErrNotGranted = errors.New("terminal not granted")

	// ErrNotSupported is returned when the program does not run as a capsule.
	ErrNotSupported = errors.New("not running as a capsule")
)

// The numbers are those of WASI preview 1.
const (
	errnoSuccess    = 0
	errnoNotTTY     = 59
	errnoNotCapable = 76
)

// The bits of the stream set the host answers.
const (
	streamStdin = 1 << iota
	streamStdout
	streamStderr
)

// TerminalSize returns the size of the terminal in character cells, as it is
// now. It fails with [ErrNotTerminal], [ErrNotGranted] or [ErrNotSupported];
// a capsule then falls back on the variables COLUMNS and LINES, or on 80 by
// 24.
func TerminalSize() (cols, rows int, err error) {
	c, r, errno := hostSize()
	if err := errnoError("read the terminal size", errno); err != nil {
		return 0, 0, err
	}
	return int(c), int(r), nil
}

// SetRaw turns raw mode on, or back to the mode the host found the terminal
// in. In raw mode every byte is delivered as it is typed, nothing is echoed
// and no key makes a signal: ^C is the byte 0x03. A line feed written still
// returns the carriage. Turning on what is on is no error. It fails with
// [ErrNotTerminal], [ErrNotGranted] or [ErrNotSupported].
func SetRaw(on bool) error {
	var flag uint32
	if on {
		flag = 1
	}
	return errnoError("set the terminal mode", hostSetRaw(flag))
}

// SizeChanges counts how often the size of the terminal changed since the
// capsule started. A capsule that draws keeps the last count it saw and asks
// [TerminalSize] again when it differs. Without a terminal, or without the
// grant, it stays 0.
func SizeChanges() uint32 { return hostSizeChanges() }

// Streams says which of the three standard streams are a terminal. Without
// the grant all are false. It is to be preferred to the usual guesses by file
// type, which many libraries answer with false on this platform.
func Streams() (stdin, stdout, stderr bool) {
	set := hostStreams()
	return set&streamStdin != 0, set&streamStdout != 0, set&streamStderr != 0
}

// errnoError names what could not be done and why.
func errnoError(verb string, errno uint32) error {
	switch errno {
	case errnoSuccess:
		return nil
	case errnoNotTTY:
		return fmt.Errorf("cannot %s: %w", verb, ErrNotTerminal)
	case errnoNotCapable:
		return fmt.Errorf("cannot %s: %w", verb, ErrNotGranted)
	case errnoUnsupported:
		return fmt.Errorf("cannot %s: %w", verb, ErrNotSupported)
	}
	return fmt.Errorf("cannot %s: host error %d", verb, errno)
}

// errnoUnsupported is no WASI number: only the builds without a host use it.
const errnoUnsupported = 1 << 16
