// Package procs knows processes and the kernel objects around them: who a
// process is, when it has ended, what it inherits, which locks and sealed memory
// it hands on.
//
// A process is identified by pid, start time and boot id, never by a pid alone;
// signals and waits go through a pidfd that was opened before the start time was
// compared, so that neither can hit a later process with the same pid.
//
// The package keeps no state. What it sets on the calling process (signal
// actions, dumpability, subreaping) lasts until the process ends and, signal
// actions apart, is not inherited. Locks last as long as the open file
// description and so survive a crash of one of several holders. Nothing here
// kills, reaps or waits for anything that the caller did not name.
package procs
