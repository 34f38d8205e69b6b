// Package guardian is the process that holds the control authority over one
// session: it authenticates clients, admits each mutation once, spawns the owner
// or re-adopts the one that lives, captures the terminal's output and tells
// everybody how the session fares. It leaves when there is nothing to do.
//
// One goroutine owns the session's state and reads one typed inbox; every
// change is on disk before it is published, and readers take the published
// snapshot without a lock. No lock is held over I/O, and nothing that a client,
// the owner or the disk does can delay a status request.
//
// What survives the death of a guardian: the journal (receipts and lifecycle),
// the output up to the last byte that left the terminal, the owner and its
// target. What does not: attachments, subscriptions, input that was not yet
// acknowledged.
//
// The package never interprets output, runs no capsule and links no runtime.
package guardian
