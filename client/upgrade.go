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
	// upgradeRounds bounds how often a guardian is asked to leave because somebody
	// else's was faster.
	upgradeRounds = 10
	// leavePatience bounds how long one may take to leave.
	leavePatience = 5 * time.Second
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
		Message: fmt.Sprintf("another guardian was faster %d times", upgradeRounds),
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
		return protocol.LeaveRequest{Head: protocol.Head{ID: id, Op: protocol.OpLeave}, Successor: true}
	})
	if err == nil {
		return conn.Close()
	}
	if passing(err) {
		return nil // it leaves already
	}
	return err
}

// succeed starts a guardian of ours after old was asked to leave, for which its
// owner waits a moment. false: somebody else's has the session.
func (s *Session) succeed(ctx context.Context, old procs.Identity) (won bool, err error) {
	within, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	pause := firstPause
	for {
		ready, err := s.spawnGuardian(ctx)
		switch {
		case err == nil && !ready.Already:
			return true, nil
		case err != nil && !errors.Is(err, errStillborn):
			return false, err
		}
		id, held, err := s.dir.Holder(sessiondir.GuardianLock)
		if err != nil {
			return false, err
		}
		if held && id != old && id != (procs.Identity{}) {
			return false, nil
		}
		if rest(within, &pause) == nil {
			continue
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return false, &Error{
			Code: CodeUnreachable, Retry: RetryLater, Hint: "mur recover --force --upgrade " + s.ID(),
			Message: fmt.Sprintf("guardian %d was asked to leave and is still there", old.PID),
		}
	}
}
