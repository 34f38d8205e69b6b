package lifecycle

import (
	"reflect"
	"testing"
)

// written is the sum of an owner's records.
func written(rs ...OutcomeRecord) *Outcome {
	o := &Outcome{}
	for i, r := range rs {
		r.At = noon + int64(i)
		o.Add(r)
	}
	return o
}

func launching() OutcomeRecord { return OutcomeRecord{Launching: true} }

func running() OutcomeRecord {
	return OutcomeRecord{Running: &Process{PID: 42, Start: 4200, Boot: "boot"}}
}

func exited(code int) OutcomeRecord {
	return OutcomeRecord{Exit: &ExitStatus{Code: code, At: noon + 50, Duration: 50}}
}

func drained() OutcomeRecord {
	return OutcomeRecord{Drain: &DrainReport{State: DrainEOF, EndOffset: 8}}
}

// ownerGone is the evidence of a free owner.lock in the same boot.
func ownerGone(o *Outcome) Evidence {
	return Evidence{Outcome: o, SameBoot: true, Output: 33, Now: noon + 100}
}

func ownerThere(o *Outcome) Evidence {
	return Evidence{Outcome: o, OwnerHeld: true, SameBoot: true, Output: 33, Now: noon + 100}
}

func capsuleStarting(t *testing.T) Durable {
	reserve := sample(Reserve)
	reserve.Capsule = &Capsule{Name: "local/notes", Version: "1"}
	return mustStep(t, mustStep(t, fresh(), reserve), sample(Spawn))
}

func TestAStartWhoseOwnerLivesStaysAdmitted(t *testing.T) {
	for _, s := range []State{Reserved, Starting} {
		got, effects := Fold(sessionIn(t, s), ownerThere(nil))
		if got.State != s || effects != nil {
			t.Errorf("%s became %s with %v: nothing is settled beside a held lock", s, got.State, effects)
		}
	}
}

func TestAStartWhoseOwnerLivesTakesWhatTheOwnerRecorded(t *testing.T) {
	got, _ := Fold(sessionIn(t, Reserved), ownerThere(written(launching(), running())))
	if got.State != Running || got.TargetPID != 42 || got.Times.Started != noon+1 {
		t.Errorf("got %+v", got)
	}
}

func TestAStartWithoutAnOwnerThatRanIsLostWhenNoExitIsKnown(t *testing.T) {
	got, effects := Fold(sessionIn(t, Reserved), ownerGone(written(launching(), running())))
	if got.State != Lost || got.TargetPID != 42 || got.ExitCode != nil || got.ExitSignal != 0 {
		t.Errorf("got %+v", got)
	}
	if !reflect.DeepEqual(effects, []Effect{Conclude}) {
		t.Errorf("effects are %v", effects)
	}
}

func TestAStartWithoutAnOwnerTakesTheExitFromTheOutcome(t *testing.T) {
	got, _ := Fold(sessionIn(t, Reserved), ownerGone(written(launching(), running(), exited(19), drained())))
	if got.State != Ended || *got.Record.ExitCode != 19 || got.Record.Drain != DrainEOF {
		t.Errorf("got %+v with %+v", got, got.Record)
	}
	if !got.TerminalSessionEnded {
		t.Error("the lock is free and the terminal session is not ended")
	}
}

// The owner may have looked too early; what others write later is not the target's.
func TestTheOutputEndsWithTheLogWhereNobodyElseCouldWrite(t *testing.T) {
	left := func(holders, descendants int) OutcomeRecord {
		r := drained()
		r.Drain.Holders, r.Drain.Descendants = holders, descendants
		return r
	}
	for _, c := range []struct {
		drain OutcomeRecord
		want  int64
	}{{left(0, 0), 33}, {left(1, 1), 8}, {left(0, 1), 8}} {
		got, _ := Fold(sessionIn(t, Running), ownerGone(written(launching(), running(), exited(0), c.drain)))
		if got.State != Ended || got.Record.EndOffset != c.want {
			t.Errorf("%+v: the end is %d, want %d", c.drain.Drain, got.Record.EndOffset, c.want)
		}
	}
	short := ownerGone(written(launching(), running(), exited(0), left(0, 0)))
	short.Output = 5
	if got, _ := Fold(sessionIn(t, Running), short); got.Record.EndOffset != 8 {
		t.Errorf("a log that ends before: the end is %d", got.Record.EndOffset)
	}
}

func TestAnExitWithoutItsDrainEndsWithWhatIsOnTheDisk(t *testing.T) {
	got, _ := Fold(sessionIn(t, Running), ownerGone(written(launching(), running(), exited(0))))
	if got.State != Ended || got.Record.Drain != DrainUnknown || got.Record.EndOffset != 33 {
		t.Errorf("got %s with %+v", got.State, got.Record)
	}
}

func TestAStartThatWasAboutToLaunchIsLostNotFailed(t *testing.T) {
	got, _ := Fold(sessionIn(t, Starting), ownerGone(written(launching())))
	if got.State != Lost || got.Record.Result != ResultLost || got.ExitCode != nil {
		t.Errorf("got %s with %+v: whether the target ran is unknown", got.State, got.Record)
	}
}

func TestAStartWithoutAnOwnerAndWithoutAnOutcomeIsASettledFailure(t *testing.T) {
	for s, stage := range map[State]string{Reserved: "guardian", Starting: "owner"} {
		got, _ := Fold(sessionIn(t, s), ownerGone(nil))
		if got.State != LaunchFailed || got.Error == nil || got.Error.Stage != stage || got.Record.Stage != stage {
			t.Errorf("%s became %s with %+v", s, got.State, got.Error)
		}
		if !got.Started || got.TargetPID != 0 || got.ExitCode != nil {
			t.Errorf("%s: started %v, pid %d, exit %v", s, got.Started, got.TargetPID, got.ExitCode)
		}
	}
}

func TestAnOwnerThatDiedBeforeItsFirstWordAboutALaunchHadNoTarget(t *testing.T) {
	silent := written(OutcomeRecord{Applied: "0190f3c2-7a5b-7cde-8f01-23456789abcd"})
	got, _ := Fold(sessionIn(t, Reserved), ownerGone(silent))
	if got.State != LaunchFailed || got.Error.Stage != "owner" {
		t.Errorf("became %s with %+v", got.State, got.Error)
	}
}

func TestATargetThatWasSeenIsNeverSaidNotToHaveExisted(t *testing.T) {
	d := mustStep(t, capsuleStarting(t), sample(Identify))
	if got, _ := Fold(d, ownerGone(nil)); got.State != Lost {
		t.Errorf("became %s", got.State)
	}
}

func TestAFailedLaunchIsTakenFromTheOutcome(t *testing.T) {
	failure := &Failure{Stage: "exec", Errno: 13, Message: "permission denied"}
	for _, ev := range []Evidence{
		ownerThere(written(launching(), OutcomeRecord{Failure: failure})),
		ownerGone(written(launching(), OutcomeRecord{Failure: failure})),
	} {
		got, _ := Fold(sessionIn(t, Starting), ev)
		if got.State != LaunchFailed || !reflect.DeepEqual(got.Error, failure) || got.Record.Errno != 13 {
			t.Errorf("owner held %v: became %s with %+v", ev.OwnerHeld, got.State, got.Error)
		}
	}
}

func TestARunningSessionWithoutItsOwnerIsLostAndSaysWhy(t *testing.T) {
	for sameBoot, reason := range map[bool]string{true: "the owner died", false: "the machine was restarted"} {
		ev := ownerGone(written(launching(), running()))
		ev.SameBoot = sameBoot
		for _, s := range []State{Running, Stopped} {
			got, _ := Fold(sessionIn(t, s), ev)
			if got.State != Lost || got.Record.Reason != reason || got.Error.Message != reason {
				t.Errorf("%s, same boot %v: became %s because %q", s, sameBoot, got.State, got.Record.Reason)
			}
			if got.GroupConsumed {
				t.Error("nobody proved that no process is left")
			}
		}
	}
}

func TestAfterARestartNoLockCounts(t *testing.T) {
	ev := ownerThere(written(launching(), running()))
	ev.SameBoot = false
	if got, _ := Fold(sessionIn(t, Running), ev); got.State != Lost {
		t.Errorf("became %s", got.State)
	}
}

func TestALostGuardianEndsNothing(t *testing.T) {
	ev := ownerThere(written(launching(), running()))
	got, effects := Fold(sessionIn(t, Running), ev)
	if got.State != Running || effects != nil {
		t.Errorf("became %s, effects %v", got.State, effects)
	}
	ev.Outcome = written(launching(), running(), exited(4), drained())
	if got, _ = Fold(got, ev); got.State != Ended || *got.ExitCode != 4 {
		t.Errorf("became %s with %v", got.State, got.ExitCode)
	}
}

func TestASessionThatWasNeverStartedIsLeftAlone(t *testing.T) {
	retired := mustStep(t, fresh(), sample(Retire))
	for _, d := range []Durable{fresh(), retired} {
		if got, effects := Fold(d, ownerGone(nil)); !reflect.DeepEqual(got, d) || effects != nil {
			t.Errorf("%s became %+v", d.State, got)
		}
	}
}

func TestARetiredSessionLearnsThatItsTerminalIsClosed(t *testing.T) {
	d := sessionIn(t, Retired)
	got, _ := Fold(d, ownerGone(written(launching(), running(), exited(7), drained())))
	if !got.TerminalSessionEnded || got.State != Retired || !reflect.DeepEqual(got.Record, d.Record) {
		t.Errorf("got %+v", got)
	}
}

func TestACapsuleRunsWhenItsRuntimeSaysSo(t *testing.T) {
	refused := &Failure{Stage: "grants", Message: "the digest changed"}
	for name, c := range map[string]struct {
		more []OutcomeRecord
		want State
	}{
		"a pid alone":              {nil, Starting},
		"its first instruction":    {[]OutcomeRecord{{Report: &Report{Running: true}}}, Running},
		"a pipe closed in silence": {[]OutcomeRecord{{Report: &Report{Closed: true}}}, Running},
		"an exit":                  {[]OutcomeRecord{exited(1)}, Exited},
		"a refusal":                {[]OutcomeRecord{{Report: &Report{Refused: refused}}}, LaunchFailed},
		"a refusal, then silence":  {[]OutcomeRecord{{Report: &Report{Refused: refused}}, {Report: &Report{Closed: true}}, exited(1)}, LaunchFailed},
	} {
		t.Run(name, func(t *testing.T) {
			o := written(append([]OutcomeRecord{launching(), running()}, c.more...)...)
			got, _ := Advance(capsuleStarting(t), *o, noon+100)
			if got.State != c.want || got.TargetPID != 42 {
				t.Errorf("is %s with pid %d, want %s", got.State, got.TargetPID, c.want)
			}
		})
	}
}

func TestAStopIsVisibleUntilTheTargetContinues(t *testing.T) {
	yes, no := true, false
	stopped, _ := Advance(sessionIn(t, Running), *written(launching(), running(), OutcomeRecord{Stopped: &yes}), noon)
	if stopped.State != Stopped {
		t.Fatalf("is %s", stopped.State)
	}
	again, _ := Advance(stopped, *written(launching(), running(), OutcomeRecord{Stopped: &yes}, OutcomeRecord{Stopped: &no}), noon)
	if again.State != Running {
		t.Errorf("is %s", again.State)
	}
}
