package cli

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type watchOptions struct {
	all   bool
	since uint64
	json  bool
}

func newWatchCmd(d *deps) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch SESSION|--all",
		Short: "tell what happens to a session, as it happens",
		Long: `Prints the session's snapshots as they happen, each revision at most once and in
order, and ends after the first with the final record. With --all those of every
session, until it is interrupted.`,
		Example:           "  mur watch --json work\n  mur watch --all",
		ValidArgsFunction: d.completeSessions,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.all {
				return exactly(0)(cmd, args)
			}
			return exactly(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runWatch(cmd.Context(), d, args, o) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "all sessions, also those made later")
	cmd.Flags().Uint64Var(&o.since, "since", 0, "only revisions after this `revision`")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func runWatch(ctx context.Context, d *deps, args []string, o watchOptions) error {
	var stream iter.Seq2[client.Status, error]
	what := "all sessions"
	if o.all {
		if o.since != 0 {
			return usage("cannot use --since with --all: each session counts for itself")
		}
		c, err := d.client()
		if err != nil {
			return err
		}
		stream = c.WatchAll(ctx)
	} else {
		what = args[0]
		s, err := d.session("watch", what)
		if err != nil {
			return err
		}
		defer s.Close()
		stream = s.Watch(ctx, o.since)
	}
	paint := d.painter()
	for st, err := range stream {
		if err != nil {
			return cannot("watch", what, err)
		}
		if o.json {
			err = writeJSON(d.stdout, sessionAsJSON(st))
		} else {
			err = d.printEvent(st, o.all, paint)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *deps) printEvent(st client.Status, all bool, paint func(client.State, string) string) error {
	name := ""
	if all {
		if name = st.Name; name == "" {
			name = st.Session
		}
		name += " "
	}
	detail := ""
	switch {
	case st.ExitCode != nil || st.ExitSignal != 0:
		detail = " " + exitOf(st.Snapshot)
	case st.Error != nil:
		detail = fmt.Sprintf(" %s: %s", st.Error.Stage, failureText(st.Error))
	case st.TargetPID != 0:
		detail = fmt.Sprintf(" pid %d", st.TargetPID)
	}
	_, err := fmt.Fprintf(d.stdout, "%s %s%d %s%s\n",
		d.now().Format(time.TimeOnly), name, st.Revision, paint(st.State, string(st.State)), detail)
	return err
}
