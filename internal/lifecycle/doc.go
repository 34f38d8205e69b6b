// Package lifecycle is the state machine of one session: its states, the
// events that move it, the snapshot that readers see and the final record that
// stays.
//
// It is pure: no I/O, no clock, no goroutine. The guardian owns the one live
// value of [Durable] and commits each change before it publishes it; every
// other process obtains the same value with [Fold] from what the files of a
// session say, so that reading a session never needs a guardian.
//
// What survives a crash is decided by the callers: a Durable is recorded whole
// in the session's journal, an [Outcome] is built from the owner's records. This
// package never invents a result: where the evidence does not tell how a
// program ended, the state is [Lost] and there is no exit code.
package lifecycle
