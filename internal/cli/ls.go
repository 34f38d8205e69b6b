package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
)

type lsOptions struct {
	json bool
}

func newLsCmd(d *deps) *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"ps"},
		Short:   "list the sessions",
		Long:    "One line a session, oldest first, read from the files: no guardian is started.",
		Args:    exactly(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runLs(cmd.Context(), d, o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func runLs(ctx context.Context, d *deps, o lsOptions) error {
	c, err := d.client()
	if err != nil {
		return err
	}
	all, unread := c.List(ctx)
	unread = cannot("list", "all sessions", unread)
	if len(all) == 0 && unread == nil && !o.json {
		d.say("no sessions; make one with: mur start -- bash")
		return nil
	}
	if o.json {
		for _, st := range all {
			if err := writeJSON(d.stdout, sessionAsJSON(st)); err != nil {
				return err
			}
		}
		if len(all) == 0 && unread == nil {
			d.say("no sessions")
		}
		return unread
	}
	rows := [][]string{{"NAME", "ID", "STATE", "TARGET", "PID", "ATTACHED", "AGE", "EXIT"}}
	for _, st := range all {
		pid, attached := "-", "-"
		if st.TargetPID != 0 && st.State.Alive() {
			pid = strconv.Itoa(st.TargetPID)
		}
		if n := attachedOf(st); n != nil {
			attached = strconv.Itoa(*n)
		}
		name := st.Name
		if name == "" {
			name = "-"
		}
		rows = append(rows, []string{
			name, st.Session, string(st.State), targetOf(st.Snapshot), pid, attached, age(d.now().Sub(st.Created)), exitOf(st.Snapshot),
		})
	}
	paint := d.painter()
	line := 0
	err = table(d.stdout, rows, func(column int, _, padded string) string {
		if column == 0 {
			line++
		}
		if column != stateColumn {
			return padded
		}
		return paint(all[line-1].State, padded)
	})
	if err != nil {
		return err
	}
	return unread
}

// stateColumn is that of STATE.
const stateColumn = 2
