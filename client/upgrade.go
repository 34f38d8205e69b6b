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
	upgradeRounds = 20
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
		if v.GuardianLive {
			if runs(v.Guardian, program) {
				return nil
			}
			if err := s.dismiss(ctx, v.Guardian); err != nil {
				return err
			}
		}
		if !v.OwnerLive && v.Snapshot.State != StateNew && !unsettled(v) {
			r.Upgraded = v.GuardianLive
			return nil // whoever needs a guardian starts one of this version
		}
		ready, err := s.spawnGuardian(ctx)
		if err != nil {
			return err
		}
		if !ready.Already {
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

// dismiss asks a guardian to leave and waits until it has given the lock back.
func (s *Session) dismiss(ctx context.Context, id procs.Identity) error {
	conn, _, err := s.openStream(ctx, func(req uint64) any {
		return protocol.LeaveRequest{Head: protocol.Head{ID: req, Op: protocol.OpLeave}}
	})
	if err == nil {
		conn.Close()
	} else if !passing(err) {
		return err
	}
	within, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	for {
		now, held, err := s.dir.Holder(sessiondir.GuardianLock)
		if err != nil {
			return err
		}
		if !held || now != id {
			return nil
		}
		pause := lookPause
		if err := rest(within, &pause); err != nil {
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				return &Error{
					Code: CodeUnreachable, Retry: RetryLater, Hint: "mur recover --force --upgrade " + s.ID(),
					Message: fmt.Sprintf("guardian %d was asked to leave and is still there", id.PID),
				}
			}
			return err
		}
	}
}
