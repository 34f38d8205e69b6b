package guardian

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// maxSurvivors bounds a report.
const maxSurvivors = 256

// survivorPatience is how long all that is killed may take to be gone.
const survivorPatience = 3 * time.Second

// remains is what is known of the processes of a session whose owner is gone: they
// are in its control group, if it has one, or members of the owner's kernel session.
// Those that have left that are missed, so a sweep of them proves nothing.
//
// The number of a kernel session is the pid of the owner. It is not given to a new
// process while the session has a member (credentials(7)), but then it may be, and to
// one that begins a session too. So a member is touched only when the number cannot
// have been used again: a member of before the owner's end has kept it, or, where
// nobody saw that end, the machine has by far not made as many processes since the
// owner as there are numbers.
type remains struct {
	of   lifecycle.Durable
	born uint64        // procs.Forks before the owner was made; 0: not known
	gone time.Duration // when its end was seen, since the machine's boot; 0: it was not
}

func (s *session) remains() remains {
	born, err := s.dir.OwnerBorn()
	if err != nil {
		s.log.Warn("cannot read the owner's note", "error", err)
	}
	return remains{s.state, born, s.ownerGone}
}

// sameBoot tells that the machine was not restarted since the target began.
func (r remains) sameBoot() bool {
	boot, err := procs.BootID()
	return err == nil && r.of.Target != nil && r.of.Target.Boot == boot
}

// sweepRemains kills what is left of the session. It is proved where the processes had
// a control group and it is empty now. One at a time: what another kills meanwhile
// would be missing in the report.
func (s *session) sweepRemains(r remains) (swept []protocol.Swept, proved bool) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	grouped, proved := s.sweepGroup()
	for _, one := range r.sweepSession() {
		proved = proved && (one.Gone || one.Signal == 0) // named only: a stranger, perhaps
		grouped = append(grouped, one)
	}
	return grouped, proved
}

// sweepGroup kills what is in the control group. The group stays until the session is
// retired: a further sweep proves it again.
func (s *session) sweepGroup() (swept []protocol.Swept, empty bool) {
	swept = []protocol.Swept{}
	g, err := s.dir.Group()
	if err != nil || g == nil {
		return swept, false // its owner has taken it away, which proves nothing
	}
	defer g.Close()
	pids, _ := g.Members()
	for _, pid := range pids {
		if id, err := procs.Of(pid); err == nil && len(swept) < maxSurvivors {
			one := named(id)
			one.How, one.Signal = "group", int(syscall.SIGKILL)
			swept = append(swept, one)
		}
	}
	if g.Kill() != nil || !groupEmptied(g) {
		return swept, false
	}
	for i := range swept {
		swept[i].Gone = true
	}
	return swept, true
}

// grouped are the processes in the control group.
func (s *session) grouped() []int {
	g, err := s.dir.Group()
	if err != nil || g == nil {
		return nil
	}
	defer g.Close()
	pids, _ := g.Members()
	return pids
}

// dissolveGroup takes the control group away that a dead owner has left. It waits for
// a sweep that counts what is in it.
func (s *session) dissolveGroup() {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if err := s.dir.DissolveGroup(); err != nil {
		s.log.Warn("a control group is left", "error", err)
	}
}

// emptyPause is between two looks whether a killed group is empty.
const emptyPause = 2 * time.Millisecond

func groupEmptied(g *cgroup.Group) bool {
	for over := time.Now().Add(survivorPatience); time.Now().Before(over); <-time.After(emptyPause) {
		if populated, err := g.Populated(); err != nil || !populated {
			return err == nil
		}
	}
	return false
}

// sweepSession kills the members of the kernel session, or only names them: signal 0.
func (r remains) sweepSession() []protocol.Swept {
	swept := []protocol.Swept{}
	if r.of.OwnerPID <= 1 || !r.sameBoot() {
		return swept
	}
	// The dead owner may still be a zombie, which nobody has reaped. A leader that
	// runs is somebody else.
	if leader, err := procs.Of(r.of.OwnerPID); err == nil && leader.Alive() {
		return swept
	}
	ctx, cancel := context.WithTimeout(context.Background(), survivorPatience)
	defer cancel()
	for {
		members := r.members()
		if !r.ours(members) {
			for _, id := range members {
				swept = append(swept, named(id))
			}
			return swept
		}
		found := 0
		for _, id := range members {
			if s, ok := killMember(ctx, id); ok {
				found++
				swept = append(swept, s)
			}
		}
		if found == 0 || ctx.Err() != nil { // else one may have made another meanwhile
			return swept
		}
	}
}

// members are the processes with the session's number that are not older than the
// target.
func (r remains) members() (ids []procs.Identity) {
	pids, err := procs.SessionMembers(r.of.OwnerPID)
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		id, err := procs.Of(pid)
		if err == nil && pid != os.Getpid() && id.Start >= r.of.Target.Start && id.Alive() {
			ids = append(ids, id)
		}
	}
	return ids
}

// ours tells whether the members cannot be another session's.
func (r remains) ours(members []procs.Identity) bool {
	if r.gone > 0 {
		// Born is rounded down.
		return slices.ContainsFunc(members, func(id procs.Identity) bool { return id.Born()+procs.BornWithin <= r.gone })
	}
	forks, err := procs.Forks()
	most, err2 := procs.MaxPID()
	return err == nil && err2 == nil && r.born > 0 && forks-r.born < most/2
}

func named(id procs.Identity) protocol.Swept {
	name, _ := procs.Name(id.PID)
	return protocol.Swept{PID: id.PID, Name: strings.ToValidUTF8(name, "?"), How: "session"}
}

// killMember kills one process, and nobody who has its pid later.
func killMember(ctx context.Context, id procs.Identity) (protocol.Swept, bool) {
	p, err := procs.Open(id)
	if err != nil {
		return protocol.Swept{}, false
	}
	defer p.Close()
	s := named(id)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return s, false
	}
	s.Signal, s.Gone = int(syscall.SIGKILL), p.Wait(ctx) == nil
	return s, true
}

// searched is what a sweep without an owner has found.
type searched struct {
	id     protocol.MutationID
	found  []protocol.Swept
	proved bool
}

func (e searched) handle(s *session) {
	s.step(lifecycle.Event{Kind: lifecycle.Account})
	answer := s.sweptBefore(e.id)
	withFound(&answer, e.found, e.proved)
	if answer.Proved {
		s.step(lifecycle.Event{Kind: lifecycle.Consume})
	}
	s.complete(e.id, answer)
}

func withFound(a *protocol.SweepAnswer, found []protocol.Swept, proved bool) {
	a.Processes = found
	if proved {
		a.Proved, a.Partial = true, ""
	}
}

// search completes a sweep that has no owner to ask, off the session's goroutine.
func (s *session) search(id protocol.MutationID) {
	r := s.remains()
	go func() {
		found, proved := s.sweepRemains(r)
		s.post(searched{id, found, proved})
	}()
}
