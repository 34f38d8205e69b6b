package lifecycle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const noon = int64(1_700_000_000_000_000_000)

// wantTable is the machine, written down a second time and by hand: each word is
// kind, >state where it moves, !effects. What is not here has to be refused.
func wantTable() map[State]string {
	const always = " adopt fail-durable heal-durable"
	const after = " account end-terminal fail-cleanup"
	return map[State]string{
		New:          "reserve>reserved!launch retire>retired!conclude,release" + always,
		Reserved:     "spawn>starting fail-launch>launch-failed!conclude lose-owner>lost!conclude" + always,
		Starting:     "ready>running fail-launch>launch-failed!conclude lose-owner>lost!conclude identify ask" + always,
		Running:      "stop>stopped exit>exited lose-owner>lost!conclude ask grace consume" + always,
		Stopped:      "continue>running exit>exited lose-owner>lost!conclude ask grace consume" + always,
		Exited:       "drain>ended!conclude lose-owner>ended!conclude account consume" + always,
		Ended:        "retire>retired!release consume" + after + always,
		LaunchFailed: "retire>retired!release" + after + always,
		Lost:         "retire>retired!release consume" + after + always,
		Retired:      "end-terminal fail-cleanup" + always,
	}
}

type wantMove struct {
	to      State
	effects []Effect
}

func parseMoves(t *testing.T, from State, row string) map[Kind]wantMove {
	t.Helper()
	moves := map[Kind]wantMove{}
	for word := range strings.FieldsSeq(row) {
		word, effects, _ := strings.Cut(word, "!")
		kind, to, moved := strings.Cut(word, ">")
		m := wantMove{to: from}
		if moved {
			m.to = State(to)
		}
		if effects != "" {
			for e := range strings.SplitSeq(effects, ",") {
				m.effects = append(m.effects, Effect(e))
			}
		}
		if !slices.Contains(Kinds(), Kind(kind)) {
			t.Fatalf("the expected table names the unknown event %q", kind)
		}
		moves[Kind(kind)] = m
	}
	return moves
}

// sample is an event of the kind that says something new in every state.
func sample(kind Kind) Event {
	e := Event{Kind: kind, At: noon}
	switch kind {
	case Reserve, Ask:
		e.ID = "018bcfe5-6800-7000-8000-000000000001"
		e.Program = "sh"
	case Grace:
		e.Until = noon + 10
	case Spawn:
		e.OwnerPID = 41
	case Identify:
		e.Target = &Process{PID: 42, Start: 4200, Boot: "boot"}
	case Exit:
		e.Exit = &ExitStatus{Code: 7, At: noon, Duration: 5}
	case Drain:
		e.Drain = &DrainReport{State: DrainEmpty, EndOffset: 11}
	case FailLaunch:
		e.Failure = &Failure{Stage: "exec", Errno: 2, Message: "no such file or directory"}
	case FailCleanup, FailDurable:
		e.Failure = &Failure{Stage: "journal", Errno: 28, Message: "no space left on device"}
	case LoseOwner:
		e.Reason, e.Output = "the owner died", 9
	}
	return e
}

// sessionIn brings a session into a state by legal steps only.
func sessionIn(t *testing.T, s State) Durable {
	t.Helper()
	paths := map[State][]Kind{
		New:          {},
		Reserved:     {Reserve},
		Starting:     {Reserve, Spawn},
		Running:      {Reserve, Spawn, Identify, Ready},
		Stopped:      {Reserve, Spawn, Identify, Ready, Stop},
		Exited:       {Reserve, Spawn, Identify, Ready, Exit},
		Ended:        {Reserve, Spawn, Identify, Ready, Exit, Drain},
		Retired:      {Reserve, Spawn, Identify, Ready, Exit, Drain, Retire},
		LaunchFailed: {Reserve, FailLaunch},
		Lost:         {Reserve, Spawn, Identify, Ready, LoseOwner},
	}
	d := fresh()
	for _, kind := range paths[s] {
		d = mustStep(t, d, sample(kind))
	}
	if d.State != s {
		t.Fatalf("the path to %s ends in %s", s, d.State)
	}
	return d
}

func fresh() Durable {
	return Durable{Version: SnapshotVersion, Session: "ses_1", Generation: 1, Revision: 1, State: New, Times: Times{Created: noon}}
}

func mustStep(t *testing.T, d Durable, e Event) Durable {
	t.Helper()
	after, _, err := Step(d, e)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func TestEveryEventInEveryStateMovesAsTheTableSays(t *testing.T) {
	for _, from := range States() {
		moves := parseMoves(t, from, wantTable()[from])
		for _, kind := range Kinds() {
			t.Run(fmt.Sprintf("%s/%s", from, kind), func(t *testing.T) {
				d := sessionIn(t, from)
				after, effects, err := Step(d, sample(kind))
				want, legal := moves[kind]
				if legal != Legal(from, kind) {
					t.Errorf("Legal says %v", !legal)
				}
				if !legal {
					checkRefused(t, d, after, effects, err, kind)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if after.State != want.to {
					t.Errorf("state is %s, want %s", after.State, want.to)
				}
				if reflect.DeepEqual(d, after) { // as healing what is well
					want.effects = nil
				} else if after.Revision != d.Revision+1 {
					t.Errorf("revision went from %d to %d", d.Revision, after.Revision)
				}
				if !slices.Equal(effects, want.effects) {
					t.Errorf("effects are %v, want %v", effects, want.effects)
				}
			})
		}
	}
}

func checkRefused(t *testing.T, before, after Durable, effects []Effect, err error, kind Kind) {
	t.Helper()
	var refusal *StepError
	if !errors.As(err, &refusal) {
		t.Fatalf("error is %v, want a *StepError", err)
	}
	if refusal.From != before.State || refusal.Kind != kind {
		t.Errorf("the refusal names %s in %s", refusal.Kind, refusal.From)
	}
	if len(refusal.To) == 0 || slices.Contains(refusal.To, before.State) {
		t.Errorf("the refusal says possible in %v", refusal.To)
	}
	for _, s := range append(refusal.To, before.State) {
		if !strings.Contains(err.Error(), string(s)) {
			t.Errorf("%q does not name %s", err, s)
		}
	}
	if effects != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("a refused event changed the session or had effects %v", effects)
	}
}

func TestTheSameEventTwiceSaysNothingNewTheSecondTime(t *testing.T) {
	for _, kind := range []Kind{Identify, Ask, Account, Consume, EndTerminal, FailCleanup, FailDurable, HealDurable} {
		t.Run(string(kind), func(t *testing.T) {
			from := States()[slices.IndexFunc(States(), func(s State) bool { return Legal(s, kind) })]
			once := mustStep(t, sessionIn(t, from), sample(kind))
			twice, effects, err := Step(once, sample(kind))
			if err != nil || effects != nil || !reflect.DeepEqual(once, twice) {
				t.Errorf("the second %s gave %+v, %v, %v", kind, twice, effects, err)
			}
		})
	}
}

func TestFinalAndAliveSplitTheStates(t *testing.T) {
	for _, s := range States() {
		if s.Final() && s.Alive() {
			t.Errorf("%s is both final and alive", s)
		}
		if got := sessionIn(t, s).Record != nil; s.Final() && !got {
			t.Errorf("a session that is %s has no record", s)
		}
	}
}

func TestASignalIsNeverAnExitCode(t *testing.T) {
	killed := sample(Exit)
	killed.Exit = &ExitStatus{Signal: 11, Core: true, At: noon}
	d := mustStep(t, sessionIn(t, Running), killed)
	d = mustStep(t, d, sample(Drain))
	r := d.Record
	if d.ExitCode != nil || d.ExitSignal != 11 || !d.CoreDumped {
		t.Errorf("the snapshot says code %v, signal %d, core %v", d.ExitCode, d.ExitSignal, d.CoreDumped)
	}
	if r.Result != ResultSignalled || r.ExitCode != nil || r.ExitSignal != 11 || !r.CoreDumped {
		t.Errorf("the record says %+v", r)
	}
}

func TestExitCodeZeroIsKnownAndNotMerelyAbsent(t *testing.T) {
	clean := sample(Exit)
	clean.Exit = &ExitStatus{At: noon}
	d := mustStep(t, sessionIn(t, Running), clean)
	if d.ExitCode == nil || *d.ExitCode != 0 {
		t.Errorf("exit code is %v, want 0", d.ExitCode)
	}
}

func TestTheRecordNamesWhoAskedForTheEnd(t *testing.T) {
	asked := mustStep(t, sessionIn(t, Running), sample(Ask))
	exit := sample(Exit)
	exit.Exit = &ExitStatus{Code: 7, At: noon, AskedBy: sample(Ask).ID}
	if ended := mustStep(t, mustStep(t, asked, exit), sample(Drain)); ended.Record.AskedBy != sample(Ask).ID {
		t.Errorf("asked by %q", ended.Record.AskedBy)
	}
	// The owner knows whether what was asked is what happened.
	if natural := mustStep(t, mustStep(t, asked, sample(Exit)), sample(Drain)); natural.Record.AskedBy != "" {
		t.Errorf("a natural end was asked for by %q", natural.Record.AskedBy)
	}
	for by, reason := range map[string]string{"": "SIGKILL, and no operation of the session asked for it", "op": ""} {
		exit.Exit = &ExitStatus{Signal: 9, At: noon, AskedBy: by}
		if r := mustStep(t, asked, exit).Record; r.Reason != reason {
			t.Errorf("killed, asked by %q: %q", by, r.Reason)
		}
	}
}

func TestAGraceEndsWithTheTarget(t *testing.T) {
	d := mustStep(t, sessionIn(t, Stopped), sample(Grace))
	if d.GraceUntil != sample(Grace).Until {
		t.Errorf("%+v", d)
	}
	if d = mustStep(t, d, sample(Exit)); d.GraceUntil != 0 {
		t.Errorf("after the exit: %+v", d)
	}
}

func TestALostOwnerAfterTheExitKeepsTheExit(t *testing.T) {
	exit := sample(Exit)
	exit.Exit = &ExitStatus{Code: 3, At: noon, Reason: "deadline"}
	d := mustStep(t, sessionIn(t, Running), exit)
	d = mustStep(t, d, sample(LoseOwner))
	r := d.Record
	if d.State != Ended || r.Result != ResultExited || *r.ExitCode != 3 {
		t.Errorf("the session is %s with %+v", d.State, r)
	}
	if r.Drain != DrainUnknown || r.EndOffset != 9 {
		t.Errorf("drain %s at %d, want unknown at what is on the disk", r.Drain, r.EndOffset)
	}
	if r.Reason != "deadline" || d.Error != nil {
		t.Errorf("reason %q, error %v: the runtime's word was lost", r.Reason, d.Error)
	}
}

func TestASessionThatNeverStartedRetiresWithARecord(t *testing.T) {
	d := mustStep(t, fresh(), sample(Retire))
	if d.State != Retired || d.Started || d.Record == nil || d.Record.Result != ResultNeverStarted {
		t.Errorf("got %+v", d)
	}
	if d.Record.Drain != DrainNone || d.Error != nil {
		t.Errorf("drain %s, error %v", d.Record.Drain, d.Error)
	}
}
