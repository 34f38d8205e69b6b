package guardian

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// survivorPatience is how long all that is killed may take to be gone.
const survivorPatience = 3 * time.Second

// survivors kills what is left of a session whose owner is gone: the members of
// the owner's kernel session. Those that have left it are missed, so it reports
// and proves nothing. No stranger is touched: the session's number is not given to
// a new process while it has a member (credentials(7)), a leader that runs is
// therefore somebody else's, and members are older than the target only there.
func survivors(d lifecycle.Durable) []protocol.Swept {
	swept := []protocol.Swept{}
	boot, err := procs.BootID()
	if err != nil || d.Target == nil || d.OwnerPID <= 1 || d.Target.Boot != boot {
		return swept
	}
	// The dead owner may still be a zombie, which nobody has reaped.
	if leader, err := procs.Of(d.OwnerPID); err == nil && leader.Alive() {
		return swept
	}
	ctx, cancel := context.WithTimeout(context.Background(), survivorPatience)
	defer cancel()
	for {
		pids, err := procs.SessionMembers(d.OwnerPID)
		if err != nil {
			return swept
		}
		found := 0
		for _, pid := range pids {
			if s, ok := killSurvivor(ctx, pid, d); ok {
				found++
				swept = append(swept, s)
			}
		}
		if found == 0 || ctx.Err() != nil { // else one may have made another meanwhile
			return swept
		}
	}
}

// killSurvivor kills one process through a pidfd, once it is sure that it still is
// a member of the session.
func killSurvivor(ctx context.Context, pid int, d lifecycle.Durable) (protocol.Swept, bool) {
	id, err := procs.Of(pid)
	if err != nil || pid == os.Getpid() || id.Start < d.Target.Start || !id.Alive() {
		return protocol.Swept{}, false
	}
	p, err := procs.Open(id)
	if err != nil {
		return protocol.Swept{}, false
	}
	defer p.Close()
	name, _ := procs.Name(pid)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return protocol.Swept{}, false
	}
	gone := p.Wait(ctx) == nil
	return protocol.Swept{PID: pid, Name: name, How: "session", Signal: int(syscall.SIGKILL), Gone: gone}, true
}

// searched is what a sweep without an owner has found.
type searched struct {
	id    protocol.MutationID
	found []protocol.Swept
}

func (e searched) handle(s *session) {
	s.step(lifecycle.Event{Kind: lifecycle.Account})
	answer := s.sweptBefore(e.id)
	if answer.Proved {
		s.step(lifecycle.Event{Kind: lifecycle.Consume})
	}
	answer.Processes = e.found
	s.complete(e.id, answer)
}

// search completes a sweep that has no owner to ask, off the session's goroutine.
func (s *session) search(id protocol.MutationID) {
	d := s.state
	go func() { s.post(searched{id, survivors(d)}) }()
}
