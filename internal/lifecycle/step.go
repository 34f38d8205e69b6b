package lifecycle

import (
	"fmt"
	"reflect"
)

// Event is one thing that happened. Only the fields that its Kind names are read.
type Event struct {
	Kind Kind
	At   int64 // wall clock, nanoseconds since 1970

	ID       string       // Reserve, Ask: the mutation
	Until    int64        // Grace: wall clock, nanoseconds since 1970
	Program  string       // Reserve
	Capsule  *Capsule     // Reserve
	OwnerPID int          // Spawn
	Target   *Process     // Identify
	Exit     *ExitStatus  // Exit
	Drain    *DrainReport // Drain
	Failure  *Failure     // FailLaunch, FailCleanup, FailDurable
	Reason   string       // LoseOwner
	Output   int64        // LoseOwner: what is on the disk
}

// ExitStatus is how the target ended, as wait4(2) told the owner.
type ExitStatus struct {
	Code     int    `json:"code"`             // valid when Signal is 0
	Signal   int    `json:"signal,omitempty"` // 0: it exited
	Core     bool   `json:"core,omitempty"`
	At       int64  `json:"at"`       // wall clock, nanoseconds since 1970
	Duration int64  `json:"duration"` // monotonic, nanoseconds
	Usage    *Usage `json:"usage,omitempty"`
	// OOMKills is how many processes of the machine the kernel killed for want of memory
	// while the target ran; only with SIGKILL.
	OOMKills uint64 `json:"oom_kills,omitempty"`
	// Reason is what the capsule's runtime said about the end.
	Reason string `json:"reason,omitempty"`
	// AskedBy is the mutation that asked for this end.
	AskedBy string `json:"asked_by,omitempty"`
}

// DrainReport is how the end of the output was established.
type DrainReport struct {
	State       DrainState `json:"state"`
	Errno       int        `json:"errno,omitempty"`
	EndOffset   int64      `json:"end_offset"`
	Holders     int        `json:"holders"`
	HeldBy      []Holder   `json:"held_by,omitempty"`
	Descendants int        `json:"descendants"`
}

// Step moves d by one event. It returns d unchanged, without an error and
// without effects, when the event says nothing new; then nothing is to be
// committed. An impossible event is a [*StepError].
func Step(d Durable, e Event) (Durable, []Effect, error) {
	m, err := next(d.State, e.Kind)
	if err != nil {
		return d, nil, err
	}
	after := d
	after.State = m.to
	apply(&after, e)
	if has(m.effects, Conclude) {
		conclude(&after, e)
	}
	if reflect.DeepEqual(d, after) {
		return d, nil, nil
	}
	after.Revision++
	return after, m.effects, nil
}

func apply(d *Durable, e Event) {
	switch e.Kind {
	case Reserve:
		d.Started = true
		d.StartID, d.Program, d.Capsule = e.ID, e.Program, e.Capsule
	case Spawn:
		d.OwnerPID = e.OwnerPID
	case Identify:
		d.Target, d.TargetPID = e.Target, e.Target.PID
		d.Times.Started = e.At
	case FailLaunch:
		d.Error = e.Failure
	case Exit:
		applyExit(d, *e.Exit)
	case LoseOwner:
		if d.State == Lost {
			d.Error = &Failure{Stage: "owner", Message: e.Reason}
		}
	case Retire:
		d.Times.Retired = e.At
	case Ask:
		d.AskedBy = e.ID
	case Grace:
		d.GraceUntil = e.Until
	case Account:
		d.TargetTerminated = true
	case Consume:
		d.GroupConsumed = true
	case EndTerminal:
		d.TerminalSessionEnded = true
	case FailCleanup:
		d.CleanupError = e.Failure
	case FailDurable:
		d.NotDurable = e.Failure.Message
	case HealDurable:
		d.NotDurable = ""
	case Adopt:
		d.Generation++
		d.NotDurable = ""
	case Ready, Stop, Continue, Drain:
	}
}

func applyExit(d *Durable, x ExitStatus) {
	d.Times.Exited, d.GraceUntil = x.At, 0
	if x.Signal != 0 {
		d.ExitSignal, d.CoreDumped = x.Signal, x.Core
	} else {
		code := x.Code
		d.ExitCode = &code
	}
	d.Record = &Record{
		Result: ResultExited, ExitCode: d.ExitCode, ExitSignal: x.Signal, CoreDumped: x.Core,
		AskedBy: x.AskedBy, Duration: x.Duration, Usage: x.Usage, Reason: x.Reason, Drain: DrainUnknown,
	}
	if x.Signal != 0 {
		d.Record.Result = ResultSignalled
	}
	if x.Signal == sigKill && x.AskedBy == "" && x.Reason == "" {
		d.Record.Reason = "SIGKILL, and no operation of the session asked for it" + oomHint(x.OOMKills)
	}
}

// oomHint says what speaks for the kernel as the killer. It does not tell whom it
// killed to anybody but its log.
func oomHint(kills uint64) string {
	switch kills {
	case 0:
		return ""
	case 1:
		return "; meanwhile the kernel killed a process for want of memory"
	default:
		return fmt.Sprintf("; meanwhile the kernel killed %d processes for want of memory", kills)
	}
}

// sigKill is SIGKILL on every machine (signal(7)).
const sigKill = 9

// conclude writes the final record. Every final state has one and only final
// states have one that is complete: Times.Ended tells.
func conclude(d *Durable, e Event) {
	d.Times.Ended = e.At
	r := Record{Drain: DrainNone, AskedBy: d.AskedBy}
	switch d.State {
	case Ended:
		r = *d.Record
		if e.Kind == Drain {
			r.Drain, r.DrainErrno = e.Drain.State, e.Drain.Errno
			r.EndOffset, r.Holders, r.Descendants = e.Drain.EndOffset, e.Drain.Holders, e.Drain.Descendants
			r.HeldBy = e.Drain.HeldBy
		} else {
			r.Drain, r.EndOffset = DrainUnknown, e.Output
			if r.Reason == "" { // what the runtime said about the end says more
				r.Reason = e.Reason
			}
		}
	case LaunchFailed:
		r.Result = ResultLaunchFailed
		r.Stage, r.Errno, r.Reason = e.Failure.Stage, e.Failure.Errno, e.Failure.Message
	case Lost:
		r.Result, r.Reason = ResultLost, e.Reason
		r.Drain, r.EndOffset = DrainUnknown, e.Output
	case Retired:
		r.Result, r.Reason = ResultNeverStarted, "the session was never started"
	}
	r.Times = d.Times
	d.Record = &r
}
