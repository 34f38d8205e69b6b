package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/sessiondir"
	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// sampleTime is how long a sample of the matrix may take.
const sampleTime = 20 * time.Second

// program is the driver under the tracer.
func program(w world, f tracer.Fault) (tracer.Program, error) {
	e := errand{World: w, Patience: patience}
	if f.Sticky {
		e.Patience = brokenPatience
	}
	argv, env, err := e.command()
	return tracer.Program{
		Argv: argv, Env: env, Root: w.Root,
		Roles: map[string]string{"mur-guardian": "guardian", "mur-owner": "owner"},
	}, err
}

// trial is one run with one fault, and its judgement.
type trial struct {
	scenario scenario
	fault    tracer.Fault
}

func (tr trial) String() string { return tr.scenario.name + ": " + tr.fault.String() }

func (tr trial) run(dir string) (*tracer.Result, error) {
	w, err := newWorld(dir, tr.scenario.name)
	if err != nil {
		return nil, err
	}
	defer w.destroy()
	if tr.scenario.prepare != nil {
		if err := tr.scenario.prepare(w); err != nil {
			return nil, err
		}
	}
	p, err := program(w, tr.fault)
	if err != nil {
		return nil, err
	}
	res, err := tracer.Run(p, tr.fault)
	if err != nil {
		return nil, err
	}
	said, err := acks(res.Stdout)
	if err == nil {
		err = tr.finished(res, said)
	}
	if err != nil {
		return res, err
	}
	if err = (judge{world: w, acked: said, executed: res.Others, rounds: 2}).verdict(); err != nil {
		log, _ := os.ReadFile(filepath.Join(w.session(), sessiondir.GuardianLog))
		err = fmt.Errorf("%w\nthe driver said:\n%s\nguardian.log:\n%s", err, res.Stdout, log)
	}
	return res, err
}

// finished: a client that was not killed is answered, whoever else was. Only a
// call that failed may be a reason to refuse.
func (tr trial) finished(res *tracer.Result, said []ack) error {
	killed := tr.fault.Mode != tracer.None && tr.fault.Mode != tracer.Fail && res.Fired
	switch {
	case res.Late:
		return fmt.Errorf("it was not over in time; answered: %+v", said)
	case tr.fault.Mode == tracer.Fail && !tr.fault.Sticky && len(said) > 0 && said[len(said)-1].Late:
		return fmt.Errorf("after one failure the client waited in vain: %+v", said[len(said)-1])
	case killed && (!tr.fault.One || tr.fault.At.Role == tracer.Client), tr.fault.Mode == tracer.Fail && res.Fired:
		return nil
	case res.Exit != 0:
		return fmt.Errorf("the driver was not answered (exit %d, %v, fault reached: %v): %s%s",
			res.Exit, res.Signal, res.Fired, res.Stdout, res.Stderr)
	}
	return nil
}

// faults lists all that can happen at the calls of a recorded run.
func (s scenario) faults(calls []tracer.Call) []trial {
	said := 0
	var out []trial
	add := func(f tracer.Fault) { out = append(out, trial{s, f}) }
	for _, c := range calls {
		if c.Name == "say" {
			said++
			continue
		}
		if said < s.from {
			continue
		}
		for _, alone := range []bool{false, true} {
			add(tracer.Fault{At: c.Site, Mode: tracer.KillBefore, One: alone})
			add(tracer.Fault{At: c.Site, Mode: tracer.KillAfter, One: alone})
			if c.Name == "write" && len(c.Data) > 1 {
				add(tracer.Fault{At: c.Site, Mode: tracer.Torn, One: alone})
			}
		}
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			if tracer.Failable(c.Name, errno) {
				add(tracer.Fault{At: c.Site, Mode: tracer.Fail, Errno: errno})
				add(tracer.Fault{At: c.Site, Mode: tracer.Fail, Errno: errno, Sticky: true})
			}
		}
	}
	return out
}

// report sums up a matrix.
type report struct {
	mu       sync.Mutex
	run      int
	missed   int
	slow     []string
	failures []string
}

// TestMatrix runs each scenario without a fault, and then with each, or with a
// sample of them.
func TestMatrix(t *testing.T) {
	traced(t)
	dir := t.TempDir()
	var all []trial
	for _, s := range scenarios() {
		if s.from >= len(s.steps) {
			continue
		}
		res, err := trial{scenario: s}.run(dir)
		if err != nil {
			t.Fatalf("%s, without a fault: %v", s.name, err)
		}
		list := s.faults(res.Calls)
		t.Logf("%s: %d calls, %d faults", s.name, len(res.Calls), len(list))
		all = append(all, list...)
	}
	if only := os.Getenv(onlyVar); only != "" {
		all = slices.DeleteFunc(all, func(tr trial) bool { return tr.String() != only })
	}
	n := seed(t)
	rand.New(rand.NewPCG(n, n)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	r := runTrials(t, dir, all)
	t.Logf("faults: %d of %d run, %d not reached, %d failures", r.run, len(all), r.missed, len(r.failures))
	slices.Sort(r.slow)
	t.Logf("the slowest:\n%s", strings.Join(r.slow[max(0, len(r.slow)-10):], "\n"))
	slices.Sort(r.failures)
	for _, f := range r.failures {
		t.Error(f)
	}
}

func runTrials(t *testing.T, dir string, all []trial) *report {
	r := &report{}
	work := make(chan trial)
	var workers sync.WaitGroup
	for range 3 * runtime.NumCPU() { // they wait most of the time
		workers.Go(func() {
			for tr := range work {
				began := time.Now()
				res, err := tr.run(dir)
				r.add(tr, res, err, time.Since(began))
			}
		})
	}
	var over <-chan time.Time
	if !full() {
		over = time.After(sampleTime)
	}
	began := time.Now()
feeding:
	for i, tr := range all {
		select {
		case work <- tr:
		case <-over:
			break feeding
		}
		if full() && i%500 == 499 {
			t.Logf("%d of %d after %v", i+1, len(all), time.Since(began).Round(time.Second))
		}
	}
	close(work)
	workers.Wait()
	return r
}

func (r *report) add(tr trial, res *tracer.Result, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run++
	r.slow = append(r.slow, fmt.Sprintf("%6.2f s %v", took.Seconds(), tr))
	if res != nil && !res.Fired {
		r.missed++
	}
	if err != nil {
		r.failures = append(r.failures, fmt.Sprintf("%v: %v", tr, err))
	}
}
