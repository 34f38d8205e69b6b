package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// upgradeRounds bounds how often a guardian is asked to leave because the owner
	// was faster with the executable that it has.
	upgradeRounds = 10
	// leavePatience bounds how long one may take to leave.
	leavePatience = 5 * time.Second
	// candidates of ours are started this often, and so many of them may be about.
	candidateEvery = 3 * time.Millisecond
	maxCandidates  = 3
)

// upgrade has a guardian of this version serve the session. From then on the
// owner starts the next ones from it.
func (s *Session) upgrade(ctx context.Context, r *Recovery) error {
	program, err := s.client.guardian()
	if err != nil {
		return s.spawnError(err)
	}
	for range upgradeRounds {
		v, err := s.dir.Read()
		if err != nil {
			return err
		}
		if v.GuardianLive && runs(v.Guardian, program) {
			return nil
		}
		needless := !v.OwnerLive && v.Snapshot.State != StateNew && !unsettled(v)
		if needless && !v.GuardianLive {
			return nil // whoever needs a guardian starts one of this version
		}
		if v.GuardianLive {
			if err := s.dismiss(ctx); err != nil {
				return err
			}
		}
		won, err := s.succeed(ctx, v.Guardian)
		if err != nil {
			return err
		}
		if won {
			r.Upgraded = true
			return s.awaitSettled(ctx)
		}
	}
	return &Error{
		Code: CodeBusy, Retry: RetryLater, Hint: "mur recover --upgrade " + s.ID(),
		Message: fmt.Sprintf("its owner was faster %d times and started the guardian that it has", upgradeRounds),
	}
}

// runs tells whether a process runs that very file. Whoever may not look at the
// process gets no.
func runs(id procs.Identity, program string) bool {
	if id == (procs.Identity{}) {
		return false
	}
	have, err := os.Stat("/proc/" + strconv.Itoa(id.PID) + "/exe")
	if err != nil {
		return false
	}
	want, err := os.Stat(program)
	return err == nil && os.SameFile(have, want)
}

// dismiss asks the guardian to leave.
func (s *Session) dismiss(ctx context.Context) error {
	conn, _, err := s.openStream(ctx, func(id uint64) any {
		return protocol.LeaveRequest{Head: protocol.Head{ID: id, Op: protocol.OpLeave}}
	})
	if err == nil {
		return conn.Close()
	}
	if passing(err) {
		return nil // it leaves already
	}
	return err
}

// race is the succession to one guardian, in which candidates of ours take part.
type race struct {
	s     *Session
	old   procs.Identity
	about int // candidates that have not answered yet
	ended chan candidate
	won   bool
	over  bool // no further candidate is of use
	err   error
}

// candidate is how a guardian of ours came out.
type candidate struct {
	ready protocol.Ready
	err   error
}

// succeed starts guardians until one has the session after old has left, or
// somebody else's has. The lock decides: one that finds it held leaves at once. A
// single one would mostly come too late, as an owner whose session writes starts
// the next from the executable that it has at the moment of the bye.
func (s *Session) succeed(ctx context.Context, old procs.Identity) (won bool, err error) {
	within, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	r := &race{s: s, old: old, ended: make(chan candidate, maxCandidates)}
	tick := time.NewTicker(candidateEvery)
	defer tick.Stop()
	done := within.Done()
	for !r.over || r.about > 0 {
		select {
		case <-tick.C:
			r.send(ctx)
		case c := <-r.ended:
			r.take(c)
		case <-done:
			r.over, done = true, nil
		}
	}
	switch {
	case r.won:
		return true, nil
	case r.err != nil:
		return false, r.err
	case ctx.Err() != nil:
		return false, ctx.Err()
	case within.Err() != nil:
		return false, &Error{
			Code: CodeUnreachable, Retry: RetryLater, Hint: "mur recover --force --upgrade " + s.ID(),
			Message: fmt.Sprintf("guardian %d was asked to leave and is still there", old.PID),
		}
	}
	return false, nil
}

// send starts one more candidate, if there still is something to win.
func (r *race) send(ctx context.Context) {
	id, held, err := r.s.dir.Holder(sessiondir.GuardianLock)
	if err != nil {
		r.over, r.err = true, err
	}
	if held && id != r.old && id != (procs.Identity{}) {
		r.over = true // one of ours, or the owner's
	}
	if r.over || r.about == maxCandidates {
		return
	}
	r.about++
	go func() {
		ready, err := r.s.spawnGuardian(ctx)
		r.ended <- candidate{ready, err}
	}()
}

func (r *race) take(c candidate) {
	r.about--
	switch {
	case c.err == nil && !c.ready.Already:
		r.won, r.over = true, true
	case c.err != nil && !errors.Is(c.err, errStillborn):
		r.err, r.over = c.err, true
	}
}
