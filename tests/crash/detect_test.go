package crash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// These tests show that each kind of fault is found. A sync that is missing is put
// into the real programs by the tracer: the call is not executed and returns 0,
// which is what a program without the call does. An order that is wrong cannot be
// put in from outside; the model has it.

func TestMissingSyncsAreFound(t *testing.T) {
	traced(t)
	for _, c := range []struct {
		name string
		fake func(tracer.Call) bool
		// finds are the complaints of which one has to come.
		finds []string
	}{
		{
			"of the journal's bytes",
			func(c tracer.Call) bool { return c.Role == "guardian" && c.Name == "fdatasync" },
			[]string{"has no receipt", "is behind the answer", "receipt is not complete"},
		},
		{
			"of the directories",
			func(c tracer.Call) bool { return c.Dir },
			[]string{"the session is gone", "has no receipt", "is behind the answer"},
		},
		{
			"of the outcome",
			func(c tracer.Call) bool {
				return c.Role == "owner" && (c.Name == "fsync" || c.Name == "fdatasync")
			},
			[]string{"executed more than once", "the target was executed", "final record said", "cannot read outcome", "exit is recorded"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, err := record(dir, "exit", c.fake)
			if err != nil {
				t.Fatal(err)
			}
			// The later the state, the more was promised in it.
			for i, s := range slices.Backward(r.states) {
				err := r.after(dir, s)
				if err != nil && mentions(err, c.finds) {
					t.Logf("found in state %d of %d: %v: %v", i+1, len(r.states), s, err)
					return
				}
			}
			t.Errorf("none of %d states shows that the syncs are missing", len(r.states))
		})
	}
}

func mentions(err error, any []string) bool {
	for _, text := range any {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func TestWrongOrdersAreFound(t *testing.T) {
	traced(t)
	for _, c := range []struct {
		order order
		finds string // empty: nothing is to be found
	}{
		{rightOrder, ""},
		{completeFirst, "answered with running, and nothing was ever executed"},
		{admitLate, "executed more than once"},
		{lockLate, "recorded as failed, and the target was executed"},
	} {
		t.Run(string(c.order), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			base, err := modelTrial(dir, c.order, tracer.Fault{})
			if err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			faults := kills(base.Calls)
			for i, f := range faults {
				_, err := modelTrial(dir, c.order, f)
				switch {
				case err == nil:
				case c.finds == "":
					t.Errorf("%v: %v", f, err)
				case strings.Contains(err.Error(), c.finds):
					t.Logf("found by fault %d of %d: %v: %v", i+1, len(faults), f, err)
					return
				}
			}
			if c.finds != "" {
				t.Errorf("none of %d faults shows that the order is wrong", len(faults))
			}
		})
	}
}

// kills lists all kills of the model's processes, one or all, once it has said
// that it is there.
func kills(calls []tracer.Call) []tracer.Fault {
	var out []tracer.Fault
	there := false
	for _, c := range calls {
		if c.Name == "say" {
			there = true
		}
		if !there || c.Name == "say" {
			continue
		}
		for _, alone := range []bool{false, true} {
			out = append(out,
				tracer.Fault{At: c.Site, Mode: tracer.KillBefore, One: alone},
				tracer.Fault{At: c.Site, Mode: tracer.KillAfter, One: alone})
		}
	}
	return out
}

func modelTrial(dir string, o order, f tracer.Fault) (*tracer.Result, error) {
	w, err := newWorld(dir, "exit")
	if err != nil {
		return nil, err
	}
	defer w.destroy()
	argv, env, err := errand{World: w, Model: o}.command()
	if err != nil {
		return nil, err
	}
	res, err := tracer.Run(tracer.Program{Argv: argv, Env: env, Root: w.Root}, f)
	if err != nil {
		return nil, err
	}
	said, err := acks(res.Stdout)
	if err != nil {
		return nil, err
	}
	for range 2 {
		cmd := exec.Command(argv[0])
		var errs bytes.Buffer
		cmd.Env, cmd.Stderr = env, &errs
		out, err := cmd.Output()
		if err != nil {
			return res, fmt.Errorf("it does not recover: %w: %s", err, errs.String())
		}
		again, err := acks(out)
		if err != nil {
			return res, err
		}
		said = append(said, again...)
	}
	// An owner that nobody waits for any more may still be about to act.
	if !eventually(leaving, func() bool { return len(w.modelProcesses()) == 0 }) {
		return res, fmt.Errorf("processes are left: %v", w.modelProcesses())
	}
	return res, w.modelVerdict(said)
}

// modelProcesses have the world in their environment.
func (w world) modelProcesses() []int {
	return processesWith(func(pid string) bool {
		env, _ := os.ReadFile("/proc/" + pid + "/environ")
		return bytes.Contains(env, []byte(w.Root+`"`))
	})
}

func (w world) modelVerdict(said []ack) error {
	lines, err := w.launched()
	if err != nil {
		return err
	}
	if len(lines) > 1 {
		return fmt.Errorf("the target was executed more than once: %v", lines)
	}
	said = slices.DeleteFunc(said, func(a ack) bool { return a.Verb == create })
	for _, a := range said {
		answer := string(a.Answer)
		switch {
		case answer != string(said[0].Answer):
			return fmt.Errorf("the start was answered with %q, and then with %q", said[0].Answer, answer)
		case answer == "running" && len(lines) == 0:
			return fmt.Errorf("the start was answered with running, and nothing was ever executed")
		case answer == "failed" && len(lines) > 0:
			return fmt.Errorf("the launch is recorded as failed, and the target was executed")
		}
	}
	return nil
}
