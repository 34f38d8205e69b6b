package client

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// pulsePatience is how long a guardian may take to answer a status request,
	// which nothing in it delays.
	pulsePatience = time.Second
	// forcePatience is how long it then may take after it was continued.
	forcePatience = 5 * time.Second
	// settlePatience bounds the wait for what a new guardian has to ask the owner.
	settlePatience = 15 * time.Second
	// lookPause is the pause between two looks at a lock.
	lookPause = time.Millisecond
)

// RecoverOptions say how far a recovery may go.
type RecoverOptions struct {
	// Force: a guardian that holds the session's lock and does not answer is
	// continued and, if it still does not answer after 5 s, killed.
	Force bool
	// Upgrade: a living guardian leaves, and one of this version takes its place.
	Upgrade bool
}

// Recovery is what a recovery has done. Nothing of it set: there was nothing to do.
type Recovery struct {
	// Continued and Killed are the pid of a guardian that did not answer.
	Continued, Killed int
	// Started: a guardian was started where none lived.
	Started bool
	// Upgraded: the guardian was replaced by one of this version.
	Upgraded bool
	// Settled are operations whose outcome is known now and was not before;
	// Unsettled those of which it still is not.
	Settled, Unsettled []MutationID
	// Status is the session as it is now.
	Status Status
}

// Idle tells that there was nothing to do.
func (r *Recovery) Idle() bool {
	return r.Continued == 0 && r.Killed == 0 && !r.Started && !r.Upgraded && len(r.Settled) == 0
}

// Recover settles what a crash has left: where no guardian lives, and there is an
// owner without one, an operation without an outcome or an end that nobody has
// recorded, a guardian is started, which settles it. It never goes beside a
// guardian that holds the session's lock.
func (s *Session) Recover(ctx context.Context, o RecoverOptions) (Recovery, error) {
	var r Recovery
	before, err := s.dir.Read()
	if err != nil {
		return r, err
	}
	err = s.recover(ctx, o, before, &r)
	after, readErr := s.dir.Read()
	if readErr != nil {
		return r, errors.Join(err, readErr)
	}
	r.compare(before, after)
	r.Status = s.statusOf(after)
	if err == nil && len(r.Unsettled) > 0 && !r.Idle() {
		err = &Error{
			Code: CodeOwnerNotResponding, Retry: RetryLater, Hint: "mur op ls " + s.ID(),
			Message: fmt.Sprintf("the owner has not answered: the outcome of %d operations is still unknown", len(r.Unsettled)),
		}
	}
	return r, err
}

func (s *Session) recover(ctx context.Context, o RecoverOptions, v *sessiondir.View, r *Recovery) error {
	if v.GuardianLive {
		if err := s.ensurePulse(ctx, o.Force, r); err != nil {
			return err
		}
	}
	if o.Upgrade {
		return s.upgrade(ctx, r)
	}
	if v.GuardianLive && r.Killed == 0 || !unsettled(v) {
		return nil
	}
	if err := s.ensureGuardian(ctx); err != nil {
		return err
	}
	r.Started = r.Killed == 0
	return s.awaitSettled(ctx)
}

// unsettled tells whether a guardian would have something to do or to record.
func unsettled(v *sessiondir.View) bool {
	if v.OwnerLive || v.Snapshot.Revision != v.Committed {
		return true
	}
	for _, receipt := range v.Receipts {
		if !receipt.Done {
			return true
		}
	}
	return false
}

// compare finds which operations were settled between two looks.
func (r *Recovery) compare(before, after *sessiondir.View) {
	done := make(map[MutationID]bool)
	for _, receipt := range after.Receipts {
		done[receipt.ID] = receipt.Done
	}
	for _, receipt := range before.Receipts {
		switch {
		case receipt.Done:
		case done[receipt.ID]:
			r.Settled = append(r.Settled, receipt.ID)
		default:
			r.Unsettled = append(r.Unsettled, receipt.ID)
		}
	}
}

// awaitSettled waits until a new guardian serves and has asked the owner for what
// was under way.
func (s *Session) awaitSettled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	if _, err := s.pulse(ctx, settlePatience); err != nil {
		return err
	}
	err := s.follow(ctx, func(Status) (bool, error) {
		v, err := s.dir.Read()
		if err != nil {
			return true, err
		}
		for _, receipt := range v.Receipts {
			if !receipt.Done {
				return false, nil
			}
		}
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // what is left is told by who asked
	}
	return err
}

// ensurePulse makes sure that the guardian that holds the lock answers.
func (s *Session) ensurePulse(ctx context.Context, force bool, r *Recovery) error {
	answers, err := s.pulse(ctx, pulsePatience)
	if err != nil || answers {
		return err
	}
	if !force {
		return &Error{
			Code: CodeUnreachable, Retry: RetryLater, Hint: "mur recover --force " + s.ID(),
			Message: "its guardian holds the session's lock and does not answer",
		}
	}
	return s.force(ctx, r)
}

// pulse asks whoever holds the session's lock for its status. Nobody who holds it
// is as good as an answer: there is nothing to wait for.
func (s *Session) pulse(ctx context.Context, patience time.Duration) (answers bool, err error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := firstPause
	for {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		if err != nil {
			return false, err
		}
		if !held {
			return true, nil
		}
		conn, _, err := s.openStream(within, func(id uint64) any {
			return protocol.StatusRequest{Head: protocol.Head{ID: id, Op: protocol.OpStatus}}
		})
		if err == nil {
			conn.Close()
			return true, nil
		}
		var refused *Error
		if errors.As(err, &refused) {
			return true, nil
		}
		if rest(within, &pause) != nil {
			return false, ctx.Err()
		}
	}
}

// force ends a guardian that does not answer. It is identified by what it has
// noted in its lock, and only the very process that has the lock gets a signal.
func (s *Session) force(ctx context.Context, r *Recovery) error {
	id, held, err := s.noted(ctx)
	if err != nil || !held {
		return err
	}
	p, err := procs.Open(id)
	if errors.Is(err, procs.ErrGone) {
		return nil // just now, and its lock with it
	}
	if err != nil {
		return fmt.Errorf("cannot identify the guardian: %w", err)
	}
	defer p.Close()
	if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, procs.ErrGone) {
		return fmt.Errorf("cannot continue guardian %d: %w", id.PID, err)
	}
	if answers, err := s.pulse(ctx, forcePatience); err != nil || answers {
		if !p.Exited() {
			r.Continued = id.PID
		}
		return err
	}
	// Only who still has the lock is killed.
	if now, held, err := s.dir.Holder(sessiondir.GuardianLock); err != nil || !held || now != id {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, procs.ErrGone) {
		return fmt.Errorf("cannot kill guardian %d: %w", id.PID, err)
	}
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("cannot see the end of guardian %d: %w", id.PID, err)
	}
	r.Killed = id.PID
	return nil
}

// noted gives the holder of the session's lock, who may be about to note itself.
func (s *Session) noted(ctx context.Context) (id procs.Identity, held bool, err error) {
	within, cancel := context.WithTimeout(ctx, forcePatience)
	defer cancel()
	for {
		id, held, err = s.dir.Holder(sessiondir.GuardianLock)
		if err != nil || !held || id != (procs.Identity{}) {
			return id, held, err
		}
		pause := lookPause
		if rest(within, &pause) == nil {
			continue
		}
		if ctx.Err() != nil {
			return id, held, ctx.Err()
		}
		return id, held, &Error{
			Code: CodeUnreachable, Retry: RetryLater,
			Message: "somebody holds the session's lock and has not noted who it is: nobody is killed on suspicion",
		}
	}
}
