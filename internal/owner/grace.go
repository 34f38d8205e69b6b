package owner

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// askers are the mutations that have reached the target: the last of each signal.
type askers struct {
	signals map[syscall.Signal]string
	term    string
}

func (a *askers) note(mutation string, sig syscall.Signal) {
	if a.signals == nil {
		a.signals = map[syscall.Signal]string{}
	}
	a.signals[sig] = mutation
}

// of is who asked for an end: who sent the signal of which the target died. One
// that exits may have handled any signal long before; only a term asks for that.
func (a *askers) of(exit *lifecycle.ExitStatus) string {
	if exit.Signal == 0 {
		return a.term
	}
	return a.signals[syscall.Signal(exit.Signal)]
}

// reaches tells whether a signal to the group reaches the target too.
func (o *owner) reaches(group protocol.SignalGroup) bool {
	if group != protocol.GroupForeground && group != "" {
		return true
	}
	foreground, err := ptmx.ForegroundGroup(o.in.master)
	if err != nil {
		return false
	}
	own, err := unix.Getpgid(o.target.pid)
	return err == nil && own == foreground
}

// grace is the time that a term has left the target. The owner keeps it, whatever
// becomes of guardians, and it ends with the target.
type grace struct {
	by    string // the mutation
	until time.Time
}

// beginGrace gives the target d, or leaves it less if it has less already; it
// returns what is new. 0 is no grace: nothing follows the term.
func (o *owner) beginGrace(by string, d time.Duration) *lifecycle.GracePeriod {
	until := time.Now().Add(d)
	if d <= 0 || !o.grace.until.IsZero() && o.grace.until.Before(until) {
		return nil
	}
	o.grace = grace{by, until}
	return &lifecycle.GracePeriod{By: by, Until: until.UnixNano()}
}

// escalate sweeps a session whose target has not ended in its grace.
func (o *owner) escalate() {
	by := o.grace.by
	o.grace = grace{}
	o.commit(lifecycle.OutcomeRecord{CleanupRequested: by})
	o.asked.note(by, syscall.SIGKILL)
	o.commit(lifecycle.OutcomeRecord{Consumed: o.sweep().Proved})
}
