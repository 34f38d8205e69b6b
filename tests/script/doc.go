// Package script runs the scripts in testdata: what mur does, as documents that
// anybody can read and write (txtar, see testscript). It builds the three programs
// once and gives each script a state directory of its own.
//
// Beside testscript's own commands there are
//
//	pty STEPS CMD [ARG...]   runs CMD on a terminal and follows the file STEPS
//	until LINE               runs a shell line until it succeeds, for 20 s at most
//	status N CMD [ARG...]    runs CMD, which must exit with N
//	uuid NAME                puts a fresh UUID into the environment
//	finish                   sweeps, retires and purges all sessions
//
// After a script nothing of it may be left: no guardian, no owner, no half-made
// directory. What is left is reported and then ended.
package script
