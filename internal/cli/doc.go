// Package cli is the mur command: its verbs, what they print, their exit codes.
//
// Each verb is one file with a newXCmd, its options and a runX, named after it.
// Results go to stdout, talk to stderr, --json is one object or one a line. All
// failures become an exit code in one switch, see exit.go.
//
// The package keeps nothing on disk of its own; sessions are the client's
// business. It changes the operator's terminal only while attached to one, and
// puts it back on every way out: the end of the session, the detach key, a lost
// guardian, a signal, a panic. It never reads the process's environment,
// arguments or standard streams by itself and never ends the process: all that
// is main's, which is also the one to die of a signal.
package cli
