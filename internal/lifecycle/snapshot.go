package lifecycle

// SnapshotVersion is the format of [Durable] on the wire and on disk.
const SnapshotVersion = 1

// Snapshot is what a client sees of a session.
type Snapshot struct {
	Durable
	Live *Live `json:"live,omitempty"`
}

// Durable is the part of a snapshot that is committed before it is published.
// Revision counts its changes over all guardians of the session.
type Durable struct {
	Version    int    `json:"version"`
	Session    string `json:"session"`
	Name       string `json:"name,omitempty"`
	Generation uint64 `json:"generation"`
	Revision   uint64 `json:"revision"`
	State      State  `json:"state"`

	// Started is true once a launch was reserved, whatever became of it.
	Started bool `json:"started"`
	// StartID is the mutation id that holds the one launch.
	StartID string `json:"start_id,omitempty"`
	// Program is what was asked to run, for people; never arguments or environment.
	Program string   `json:"program,omitempty"`
	Capsule *Capsule `json:"capsule,omitempty"`

	TargetPID int      `json:"target_pid,omitempty"`
	Target    *Process `json:"target,omitempty"`
	OwnerPID  int      `json:"owner_pid,omitempty"`

	ExitCode   *int `json:"exit_code,omitempty"`
	ExitSignal int  `json:"exit_signal,omitempty"`
	CoreDumped bool `json:"core_dumped,omitempty"`

	// GroupConsumed: a sweep has proved that no process is left.
	GroupConsumed bool `json:"group_consumed"`
	// TargetTerminated: a control operation has accounted for a finished target.
	TargetTerminated bool `json:"target_terminated"`
	// TerminalSessionEnded: the owner has left and the terminal is closed.
	TerminalSessionEnded bool `json:"terminal_session_ended"`
	// NotDurable says why the journal cannot be written; empty when it can.
	NotDurable string `json:"not_durable,omitempty"`

	// AskedBy is the last mutation that asked a living target to end.
	AskedBy string `json:"asked_by,omitempty"`
	// GraceUntil is when the owner sweeps a target that has not ended by then: wall
	// clock, nanoseconds since 1970, for display; 0: it does not.
	GraceUntil int64 `json:"grace_until,omitempty"`
	// Error says why the execution itself went wrong; it is kept for ever.
	Error *Failure `json:"error,omitempty"`
	// CleanupError says what stayed undone at the end.
	CleanupError *Failure `json:"cleanup_error,omitempty"`

	Times  Times   `json:"times"`
	Record *Record `json:"record,omitempty"`
}

// Live is the part of a snapshot that is as of now: no revision, no commit.
type Live struct {
	Cols         int    `json:"cols"`
	Rows         int    `json:"rows"`
	OutputStart  int64  `json:"output_start"` // first offset still kept
	OutputEnd    int64  `json:"output_end"`   // offset after the last byte captured
	Attached     int    `json:"attached"`
	Subscribers  int    `json:"subscribers"`
	GuardianPID  int    `json:"guardian_pid"`
	OutputFault  string `json:"output_fault,omitempty"`  // why output is not being recorded right now
	OwnerSilent  bool   `json:"owner_silent,omitempty"`  // the owner did not answer in time
	LossPossible bool   `json:"loss_possible,omitempty"` // capture copies: a crash may lose output
}

// Capsule is what was resolved and granted for a capsule's start.
type Capsule struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	Path    string `json:"path"`
}

// Process identifies a process for as long as the machine is up: a pid alone
// is given to strangers, pid and start time in one boot are not.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // /proc/sys/kernel/random/boot_id
}

// Times are wall clock instants in nanoseconds since 1970, for display only; 0
// is unknown.
type Times struct {
	Created int64 `json:"created,omitempty"`
	Started int64 `json:"started,omitempty"`
	Exited  int64 `json:"exited,omitempty"`
	Ended   int64 `json:"ended,omitempty"`
	Retired int64 `json:"retired,omitempty"`
}

// Failure says what could not be done: the step and the kernel's answer.
type Failure struct {
	Stage   string `json:"stage"`
	Errno   int    `json:"errno,omitempty"`
	Message string `json:"message"`
}

// Result is how an execution ended.
type Result string

// The results.
const (
	ResultExited       Result = "exited"
	ResultSignalled    Result = "signalled"
	ResultLaunchFailed Result = "launch-failed"
	ResultLost         Result = "lost"
	ResultNeverStarted Result = "never-started"
)

// Record is the final record of a session, kept until it is purged.
type Record struct {
	Result     Result `json:"result"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	ExitSignal int    `json:"exit_signal,omitempty"`
	CoreDumped bool   `json:"core_dumped,omitempty"`
	Stage      string `json:"stage,omitempty"`
	Errno      int    `json:"errno,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// AskedBy is the mutation that asked for this end: the last that sent the signal
	// of which the target died; for one that exited, the last term.
	AskedBy string `json:"asked_by,omitempty"`
	Times   Times  `json:"times"`
	// Duration is from the target's start to its end on the monotonic clock, in
	// nanoseconds; 0 is unknown.
	Duration int64  `json:"duration,omitempty"`
	Usage    *Usage `json:"usage,omitempty"`
	// EndOffset is the offset after the last byte of the target's output.
	EndOffset   int64      `json:"end_offset"`
	Drain       DrainState `json:"drain"`
	DrainErrno  int        `json:"drain_errno,omitempty"`
	Holders     int        `json:"holders"`           // processes that still hold the terminal
	HeldBy      []Holder   `json:"held_by,omitempty"` // who they are, as of the drain; the first MaxHeldBy
	Descendants int        `json:"descendants"`       // processes of the session's tree still alive
}

// MaxHeldBy bounds Record.HeldBy.
const MaxHeldBy = 16

// Holder is a process that held the terminal when the target had ended.
type Holder struct {
	PID  int    `json:"pid"`
	Name string `json:"name"` // what it calls itself, at most 15 bytes of its own choice
}

// Usage is what the target used (getrusage(2)).
type Usage struct {
	UserNanos   int64 `json:"user_ns"`
	SystemNanos int64 `json:"system_ns"`
	MaxRSSBytes int64 `json:"max_rss_bytes"`
}

// DrainState tells how the end of output was established.
type DrainState string

// How output ended.
const (
	DrainEmpty   DrainState = "empty"   // the terminal held nothing more
	DrainEOF     DrainState = "eof"     // nobody holds the terminal any more
	DrainCut     DrainState = "cut"     // a descendant writes on
	DrainFailed  DrainState = "failed"  // an error, see the errno
	DrainUnknown DrainState = "unknown" // nobody was there to see
	DrainNone    DrainState = "none"    // there never was a terminal
)
