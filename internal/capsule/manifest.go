package capsule

import "time"

// ManifestFile is the name of the manifest in a capsule's directory.
const ManifestFile = "murmur.yaml"

// Bounds of what is read. A capsule above them is refused before its bytes are kept.
const (
	MaxManifestBytes = 64 << 10
	MaxCapsuleBytes  = 500 << 20
)

// DefaultMemory is the memory limit of a capsule that names none.
const DefaultMemory Size = 512 << 20

// DefaultOpenFiles is the number of files a capsule that names no limit may have open at once.
const DefaultOpenFiles = 256

// WorkGuest is the guest path of the work folder.
const WorkGuest = "/work"

// Kind says how a capsule lives.
type Kind string

// The kinds this version runs.
const (
	Program Kind = "program" // runs in a session and talks to the terminal
	Script  Kind = "script"  // runs to its end and reports
)

// Containment is the least confinement a capsule accepts.
type Containment string

// The classes, weakest first.
const (
	Advisory Containment = "advisory"
	Scoped   Containment = "scoped"
	Sealed   Containment = "sealed"
)

// Clock says which time a guest sees.
type Clock string

// The clock grants. The fixed clock starts at one instant for everyone and moves on only while the guest sleeps.
const (
	ClockNone  Clock = "none"
	ClockFixed Clock = "fixed"
	ClockReal  Clock = "real"
)

// RandomMode says where a guest's random bytes come from.
type RandomMode string

// The random grants.
const (
	RandomNone RandomMode = "none"
	RandomSeed RandomMode = "seed"
	RandomReal RandomMode = "real"
)

// Interrupt says what ^C means to a guest on a terminal.
type Interrupt string

// The answers to ^C: end the guest, or hand it the byte.
const (
	InterruptStop  Interrupt = "stop"
	InterruptInput Interrupt = "input"
)

// Manifest is what a capsule says about itself and asks for.
type Manifest struct {
	Name          string
	Version       string
	Description   string
	Entry         Entry
	RequiresFiles []string
	Capabilities  Capabilities
	Containment   Containment
	Kind          Kind
}

// Entry is how the module is started. Args follow the module's name in argv, Workdir is the guest's first directory.
type Entry struct {
	Args    []string
	Workdir string
}

// Capabilities are what the capsule asks for. A nil section asks for nothing of that kind.
type Capabilities struct {
	Filesystem *Filesystem
	Env        Env
	Clock      Clock
	Random     Random
	Terminal   *Terminal
	Limits     Limits
}

// Filesystem names the guest directories, and the paths below them that stay read-only whatever the directory allows.
type Filesystem struct {
	Scope    []Scope
	ReadOnly []string
}

// Scope is one guest directory.
type Scope struct {
	Guest    string
	Writable bool
}

// Env names the variables the guest may see. A name that looks like a credential is withheld unless it is in Secrets.
type Env struct {
	Allow   []string
	Secrets []string
}

// Random is the source of random bytes; Seed counts only with RandomSeed.
type Random struct {
	Mode RandomMode
	Seed uint64
}

// Terminal is what the capsule may do with the terminal beside writing text to it.
type Terminal struct {
	Allow     []string
	Raw       bool
	Interrupt Interrupt
}

// Limits bound a run. Zero means no limit, except that Memory and OpenFiles always have one.
type Limits struct {
	Memory     Size
	Deadline   time.Duration
	CPUSeconds int64
	Output     Size
	OpenFiles  int
}

// Default is the manifest of a bare module: the work folder, real time and randomness, the terminal in raw mode.
func Default() *Manifest {
	m := empty()
	m.Name, m.Version = "local/module", "0"
	m.Capabilities.Filesystem = &Filesystem{Scope: []Scope{{Guest: WorkGuest, Writable: true}}}
	m.Capabilities.Terminal = &Terminal{Raw: true, Interrupt: InterruptStop}
	m.Entry.Workdir = WorkGuest
	return m
}

// empty is a manifest that asks for nothing, with the values of every key that may be left out.
func empty() *Manifest {
	return &Manifest{
		Kind:        Program,
		Containment: Advisory,
		Capabilities: Capabilities{
			Clock:  ClockReal,
			Random: Random{Mode: RandomReal},
			Limits: Limits{Memory: DefaultMemory, OpenFiles: DefaultOpenFiles},
		},
	}
}
