package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/sessiondir"
	"github.com/seed-8e62c83d/mur/tests/crash/internal/powerloss"
	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// samplePowerTime is how long a sample of one scenario's states may take.
const samplePowerTime = 2 * time.Second

// earlierBoot is a boot of the machine that never was.
const earlierBoot = "00000000-0000-4000-8000-00000000dead"

// recording is a run and the states that a power loss in it could leave.
type recording struct {
	world  world
	states []powerloss.State
	// executed is the number of calls after which the target may have been
	// executed.
	executed int
}

// volatile are files that promise nothing and are not read back: whatever is in
// them, a state is the same.
func volatile() []string {
	return []string{sessiondir.GuardianLog, sessiondir.GuardianSocket, sessiondir.OwnerSocket, "lock"}
}

// record runs a scenario once, as if the machine were to be restarted after it.
func record(dir, name string, fake func(tracer.Call) bool) (*recording, error) {
	w, err := newWorld(dir, name)
	if err != nil {
		return nil, err
	}
	if prepare := w.scenario().prepare; prepare != nil {
		if err := prepare(w); err != nil {
			return nil, err
		}
	}
	begun, err := powerloss.Begin(w.Root)
	if err != nil {
		return nil, err
	}
	p, err := program(w, tracer.Fault{})
	if err != nil {
		return nil, err
	}
	p.Boot, p.Fake = earlierBoot, fake
	res, err := tracer.Run(p, tracer.Fault{})
	if err != nil {
		return nil, err
	}
	if res.Exit != 0 || len(res.Survivors) > 0 {
		return nil, fmt.Errorf("the run to be recorded ended with %d, processes left %v: %s%s", res.Exit, res.Survivors, res.Stdout, res.Stderr)
	}
	r := &recording{world: w, executed: len(res.Calls)}
	recorded := false // that it is about to launch; a fork before is no launch
	for i, c := range res.Calls {
		recorded = recorded || c.Role == "owner" && c.Name == "rename" && filepath.Base(c.Path2) == sessiondir.OutcomeFile
		if recorded && c.Role == "owner" && c.Name == "fork" {
			r.executed = i
			break
		}
	}
	begun.States(res.Calls, volatile(), func(s powerloss.State) { r.states = append(r.states, s) })
	return r, nil
}

// after judges what a client finds in one state.
func (r *recording) after(dir string, s powerloss.State) error {
	acked, err := acks(s.Said)
	if err != nil {
		return err
	}
	base, err := os.MkdirTemp(dir, "state-")
	if err != nil {
		return err
	}
	w := r.world
	w.Root = filepath.Join(base, "state")
	defer w.destroy()
	if err := os.Mkdir(w.Root, 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(w.Launches); err != nil {
		return err
	}
	if err := s.Lay(w.Root); err != nil {
		return err
	}
	j := judge{world: w, acked: acked, rounds: 2}
	if s.Began > r.executed {
		j.before = 1
	}
	return j.verdict()
}

// TestPowerLoss lays out every distinct state that a power loss could leave.
func TestPowerLoss(t *testing.T) {
	traced(t)
	for _, name := range []string{"exit", "term", "compact", "recover", "adopt", "sweep"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, err := record(dir, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := seed(t)
			rand.New(rand.NewPCG(n, n)).Shuffle(len(r.states), func(i, j int) {
				r.states[i], r.states[j] = r.states[j], r.states[i]
			})
			seen, failures := r.judgeAll(dir, samplePowerTime)
			t.Logf("power loss: %d of %d states, %d failures", seen, len(r.states), len(failures))
			if len(failures) > 0 {
				t.Error(strings.Join(failures, "\n"))
			}
		})
	}
}

// judgeAll judges the states in order, a sample no longer than limit.
func (r *recording) judgeAll(dir string, limit time.Duration) (seen int, failures []string) {
	began := time.Now()
	for _, s := range r.states {
		if !full() && time.Since(began) > limit {
			break
		}
		seen++
		if err := r.after(dir, s); err != nil {
			failures = append(failures, fmt.Sprintf("%v: %v", s, err))
		}
	}
	return seen, failures
}
