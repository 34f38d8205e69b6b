package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

func newSweepCmd(d *deps) *cobra.Command {
	var o mutation
	cmd := &cobra.Command{
		Use:   "sweep SESSION",
		Short: "end the target and every descendant (SIGKILL); print the report",
		Long: `Kills every process of the session until the kernel says that none is left, and
prints which there were. Also of a session that has ended.`,
		Args:              exactly(1),
		ValidArgsFunction: d.completeCurrent,
		RunE:              func(cmd *cobra.Command, args []string) error { return runSweep(cmd.Context(), d, args[0], o) },
	}
	o.register(cmd)
	return cmd
}

func runSweep(ctx context.Context, d *deps, name string, o mutation) error {
	return d.change(ctx, "sweep", name, &o, func(ctx context.Context, s *client.Session) error {
		r, err := s.Sweep(ctx, o.id)
		if err != nil {
			return err
		}
		warn(d, r)
		if err := d.printSweep(s, o, r); err != nil {
			return err
		}
		if r.Answer.Partial != "" {
			return fail(causeFailed, "mur show "+called(s), "%s", r.Answer.Partial)
		}
		return nil
	})
}

func (d *deps) printSweep(s *client.Session, m mutation, r client.Reply[client.SweepAnswer]) error {
	a := r.Answer
	if m.json {
		return writeJSON(d.stdout, struct {
			replyJSON
			Proved    bool   `json:"proved"`
			Processes any    `json:"processes"`
			Partial   string `json:"partial,omitempty"`
		}{replyHead(s, m, r), a.Proved, emptyNotNull(a), a.Partial})
	}
	if len(a.Processes) > 0 {
		rows := [][]string{{"PID", "NAME", "HOW", "SIGNAL", "GONE"}}
		for _, p := range a.Processes {
			gone := "no"
			if p.Gone {
				gone = "yes"
			}
			rows = append(rows, []string{strconv.Itoa(p.PID), printable(p.Name), p.How, sent(p.Signal), gone})
		}
		plain := func(_ int, _, padded string) string { return padded }
		if err := table(d.stdout, rows, plain); err != nil {
			return err
		}
	}
	proof := "not proved that none is left"
	if a.Proved {
		proof = "proved: none is left"
	}
	_, err := fmt.Fprintf(d.stdout, "processes: %d; %s\n", len(a.Processes), proof)
	return err
}

// sent names the signal that a process was sent; one that may be a stranger got none.
func sent(n int) string {
	if n == 0 {
		return "none, may be a stranger"
	}
	return signalName(n)
}

// emptyNotNull makes no processes a list without elements.
func emptyNotNull(a client.SweepAnswer) any {
	if len(a.Processes) == 0 {
		return []struct{}{}
	}
	return a.Processes
}
