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

// survivorPatience is how long a killed process may take to be gone.
const survivorPatience = time.Second

// survivors kills what is left of a session whose owner is gone: the members of
// the owner's kernel session. Those that have left it are missed, so it reports
// and proves nothing. No stranger is touched: the session's number is not given to
// a new process while it has a member (credentials(7)), a leader that lives is
// therefore somebody else's, and members are older than the target only there.
func survivors(d lifecycle.Durable) []protocol.Swept {
	swept := []protocol.Swept{}
	boot, err := procs.BootID()
	if err != nil || d.Target == nil || d.OwnerPID <= 1 || d.Target.Boot != boot {
		return swept
	}
	if _, err := procs.Of(d.OwnerPID); err == nil {
		return swept
	}
	pids, err := procs.SessionMembers(d.OwnerPID)
	if err != nil {
		return swept
	}
	for _, pid := range pids {
		if s, ok := killSurvivor(pid, d); ok {
			swept = append(swept, s)
		}
	}
	return swept
}

// killSurvivor kills one process through a pidfd, once it is sure that it still is
// a member of the session.
func killSurvivor(pid int, d lifecycle.Durable) (protocol.Swept, bool) {
	id, err := procs.Of(pid)
	if err != nil || pid == os.Getpid() || id.Start < d.Target.Start {
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
	ctx, cancel := context.WithTimeout(context.Background(), survivorPatience)
	defer cancel()
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
