package lifecycle

import (
	"fmt"
	"slices"
)

// State is where a session stands. Its text is part of the wire and of the
// JSON output.
type State string

// The states, in the order in which a session can meet them.
const (
	New          State = "new"           // a session without a launch
	Reserved     State = "reserved"      // the launch is admitted, nothing was spawned
	Starting     State = "starting"      // an owner exists, the target is not known to run
	Running      State = "running"       // the target runs
	Stopped      State = "stopped"       // the target is stopped by a signal (^Z)
	Exited       State = "exited"        // the target's end is known, its output is still being drained
	Ended        State = "ended"         // exit known and drain over: the final record is there
	Retired      State = "retired"       // the final record was acknowledged
	LaunchFailed State = "launch-failed" // the target was never started; stage and errno say why
	Lost         State = "lost"          // the owner ended without a word about the target: outcome unknown
)

// States lists every state in order.
func States() []State {
	return []State{New, Reserved, Starting, Running, Stopped, Exited, Ended, Retired, LaunchFailed, Lost}
}

// Final tells whether a session in s has its final record.
func (s State) Final() bool {
	return s == Ended || s == Retired || s == LaunchFailed || s == Lost
}

// Alive tells whether a target may be running or about to run in s.
func (s State) Alive() bool {
	return s == Reserved || s == Starting || s == Running || s == Stopped
}

// Kind names an event.
type Kind string

// The events. The first group moves the state, the second adds a fact to it.
const (
	Reserve    Kind = "reserve"     // a start was admitted
	Spawn      Kind = "spawn"       // the owner process exists
	Ready      Kind = "ready"       // the target runs; of a capsule: its first instruction
	FailLaunch Kind = "fail-launch" // the target could not be started
	Stop       Kind = "stop"        // a signal stopped the target
	Continue   Kind = "continue"    // the target runs again
	Exit       Kind = "exit"        // the target ended
	Drain      Kind = "drain"       // its output is complete
	LoseOwner  Kind = "lose-owner"  // the owner is gone and left no word
	Retire     Kind = "retire"      // the final record was acknowledged

	Identify    Kind = "identify"     // the owner reports the target's pid
	Ask         Kind = "ask"          // a control operation asked the target to end
	Grace       Kind = "grace"        // and the owner sweeps if it has not by then
	Account     Kind = "account"      // a control operation has accounted for a finished target
	Consume     Kind = "consume"      // a sweep has proved that no process is left
	EndTerminal Kind = "end-terminal" // the owner has left, the terminal is closed
	FailCleanup Kind = "fail-cleanup" // something stayed undone at the end
	FailDurable Kind = "fail-durable" // the journal cannot be written
	HealDurable Kind = "heal-durable" // the journal is written again
	Adopt       Kind = "adopt"        // a further guardian took the session
)

// Effect is what the holder of the state has to do after a step was committed.
type Effect string

// The effects.
const (
	Launch   Effect = "launch"   // spawn the owner
	Conclude Effect = "conclude" // the final record is there: end the streams that wait for it
	Release  Effect = "release"  // let the owner and the guardian go
)

type move struct {
	to      State
	effects []Effect
}

// moves are the events that move a session in state s: together with facts the whole
// machine. What is in neither is an illegal step.
func moves(s State) map[Kind]move {
	conclude := []Effect{Conclude}
	switch s {
	case New:
		return map[Kind]move{
			Reserve: {Reserved, []Effect{Launch}},
			Retire:  {Retired, []Effect{Conclude, Release}},
		}
	case Reserved:
		return map[Kind]move{
			Spawn:      {to: Starting},
			FailLaunch: {LaunchFailed, conclude},
			LoseOwner:  {Lost, conclude},
		}
	case Starting:
		return map[Kind]move{
			Ready:      {to: Running},
			FailLaunch: {LaunchFailed, conclude},
			LoseOwner:  {Lost, conclude},
		}
	case Running:
		return map[Kind]move{
			Stop:      {to: Stopped},
			Exit:      {to: Exited},
			LoseOwner: {Lost, conclude},
		}
	case Stopped:
		return map[Kind]move{
			Continue:  {to: Running},
			Exit:      {to: Exited},
			LoseOwner: {Lost, conclude},
		}
	case Exited:
		return map[Kind]move{
			Drain: {Ended, conclude},
			// The exit is the truth, whatever became of the owner; only how much
			// of the output was drained stays unknown.
			LoseOwner: {Ended, conclude},
		}
	case Ended, LaunchFailed, Lost:
		return map[Kind]move{Retire: {Retired, []Effect{Release}}}
	}
	return nil // Retired
}

// facts are the states in which an event adds a fact to the session and leaves the
// state as it is.
func facts(kind Kind) []State {
	switch kind {
	case Identify:
		return []State{Starting}
	case Ask:
		return []State{Starting, Running, Stopped}
	case Grace:
		return []State{Running, Stopped}
	case Account:
		return []State{Exited, Ended, LaunchFailed, Lost}
	case Consume:
		return []State{Running, Stopped, Exited, Ended, Lost}
	case EndTerminal, FailCleanup:
		return []State{Ended, Retired, LaunchFailed, Lost}
	case FailDurable, HealDurable, Adopt:
		return States()
	}
	return nil
}

// Kinds lists every event in order.
func Kinds() []Kind {
	return []Kind{
		Reserve, Spawn, Ready, FailLaunch, Stop, Continue, Exit, Drain, LoseOwner, Retire,
		Identify, Ask, Grace, Account, Consume, EndTerminal, FailCleanup, FailDurable, HealDurable, Adopt,
	}
}

// StepError is returned when an event is not possible in a state.
type StepError struct {
	From State
	Kind Kind
	// To holds the states in which the event would have been possible.
	To []State
}

func (e *StepError) Error() string {
	return fmt.Sprintf("cannot %s a session that is %s: possible in %v", e.Kind, e.From, e.To)
}

func next(from State, kind Kind) (move, error) {
	if m, ok := look(from, kind); ok {
		return m, nil
	}
	var legal []State
	for _, s := range States() {
		if _, ok := look(s, kind); ok {
			legal = append(legal, s)
		}
	}
	return move{}, &StepError{From: from, Kind: kind, To: legal}
}

func look(from State, kind Kind) (move, bool) {
	if slices.Contains(facts(kind), from) {
		return move{to: from}, true
	}
	m, ok := moves(from)[kind]
	return m, ok
}

// Legal tells whether kind is possible in s.
func Legal(s State, kind Kind) bool {
	_, ok := look(s, kind)
	return ok
}

// has tells whether effects contains e.
func has(effects []Effect, e Effect) bool { return slices.Contains(effects, e) }
