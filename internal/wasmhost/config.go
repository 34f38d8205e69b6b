package wasmhost

import (
	"os"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
)

// Config is one run. The zero value of every field but Capsule is usable.
type Config struct {
	Capsule *capsule.Capsule
	Args    []string // after the module's name and the manifest's own
	Env     []string // NAME=value, already chosen with ChooseEnv
	WorkDir string   // the host directory behind /work, needed when the capsule asks for /work
	Dirs    []Mount  // more directories, which also serve the other scopes of the manifest

	Stdin, Stdout, Stderr *os.File // nil is an empty input or a discarded output
	Term                  string   // TERM for a guest that has a terminal

	CacheDir  string            // where compiled modules are kept; empty keeps none
	Compiling func(active bool) // called with true once compiling has taken 300 ms, and then with false at its end

	Begin func() // called right before the module is instantiated, when nothing but itself can refuse it

	// The operator's bounds. They only lower those of the manifest, zero leaves them as they are.
	Deadline time.Duration
	Memory   capsule.Size

	// Signals ends the run: SIGINT, SIGQUIT and SIGHUP at once, SIGTERM gently, a second SIGTERM at once.
	Signals <-chan os.Signal
}

// Mount gives the guest one directory of the host.
type Mount struct {
	Host     string
	Guest    string
	ReadOnly bool
}

// Reason says how a run ended.
type Reason string

// The reasons, each with the exit code it gives.
const (
	Exited        Reason = "exited"         // the guest's own code
	Trapped       Reason = "trap"           // 1
	StackOverflow Reason = "stack overflow" // 1
	OutOfMemory   Reason = "memory"         // 1 after a trap, else the guest's own code: it was refused memory and gave up
	DeadlineOver  Reason = "deadline"       // 1
	CPUOver       Reason = "cpu"            // 1
	OutputOver    Reason = "output"         // 1
	Interrupted   Reason = "interrupted"    // 130
	Quit          Reason = "quit"           // 131
	HungUp        Reason = "hangup"         // 129: the terminal is gone
	OutputClosed  Reason = "output closed"  // 141: nobody reads standard output, as SIGPIPE would end a program
	Terminated    Reason = "terminated"     // 143
	Canceled      Reason = "canceled"       // 143: the caller's context ended
)

// Result is how a run that began has ended.
type Result struct {
	ExitCode int
	Reason   Reason
	Detail   string // one line for a person; empty when the guest ended by itself
	Trace    string // where in the module a trap happened, several lines, may be empty

	// Abandoned is set when the guest could not be unwound. It still spins in this process, which must exit.
	Abandoned bool
}

// Codes of a refusal.
const (
	CodeModule      = "E-CAP-001" // the module cannot be run at all
	CodeGrant       = "E-CAP-002" // the capsule asks for something that was not given
	CodeContainment = "E-CAP-003" // the capsule asks for more confinement than there is
)

// Refused is returned when a run ends before the guest's first instruction.
type Refused struct {
	Stage   string // "containment", "grants", "files", "compile", "link"
	Code    string
	Message string
}

func (e *Refused) Error() string { return "cannot start capsule: " + e.Message }
