// Package owner is the process that a session's program belongs to. It starts
// the program, is its parent and the reaper of its whole tree, carries out
// signals and sweeps, judges when the output is complete, and writes down how
// everything ended.
//
// It owns the outcome file of the session, and the terminal for as long as
// somebody may still write to it. It holds duplicates of the terminal's master
// and of the capture pipe, so that the end of a guardian costs no byte. It is a
// session leader with the terminal as its controlling one, child subreaper and
// not dumpable.
//
// What survives: each step is in the outcome file (launching, running, stopped,
// applied mutations, exit, drain) before the guardian hears of it. When the owner
// itself is killed the target gets SIGKILL with it, so nothing runs that no
// record tells of. What cannot be written is kept, tried again every second and
// reported as not durable; it is no reason to leave.
//
// The target begins with every signal at its default and none blocked, the umask
// that was asked for, the terminal on descriptors 0 to 2 and, for a capsule's runtime, the report
// pipe on 3; it is the terminal's foreground group before its first instruction.
// A file that is neither a program nor begins with #! is not started: no shell
// stands in for the kernel. The target stays a zombie until its end is recorded
// and is reaped then; from its end on nothing is sent to it any more. term sends
// SIGTERM to its process group, and SIGCONT behind it if the target is stopped.
// After its end the settings of the terminal are those of before the launch, and
// the owner lets go of the slave: from then on a hang-up of the master says that
// nobody has the terminal open.
//
// A guardian that is lost is replaced: the owner starts the next one beside itself
// and hands it the terminal, the pipe, the listening socket and a new channel. One
// that said bye is replaced when output or a client waits. A guardian that somebody
// else has started claims the same at owner.sock. When guardians keep being lost
// the owner captures the output itself until one claims the session. The owner
// leaves when the target's end and the end of its output are recorded,
// no descendant is left, and terminal and pipe are empty; or when it is released.
//
// It never decides that a program has to end: neither the loss of the guardian
// nor a message that makes no sense nor a failing disk ends anything. It never
// touches a process outside its own tree. Where it can, it makes a control group
// for the tree, to end it faster and so that a guardian can end it after the
// owner's death. A signal to a single process goes through a pidfd; one goroutine,
// on the main thread, does all reaping and all killing, so that no pid is given
// back to the kernel between the decision to signal it and the signal.
package owner
