package lifecycle

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawEvent(t *rapid.T) Event {
	e := Event{
		Kind:     rapid.SampledFrom(Kinds()).Draw(t, "kind"),
		At:       noon + rapid.Int64Range(1, 1000).Draw(t, "at"),
		ID:       rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"),
		Program:  "sh",
		OwnerPID: rapid.IntRange(2, 4).Draw(t, "owner"),
		Target:   &Process{PID: rapid.IntRange(2, 4).Draw(t, "pid"), Start: 1, Boot: "b"},
		Exit:     drawExit(t),
		Drain:    drawDrain(t),
		Failure:  drawFailure(t),
		Reason:   "the owner died",
		Output:   rapid.Int64Range(0, 100).Draw(t, "output"),
	}
	if rapid.Bool().Draw(t, "capsule") {
		e.Capsule = &Capsule{Name: "local/x", Version: "1"}
	}
	return e
}

func drawExit(t *rapid.T) *ExitStatus {
	x := &ExitStatus{At: noon + rapid.Int64Range(1, 1000).Draw(t, "exit at"), Duration: 1}
	if rapid.Bool().Draw(t, "killed") {
		x.Signal, x.Core = rapid.IntRange(1, 64).Draw(t, "signal"), rapid.Bool().Draw(t, "core")
	} else {
		x.Code = rapid.IntRange(0, 255).Draw(t, "code")
	}
	return x
}

func drawDrain(t *rapid.T) *DrainReport {
	return &DrainReport{
		State:     rapid.SampledFrom([]DrainState{DrainEmpty, DrainEOF, DrainCut, DrainFailed}).Draw(t, "drain"),
		EndOffset: rapid.Int64Range(0, 100).Draw(t, "end"),
		Holders:   rapid.IntRange(0, 2).Draw(t, "holders"),
	}
}

func drawFailure(t *rapid.T) *Failure {
	return &Failure{Stage: rapid.SampledFrom([]string{"exec", "cwd"}).Draw(t, "stage"), Errno: 2, Message: "m"}
}

// drawSession is a session after some legal steps.
func drawSession(t *rapid.T) Durable {
	d := fresh()
	for range rapid.IntRange(0, 12).Draw(t, "steps") {
		legal := slices.DeleteFunc(Kinds(), func(k Kind) bool { return !Legal(d.State, k) })
		e := drawEvent(t)
		e.Kind = rapid.SampledFrom(legal).Draw(t, "legal kind")
		after, _, err := Step(d, e)
		if err != nil {
			t.Fatal(err)
		}
		d = after
	}
	return d
}

func asJSON(t *rapid.T, d Durable) string {
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkSession holds for every value that a session may have.
func checkSession(t *rapid.T, d Durable) {
	if d.ExitCode != nil && d.ExitSignal != 0 {
		t.Fatalf("exit code %d and signal %d at once", *d.ExitCode, d.ExitSignal)
	}
	if d.CoreDumped && d.ExitSignal == 0 {
		t.Fatal("a core dump without a signal")
	}
	if d.Started != (d.StartID != "") {
		t.Fatalf("started is %v with start id %q", d.Started, d.StartID)
	}
	complete := d.Record != nil && d.Record.Times.Ended != 0
	if d.State.Final() != complete {
		t.Fatalf("a session that is %s has the record %+v", d.State, d.Record)
	}
	if !complete {
		return
	}
	r := d.Record
	if !reflect.DeepEqual(r.ExitCode, d.ExitCode) || r.ExitSignal != d.ExitSignal || r.CoreDumped != d.CoreDumped {
		t.Fatalf("record %+v and snapshot %+v disagree about the end", r, d)
	}
	known := r.Result == ResultExited || r.Result == ResultSignalled
	if known != (d.ExitCode != nil || d.ExitSignal != 0) {
		t.Fatalf("result %s with code %v and signal %d", r.Result, d.ExitCode, d.ExitSignal)
	}
	if r.Times.Ended != d.Times.Ended {
		t.Fatalf("ended at %d in the record, %d in the snapshot", r.Times.Ended, d.Times.Ended)
	}
}

// checkForward holds between a value and any later one of the same session.
func checkForward(t *rapid.T, before, after Durable) {
	if after.Revision < before.Revision || after.Generation < before.Generation {
		t.Fatalf("went back from %d/%d to %d/%d", before.Revision, before.Generation, after.Revision, after.Generation)
	}
	if before.Started && !after.Started {
		t.Fatal("a started session is no longer started")
	}
	if before.Error != nil && !reflect.DeepEqual(before.Error, after.Error) {
		t.Fatalf("the execution's error %+v became %+v", before.Error, after.Error)
	}
	if before.ExitCode != nil && !reflect.DeepEqual(before.ExitCode, after.ExitCode) || before.ExitSignal != 0 && before.ExitSignal != after.ExitSignal {
		t.Fatal("a known end was lost or changed")
	}
	if before.State.Final() && (!after.State.Final() || !reflect.DeepEqual(before.Record, after.Record)) {
		t.Fatalf("the final record %+v became %+v in %s", before.Record, after.Record, after.State)
	}
}

func TestNoSequenceOfEventsBreaksASession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := fresh()
		var past []Durable
		var texts []string
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			past, texts = append(past, d), append(texts, asJSON(t, d))
			e := drawEvent(t)
			after, effects, err := Step(d, e)
			var refusal *StepError
			switch changed := !reflect.DeepEqual(d, after); {
			case err != nil && (!errors.As(err, &refusal) || changed || effects != nil):
				t.Fatalf("refused with %v, changed %v, effects %v", err, changed, effects)
			case !changed && effects != nil:
				t.Fatalf("%s changed nothing and has effects %v", e.Kind, effects)
			case changed && after.Revision != d.Revision+1:
				t.Fatalf("%s took revision %d to %d", e.Kind, d.Revision, after.Revision)
			}
			if became := after.State.Final() && !d.State.Final(); became != has(effects, Conclude) {
				t.Fatalf("%s: became final %v, effects %v", e.Kind, became, effects)
			}
			checkSession(t, after)
			checkForward(t, d, after)
			d = after
		}
		for i := range past { // published values are shared with readers
			if asJSON(t, past[i]) != texts[i] {
				t.Fatalf("a later step changed revision %d after it was published", past[i].Revision)
			}
		}
	})
}

// drawRecords is what an owner may have recorded until it was interrupted.
func drawRecords(t *rapid.T) []OutcomeRecord {
	at := noon
	var rs []OutcomeRecord
	add := func(r OutcomeRecord) {
		at++
		r.At = at
		rs = append(rs, r)
	}
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	add(OutcomeRecord{Launching: true})
	if yes("fails") {
		add(OutcomeRecord{Failure: drawFailure(t)})
		return rs
	}
	add(OutcomeRecord{Running: &Process{PID: 42, Start: 1, Boot: "b"}})
	switch rapid.IntRange(0, 3).Draw(t, "report") {
	case 1:
		add(OutcomeRecord{Report: &Report{Running: true}})
	case 2:
		add(OutcomeRecord{Report: &Report{Refused: drawFailure(t)}})
	case 3:
		add(OutcomeRecord{Report: &Report{Closed: true}})
	}
	for range rapid.IntRange(0, 3).Draw(t, "stops") {
		stopped := yes("stopped")
		add(OutcomeRecord{Stopped: &stopped})
		add(OutcomeRecord{Applied: "m"})
	}
	add(OutcomeRecord{Exit: drawExit(t)})
	add(OutcomeRecord{Drain: drawDrain(t)})
	add(OutcomeRecord{Consumed: true})
	return rs[:rapid.IntRange(0, len(rs)).Draw(t, "written")]
}

func drawEvidence(t *rapid.T) Evidence {
	ev := Evidence{
		OwnerHeld: rapid.Bool().Draw(t, "held"),
		SameBoot:  rapid.Bool().Draw(t, "same boot"),
		Output:    rapid.Int64Range(0, 100).Draw(t, "on disk"),
		Now:       noon + 5000,
	}
	if rapid.Bool().Draw(t, "outcome") {
		ev.Outcome = &Outcome{}
		for _, r := range drawRecords(t) {
			ev.Outcome.Add(r)
		}
	}
	return ev
}

func TestFoldingTwiceChangesNothingMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, ev := drawSession(t), drawEvidence(t)
		before := asJSON(t, d)
		once, _ := Fold(d, ev)
		checkSession(t, once)
		checkForward(t, d, once)
		twice, effects := Fold(once, ev)
		if !reflect.DeepEqual(once, twice) || effects != nil {
			t.Fatalf("a second fold of %+v gave %+v with %v", once, twice, effects)
		}
		if asJSON(t, d) != before {
			t.Fatal("folding changed its input")
		}
	})
}

func TestFoldingAfterAdvancingEqualsFolding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, ev := drawSession(t), drawEvidence(t)
		if ev.Outcome == nil {
			ev.Outcome = &Outcome{Launching: true}
		}
		said := *ev.Outcome
		said.Drain = said.Drain.until(ev.Output) // as a guardian measures it
		advanced, first := Advance(d, said, ev.Now)
		checkSession(t, advanced)
		checkForward(t, d, advanced)
		got, second := Fold(advanced, ev)
		want, effects := Fold(d, ev)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("advanced and folded:\n%+v\nfolded:\n%+v", got, want)
		}
		if !slices.Equal(append(first, second...), effects) {
			t.Fatalf("effects %v and %v, want %v", first, second, effects)
		}
	})
}

func TestFoldingNeverInventsAnEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, ev := drawSession(t), drawEvidence(t)
		got, _ := Fold(d, ev)
		learned := got.ExitCode != nil && d.ExitCode == nil || got.ExitSignal != 0 && d.ExitSignal == 0
		if learned && (ev.Outcome == nil || ev.Outcome.Exit == nil) {
			t.Fatalf("an end out of nothing: %+v", got)
		}
		if gone := !ev.OwnerHeld || !ev.SameBoot; gone && d.Started && !got.State.Final() {
			t.Fatalf("no owner is left and the session is %s", got.State)
		}
	})
}

func TestReplayingTheOwnersRecordsOneByOneEqualsReplayingTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := Event{Kind: Reserve, At: noon, ID: "a", Program: "sh"}
		if rapid.Bool().Draw(t, "capsule") {
			start.Program, start.Capsule = "", &Capsule{Name: "local/x"}
		}
		d, _, err := Step(fresh(), start)
		if err != nil {
			t.Fatal(err)
		}
		live, sum := d, Outcome{}
		for _, r := range drawRecords(t) {
			sum.Add(r)
			live, _ = Advance(live, sum, noon+5000)
		}
		folded, _ := Fold(d, Evidence{Outcome: &sum, OwnerHeld: true, SameBoot: true, Now: noon + 5000})
		if live.State != folded.State {
			t.Fatalf("watched it became %s, read afterwards %s", live.State, folded.State)
		}
		if !reflect.DeepEqual(live.ExitCode, folded.ExitCode) || !reflect.DeepEqual(live.Error, folded.Error) {
			t.Fatalf("watched %+v, read afterwards %+v", live, folded)
		}
	})
}

// timeless is d without what is only for people.
func timeless(d Durable) Durable {
	d.Times = Times{}
	if d.Record != nil {
		r := *d.Record
		r.Times = Times{}
		d.Record = &r
	}
	return d
}

func TestAClockThatIsSetChangesNoState(t *testing.T) {
	const day = 24 * 3600 * int64(1e9)
	rapid.Check(t, func(t *rapid.T) {
		here, there := fresh(), fresh()
		for i := range rapid.IntRange(0, 12).Draw(t, "steps") {
			legal := slices.DeleteFunc(Kinds(), func(k Kind) bool { return !Legal(here.State, k) })
			e := drawEvent(t)
			e.Kind = rapid.SampledFrom(legal).Draw(t, "legal kind")
			e.At = noon + int64(i) // never the same twice: that would be no change
			var effects, effects2 []Effect
			here, effects, _ = Step(here, e)
			e.At += day*rapid.Int64Range(-2, 2).Draw(t, "set by") + 1
			exit := *e.Exit
			exit.At += day * rapid.Int64Range(-2, 2).Draw(t, "exit set by")
			e.Exit = &exit
			there, effects2, _ = Step(there, e)
			if !reflect.DeepEqual(timeless(here), timeless(there)) || !slices.Equal(effects, effects2) {
				t.Fatalf("%s: %s with %v, and with the clock set %s with %v", e.Kind, asJSON(t, here), effects, asJSON(t, there), effects2)
			}
		}
	})
}
