package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type doctorOptions struct {
	json bool
}

func newDoctorCmd(d *deps) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "tell what this machine offers to mur, and what is missing",
		Long: `Tries what mur needs of the kernel, of the state directory and of the programs beside
it, and says of each whether it is ok, degraded (mur works, with less) or missing
(mur cannot run sessions), what was found, what that means and how to change it.
Whether sessions outlive your logout is told under login.

What is tried is taken back: nothing is left behind, and no session is touched. The
exit code is 0 unless something is missing.`,
		Example: "  mur doctor\n  mur doctor --json | jq -r 'select(.state != \"ok\") | .what + \": \" + .fix'",
		Args:    exactly(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), d, o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

// fitness is how well something serves mur.
type fitness string

const (
	fit      fitness = "ok"
	degraded fitness = "degraded" // mur works, with less
	lacking  fitness = "missing"  // mur cannot run sessions
)

// finding is what the doctor has to say about one thing.
type finding struct {
	What   string  `json:"what"`
	State  fitness `json:"state"`
	Found  string  `json:"found"`
	Effect string  `json:"effect"` // what is degraded because of it; empty: nothing
	Fix    string  `json:"fix"`
}

// worse is the finding about something that is not as it should be.
func worse(what string, state fitness, found, effect, fix string) finding {
	return finding{What: what, State: state, Found: found, Effect: effect, Fix: fix}
}

// judged is the finding about something that was tried.
func judged(what string, err error, state fitness, effect, fix string) finding {
	if err == nil {
		return finding{What: what, State: fit, Found: "works"}
	}
	return worse(what, state, err.Error(), effect, fix)
}

// unused is the finding about something that mur makes no use of yet: nothing is
// degraded, however it is.
func unused(f finding) finding {
	return finding{What: f.What, State: fit, Found: f.Found + "; this version of mur does not use it"}
}

func runDoctor(ctx context.Context, d *deps, o doctorOptions) error {
	all := slices.Concat(d.examinePrograms(ctx), examineKernel(), d.examinePlace(ctx), d.examineLogin())
	if o.json {
		for _, f := range all {
			err := writeJSON(d.stdout, struct {
				Schema int `json:"schema"`
				finding
			}{schema, f})
			if err != nil {
				return err
			}
		}
	} else if err := d.printFindings(all); err != nil {
		return err
	}
	return verdict(all)
}

// verdict is an error if mur cannot work at all.
func verdict(all []finding) error {
	i := slices.IndexFunc(all, func(f finding) bool { return f.State == lacking })
	if i < 0 {
		return nil
	}
	return fail(causeFailed, all[i].Fix, "cannot run sessions here: %s: %s", all[i].What, all[i].Found)
}

// printFindings prints a line for each, and then what is to be done.
func (d *deps) printFindings(all []finding) error {
	rows := [][]string{{"WHAT", "STATE", "FOUND"}}
	for _, f := range all {
		rows = append(rows, []string{f.What, string(f.State), printable(f.Found)})
	}
	paint := d.painter()
	err := table(d.stdout, rows, func(column int, cell, padded string) string {
		if column != fitnessColumn {
			return padded
		}
		return paint(likeState(fitness(cell)), padded)
	})
	for _, f := range all {
		if f.State == fit || err != nil {
			continue
		}
		_, err = fmt.Fprintf(d.stdout, "\n%s: %s\n  fix: %s\n", f.What, f.Effect, f.Fix)
	}
	return err
}

// fitnessColumn is that of STATE.
const fitnessColumn = 1

// likeState gives a session's state that has the colour wanted.
func likeState(f fitness) client.State {
	switch f {
	case fit:
		return client.StateRunning
	case degraded:
		return client.StateStopped
	default:
		return client.StateLost
	}
}
