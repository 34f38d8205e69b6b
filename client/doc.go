// Package client controls mur sessions: it makes them, starts programs in them,
// types, reads, watches, attaches and ends them. The mur command is built on it,
// and so is anything else that shows or drives sessions.
//
// # What it promises
//
// A [Session] is a directory. Reading one (List, Snapshot, Watch, Wait, Log)
// needs nothing but its files and never starts a process. Attaching and changing
// one needs its guardian, which is started on demand where none lives.
//
// Every change carries a mutation id. When its answer was lost - the connection
// broke, the guardian died or was not there yet - it is sent again with the same
// id for as long as the context allows, so that it happens once however often it
// was asked for. To repeat a change after a crash of the caller, keep the id and
// pass it again. What was only typed (Input, Attachment.Input) is never sent
// again: where its fate is unknown the answer says so.
//
// Refusals and failures of a request are an [*Error]; that the program itself
// failed is in the answer and the snapshot, never in an error.
//
// # What it keeps
//
// A [Client] holds one open directory, a Session one open directory and at most
// one connection for requests; each stream (Subscribe, Attach) has its own
// connection. Close gives them back. A guardian that this package started is a
// child of the calling process for as long as both live; its end is collected in
// the background, so a caller that lives long gathers no zombies. Guardians
// outlive their starter.
//
// Nothing here ends a session, removes its files or kills a process unless the
// method's name, or RecoverOptions.Force, says so.
package client
