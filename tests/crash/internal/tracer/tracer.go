// Package tracer runs a program and everything it starts under ptrace, records
// each call by which one of them changes something that outlives it, and can make
// any one of these calls the last.
//
// What counts are calls on files below one directory (creating, writing, syncing,
// renaming, linking, removing, locking), the start of a process, a signal, and a
// message into a socket. A call is named by a [Site]: who makes it, what it is, on
// which file, the how-manieth of its like. Two runs of programs with many threads
// never give the same sequence of calls, but nearly the same set of sites, so that
// a fault found once can be aimed at again.
//
// Programs that are not in [Program.Roles] are let go when they are executed: what
// a session runs lives its own life, as it would without the tracer. So does
// whatever is left when the program itself has ended.
//
// It writes nothing but two temporary files for the program's streams. Everything
// it traces dies with it. It knows only amd64; elsewhere, and where ptrace is not
// allowed, [Supported] says why not.
package tracer

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Mode says what happens at the chosen call.
type Mode int

const (
	None       Mode = iota // only record
	KillBefore             // SIGKILL on entry: the call is not executed
	KillAfter              // SIGKILL on exit: it took effect, its caller never saw it
	Torn                   // writes only: half of the bytes are written, then SIGKILL
	Fail                   // the call is not executed and returns Errno
)

func (m Mode) String() string {
	return [...]string{"none", "kill before", "kill after", "torn", "fail"}[m]
}

// Site names a call among those of all runs.
type Site struct {
	Role string // of the process that makes it
	Name string // what it does, see Call
	File string // below the root, without what is random in it
	Nth  int    // from 1
}

func (s Site) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Role, s.Name, s.File)) + fmt.Sprintf("#%d", s.Nth)
}

// Fault is what goes wrong in a run, once. The zero value is nothing.
type Fault struct {
	At    Site
	Mode  Mode
	Errno syscall.Errno
	// Sticky lets every later call of the same name and role fail as well, on
	// whatever file: a disk that stays full or broken.
	Sticky bool
	// One kills only the process that makes the call. All others are let go and
	// live on untraced. Otherwise everything that is traced dies at once.
	One bool
}

func (f Fault) String() string {
	what := f.Mode.String()
	if f.Mode == Fail {
		what += " with " + f.Errno.Error()
		if f.Sticky {
			what += " from there on"
		}
	} else if f.One {
		what += ", it alone"
	}
	return f.At.String() + ": " + what
}

// Call is one recorded call. Its names are open, write, splice, fsync, fdatasync,
// ftruncate, fallocate, rename, link, unlink, mkdir, chmod, bind, lock, unlock,
// fork, signal, send and, for what the program says on its standard output, say.
type Call struct {
	Site
	Path  string // absolute, of the file or its old name
	Path2 string // the new name of a rename or link
	Flags int    // of an open
	Off   int64  // of a write; -1: at the end
	Data  []byte // what was written or said
	Len   int64  // of ftruncate and fallocate
	Dir   bool   // a sync of a directory
	Inode uint64 // of the file that was opened, written, cut or synced
	Ret   int64
	Done  bool // it returned, and Ret says what
	// Entered and Left order the beginnings and ends of all calls.
	Entered, Left int
	// Faked: it was not executed and returned 0 all the same.
	Faked bool
	fd    int
}

// Result is what one run was.
type Result struct {
	Calls  []Call // in the order of entry
	Fired  bool   // the fault was reached
	Killed bool
	// Late: the program did not end in time and was killed.
	Late   bool
	Exit   int            // exit code of the program, -1 when it was killed
	Signal syscall.Signal // what killed it
	// Others are the pids of the programs without a role that were executed.
	Others []int
	// Survivors are the processes that were let go.
	Survivors []int
	Stdout    []byte
	Stderr    []byte
}

// Program is what to run.
type Program struct {
	Argv, Env []string
	// Root is the directory that counts.
	Root string
	// Roles gives the base name of an executable its role. The program itself has
	// the role "client".
	Roles map[string]string
	// Boot, when not empty, is what all of it reads as the boot id of the
	// machine: what it leaves looks as if the machine had been restarted since.
	Boot string
	// Fake chooses calls that are not executed and return 0: a disk that promises
	// and does not keep, or a program that forgot the call.
	Fake func(Call) bool
	// Patience is how long it may all take, 60 s if it is zero.
	Patience time.Duration
}

// Client is the role of the program that is run.
const Client = "client"

const defaultPatience = time.Minute

// sites counts the calls of each kind.
type sites map[Site]int

// name completes the site of c.
func (s sites) name(role string, c *Call, root string) {
	c.Role = role
	path := c.Path
	if c.Path2 != "" {
		path = c.Path2
	}
	if rel, err := filepath.Rel(root, path); err == nil && path != "" {
		c.File = anonymous(rel)
	}
	s[c.Site]++
	c.Nth = s[c.Site]
}

var random = regexp.MustCompile(`(\.tmp-|\.new-|\.gone-|ses_)[^/]*`)

// anonymous leaves out what is different in every run.
func anonymous(path string) string { return random.ReplaceAllString(path, "$1*") }

// Failable tells whether a call of this name can fail with the error as a disk
// makes it fail.
func Failable(name string, errno syscall.Errno) bool {
	switch name {
	case "open", "write", "splice", "rename", "link", "mkdir", "bind", "fallocate", "fsync", "fdatasync":
		return true
	case "ftruncate", "unlink", "chmod":
		return errno == syscall.EIO
	}
	return false
}
