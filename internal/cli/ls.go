package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type lsOptions struct {
	all   bool
	ended bool
	quiet bool
	json  bool
}

func newLsCmd(d *deps) *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"ps"},
		Short:   "list the sessions",
		Long: `One line a session, oldest first, read from the files: no guardian is started. An ID
is cut to what tells it from all others and can be used so; JSON has the whole.

Sessions that were retired and not purged are shown with --all only, also in JSON.`,
		Example: "  mur ls\n  mur ls -q --ended | xargs -r mur retire --purge",
		Args:    exactly(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runLs(cmd.Context(), d, o) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "retired sessions too")
	cmd.Flags().BoolVar(&o.ended, "ended", false, "only what waits to be retired: ended, launch-failed, lost")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print ids only, whole")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

// shows tells whether a session is among those asked for.
func (o lsOptions) shows(st client.Status) bool {
	if st.State == client.StateRetired {
		return o.all
	}
	return !o.ended || st.State.Final()
}

func runLs(ctx context.Context, d *deps, o lsOptions) error {
	c, err := d.existing()
	if err != nil {
		return err
	}
	var all []client.Status
	var unread error
	if c != nil {
		defer c.Close()
		all, unread = c.List(ctx)
		unread = cannot("list", "all sessions", unread)
	}
	short := shortIDs(all)
	shown := slices.DeleteFunc(slices.Clone(all), func(st client.Status) bool { return !o.shows(st) })
	switch {
	case len(shown) == 0 && unread == nil:
		d.sayNone(len(all), o)
	case o.quiet:
		for _, st := range shown {
			if _, err := fmt.Fprintln(d.stdout, st.Session); err != nil {
				return err
			}
		}
	case o.json:
		for _, st := range shown {
			if err := writeJSON(d.stdout, sessionAsJSON(st)); err != nil {
				return err
			}
		}
	default:
		if err := d.printSessions(shown, short); err != nil {
			return err
		}
		for _, st := range shown {
			if st.GuardianStopped {
				d.sayStopped(cmp.Or(st.Name, short[st.Session]), st.GuardianPID)
			}
		}
	}
	return unread
}

// sayNone says that there is nothing to list, and what is not listed.
func (d *deps) sayNone(others int, o lsOptions) {
	switch {
	case others > 0 && o.ended:
		d.say("no sessions to retire")
	case others > 0:
		d.say("no sessions but retired ones: mur ls --all shows them")
	case o.json || o.quiet:
		d.say("no sessions")
	default:
		d.say("no sessions; make one with: mur start -- bash")
	}
}

func (d *deps) printSessions(shown []client.Status, short map[string]string) error {
	rows := [][]string{{"NAME", "ID", "STATE", "TARGET", "PID", "ATTACHED", "AGE", "EXIT"}}
	for _, st := range shown {
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
			name, short[st.Session], string(st.State), targetOf(st.Snapshot), pid, attached,
			age(d.now().Sub(st.Created)), exitOf(st.Snapshot),
		})
	}
	paint := d.painter()
	line := 0
	return table(d.stdout, rows, func(column int, _, padded string) string {
		if column == 0 {
			line++
		}
		if column != stateColumn {
			return padded
		}
		return paint(shown[line-1].State, padded)
	})
}

// stateColumn is that of STATE.
const stateColumn = 2

// shortID is how much of an id is shown at least: ses_ and 12 digits.
const shortID = 4 + 12

// shortIDs cuts each id to a beginning that no other id has.
func shortIDs(all []client.Status) map[string]string {
	ids := make([]string, len(all))
	for i, st := range all {
		ids[i] = st.Session
	}
	slices.Sort(ids)
	out := make(map[string]string, len(ids))
	for i, id := range ids {
		n := shortID
		if i > 0 {
			n = max(n, common(id, ids[i-1])+1)
		}
		if i < len(ids)-1 {
			n = max(n, common(id, ids[i+1])+1)
		}
		out[id] = id[:min(n, len(id))]
	}
	return out
}

// common is the length of what two ids begin with.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
