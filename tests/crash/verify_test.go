package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// leaving is how long what is to go may take.
const leaving = 5 * time.Second

// judge is what has to hold after a fault.
type judge struct {
	world world
	acked []ack
	// executed are the targets that were executed before, as far as somebody else
	// than the targets themselves has seen them.
	executed []int
	// before is how many executions there were in a past whose processes are
	// forgotten.
	before int
	rounds int
}

// verdict looks at the files, then repeats everything, twice, and looks at what is
// left.
func (j judge) verdict() error {
	if err := promisesAgree(j.acked); err != nil {
		return fmt.Errorf("before the recovery: %w", err)
	}
	if err := j.files(); err != nil {
		return fmt.Errorf("the files after the fault: %w", err)
	}
	for round := 1; round <= j.rounds; round++ {
		now, err := j.repeat()
		if err == nil {
			err = j.launches(now)
		}
		if err != nil {
			return fmt.Errorf("recovery %d: %w", round, err)
		}
		// From here on the second answers count as well: they were given.
		j.acked = now
		if err := j.files(); err != nil {
			return fmt.Errorf("the files after recovery %d: %w", round, err)
		}
	}
	return nil
}

// promisesAgree looks at one client's answers: nothing goes back between two.
func promisesAgree(acked []ack) error {
	var last ack
	for _, a := range acked {
		if a.Revision == 0 || a.NotDurable || a.Ahead {
			continue // what the files cannot keep yet may be ahead of them
		}
		if a.Revision < last.Revision || a.Generation < last.Generation {
			return fmt.Errorf("%s is answered at revision %d of generation %d, after %s at %d of %d",
				a.Verb, a.Revision, a.Generation, last.Verb, last.Revision, last.Generation)
		}
		if err := notUndone(last, a.State, a.Result); err != nil {
			return fmt.Errorf("%s: %w", a.Verb, err)
		}
		last = a
	}
	return nil
}

// notUndone: what has ended stays ended, in the same way.
func notUndone(last ack, state client.State, result string) error {
	if last.State.Final() && !state.Final() {
		return fmt.Errorf("the session was %s and is %s again", last.State, state)
	}
	if last.Result != "" && last.Result != result {
		return fmt.Errorf("the final record said %q and says %q", last.Result, result)
	}
	return nil
}

// files judges what can be read without a guardian.
func (j judge) files() error {
	d, err := sessiondir.Open(j.world.session())
	if errors.Is(err, sessiondir.ErrNotFound) || errors.Is(err, syscall.ENOENT) {
		if len(j.acked) > 0 && j.acked[0].promised() {
			return fmt.Errorf("the session is gone: %w", err)
		}
		return nil // it never came to be
	}
	if err != nil {
		return err
	}
	defer d.Close()
	v, err := d.Read()
	if err != nil {
		return err
	}
	if err := j.snapshot(v); err != nil {
		return err
	}
	return j.receipts(v.Receipts)
}

func (j judge) snapshot(v *sessiondir.View) error {
	s := v.Snapshot
	switch {
	case !slices.Contains(lifecycle.States(), s.State):
		return fmt.Errorf("the state %q is none", s.State)
	case s.State.Final() && s.Record == nil && s.Started:
		return fmt.Errorf("the session is %s without a final record", s.State)
	case s.State == lifecycle.Lost && v.OwnerLive:
		return errors.New("the session is lost, and its owner lives")
	case !s.State.Final() && s.State != lifecycle.New && !v.OwnerLive && !v.GuardianLive:
		return fmt.Errorf("the session is %s and nobody lives who could end it", s.State)
	}
	for _, a := range j.acked {
		if a.NotDurable || a.Ahead {
			continue
		}
		if s.Revision < a.Revision || s.Generation < a.Generation {
			return fmt.Errorf("revision %d of generation %d is behind the answer to %s at %d of %d",
				s.Revision, s.Generation, a.Verb, a.Revision, a.Generation)
		}
		var now ack
		now.of(&client.Snapshot{Durable: s})
		if err := notUndone(a, s.State, now.Result); err != nil {
			return err
		}
	}
	return nil
}

// receipts: each answered mutation has one, with the very bytes of its answer.
func (j judge) receipts(have []receipts.Receipt) error {
	kept := map[protocol.MutationID]receipts.Receipt{}
	for _, r := range have {
		kept[r.ID] = r
	}
	for _, a := range j.acked {
		if !a.Verb.mutation() || !a.promised() {
			continue
		}
		r, ok := kept[j.world.scenario().op(a.Step)]
		switch {
		case !ok:
			return fmt.Errorf("%s was answered and has no receipt", a.Verb)
		case !r.Done:
			return fmt.Errorf("%s was answered and its receipt is not complete", a.Verb)
		case !bytes.Equal(r.Response, a.Answer):
			return fmt.Errorf("the receipt of %s has another answer than was given: %x, not %x", a.Verb, r.Response, a.Answer)
		}
	}
	return nil
}

// repeat does what a client does that does not know how far the last one came.
func (j judge) repeat() ([]ack, error) {
	p, err := newPlayer(j.world, patience)
	if err != nil {
		return nil, err
	}
	defer p.close()
	before := map[int]ack{}
	for _, a := range j.acked {
		before[a.Step] = a
	}
	var out []ack
	woken := false
	for i, v := range j.world.scenario().steps {
		if v == killBoth || v == killGuardian {
			continue
		}
		a := p.play(i)
		if err := j.same(before[i], a); err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
		out = append(out, a)
		woken = v == retire && a.Replayed || woken
	}
	if err := promisesAgree(out); err != nil {
		return nil, err
	}
	p.close()
	p.session = nil
	return out, j.nothingLeft(woken)
}

// same compares an answer with the one that was given before, if it was.
func (j judge) same(before, now ack) error {
	promised := before.Verb != "" && before.promised()
	switch {
	case now.Code == string(client.CodeNotRunning) && now.Verb == signal && !promised:
		return nil // the session ended without it
	case now.Refused != "":
		return fmt.Errorf("it is refused: %s", now.Refused)
	case !promised:
		return nil
	case !bytes.Equal(before.Answer, now.Answer):
		return fmt.Errorf("the answer is another one: %x, not %x", now.Answer, before.Answer)
	case before.Verb.mutation() && !now.Replayed:
		return errors.New("it was answered before and is done again")
	case before.Ahead:
		return nil
	case now.Revision < before.Revision || now.Generation < before.Generation:
		return fmt.Errorf("revision %d of generation %d is behind an answer at %d of %d",
			now.Revision, now.Generation, before.Revision, before.Generation)
	}
	return notUndone(before, now.State, now.Result)
}

// nothingLeft after the retirement. A guardian that was woken only to repeat an
// old answer would stay for a while; it is told to go.
func (j judge) nothingLeft(woken bool) error {
	if woken {
		if err := j.world.kill(syscall.SIGTERM, sessiondir.GuardianLock); err != nil {
			return err
		}
	}
	d, err := sessiondir.Open(j.world.session())
	if err != nil {
		return err
	}
	defer d.Close()
	for _, lock := range []string{sessiondir.OwnerLock, sessiondir.GuardianLock} {
		free := eventually(leaving, func() bool {
			_, held, lockErr := d.Holder(lock)
			err = lockErr
			return !held
		})
		if err != nil || !free {
			return fmt.Errorf("%s is held after the retirement (%v), of the session there are %s", lock, err, describe(j.world.processes()))
		}
	}
	if path, err := j.world.group(); err != nil || path != "" && !eventually(leaving, func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	}) {
		return fmt.Errorf("the control group %s is left after the retirement, %v", path, err)
	}
	var left []int
	if !eventually(leaving, func() bool {
		left = j.world.processes()
		return len(left) == 0
	}) {
		return fmt.Errorf("processes are left after the retirement: %s", describe(left))
	}
	return nil
}

// launches: one execution, whoever has seen it, and not none if it was promised.
func (j judge) launches(now []ack) error {
	lines, err := j.world.launched()
	if err != nil {
		return err
	}
	seen := slices.Concat(lines, j.executed)
	slices.Sort(seen)
	seen = slices.Compact(seen)
	if len(seen)+j.before > 1 || len(lines) > 1 {
		return fmt.Errorf("the target was executed more than once: processes %v, and %d before", seen, j.before)
	}
	for _, a := range slices.Concat(j.acked, now) {
		switch {
		case a.Running && len(seen)+j.before == 0:
			return errors.New("the start was answered with running, and nothing was ever executed")
		case a.Verb == end && a.State == lifecycle.LaunchFailed && len(lines)+j.before > 0:
			return errors.New("the launch is recorded as failed, and the target was executed")
		case a.Result == "exited 7 0" && len(lines)+j.before != 1:
			return errors.New("the target's exit is recorded, and it never ran")
		}
	}
	return nil
}
