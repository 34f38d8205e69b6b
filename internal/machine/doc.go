// Package machine finds out what the machine offers to mur: calls of the kernel,
// what a file system can hold, limits, control groups, and what a logout does.
//
// A thing is found out by doing it, through the same packages that sessions use,
// and never by a version number: kernels are patched, and filters refuse what the
// kernel has. What nobody can try - the limits of others, the login manager's
// intentions - is read from /proc and from configuration, with the parsing apart
// from the reading.
//
// The package owns nothing after a call has returned: each probe takes back what
// it made, also a Trial's directory and a control group. A kill in the middle of
// one leaves at most a directory whose name begins with ".doctor-" or an empty
// control group "mur-doctor-PID". It never touches a session, never changes a
// setting that outlasts the call, and never judges: whether something is good
// enough is the caller's to say.
package machine
