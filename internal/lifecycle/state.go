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

// table is the whole machine: what is not in it is an illegal step.
func table() map[State]map[Kind]move {
	conclude := []Effect{Conclude}
	t := map[State]map[Kind]move{
		New: {
			Reserve: {Reserved, []Effect{Launch}},
			Retire:  {Retired, []Effect{Conclude, Release}},
		},
		Reserved: {
			Spawn:      {to: Starting},
			FailLaunch: {LaunchFailed, conclude},
			LoseOwner:  {Lost, conclude},
		},
		Starting: {
			Ready:      {to: Running},
			FailLaunch: {LaunchFailed, conclude},
			LoseOwner:  {Lost, conclude},
		},
		Running: {
			Stop:      {to: Stopped},
			Exit:      {to: Exited},
			LoseOwner: {Lost, conclude},
		},
		Stopped: {
			Continue:  {to: Running},
			Exit:      {to: Exited},
			LoseOwner: {Lost, conclude},
		},
		Exited: {
			Drain: {Ended, conclude},
			// The exit is the truth, whatever became of the owner; only how much
			// of the output was drained stays unknown.
			LoseOwner: {Ended, conclude},
		},
		Ended:        {Retire: {Retired, []Effect{Release}}},
		LaunchFailed: {Retire: {Retired, []Effect{Release}}},
		Lost:         {Retire: {Retired, []Effect{Release}}},
		Retired:      {},
	}
	facts := map[Kind][]State{
		Identify:    {Starting},
		Ask:         {Starting, Running, Stopped},
		Grace:       {Running, Stopped},
		Account:     {Exited, Ended, LaunchFailed, Lost},
		Consume:     {Running, Stopped, Exited, Ended, Lost},
		EndTerminal: {Ended, Retired, LaunchFailed, Lost},
		FailCleanup: {Ended, Retired, LaunchFailed, Lost},
		FailDurable: States(),
		HealDurable: States(),
		Adopt:       States(),
	}
	for kind, states := range facts {
		for _, s := range states {
			t[s][kind] = move{to: s}
		}
	}
	return t
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
	t := table()
	if m, ok := t[from][kind]; ok {
		return m, nil
	}
	var legal []State
	for _, s := range States() {
		if _, ok := t[s][kind]; ok {
			legal = append(legal, s)
		}
	}
	return move{}, &StepError{From: from, Kind: kind, To: legal}
}

// Legal tells whether kind is possible in s.
func Legal(s State, kind Kind) bool {
	_, err := next(s, kind)
	return err == nil
}

// has tells whether effects contains e.
func has(effects []Effect, e Effect) bool { return slices.Contains(effects, e) }
