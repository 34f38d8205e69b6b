package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

type logsOptions struct {
	follow bool
	since  int64
	raw    bool
	text   bool
	force  bool
	json   bool
}

func newLogsCmd(d *deps) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs SESSION",
		Short: "print what a session wrote",
		Long: `Prints the output that is still kept, from the session's files. On a terminal as
text: escape sequences and control characters are left out. Elsewhere, or with
--raw, exactly as it was written.`,
		Example:           "  mur logs work\n  mur logs -f --text work\n  mur logs work >work.out",
		Args:              exactly(1),
		ValidArgsFunction: d.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return runLogs(cmd.Context(), d, args[0], o) },
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on with what is written, up to the session's end")
	cmd.Flags().Int64Var(&o.since, "since", 0, "begin at this `offset`")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "as it was written")
	cmd.Flags().BoolVar(&o.text, "text", false, "as text")
	cmd.Flags().BoolVar(&o.force, "force", false, "--raw to a terminal even of a capsule")
	cmd.Flags().BoolVar(&o.json, "json", false, "print errors as JSON")
	return cmd
}

func runLogs(ctx context.Context, d *deps, name string, o logsOptions) error {
	if o.raw && o.text {
		return usage("cannot print logs both --raw and --text")
	}
	if o.since < 0 {
		return usage("cannot begin at offset %d", o.since)
	}
	s, err := d.session("read", name)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Snapshot(ctx)
	if err != nil {
		return cannot("read", name, err)
	}
	onTerminal, itself := terminal(d.stdout) != nil, inside(st, d.stdout)
	switch {
	case itself && o.follow:
		return fail(causeState, "mur logs "+name, "cannot follow %s: this terminal is inside it", name)
	case o.raw && onTerminal && !o.force && st.Capsule != nil:
		return fail(causeDenied, "mur logs --text "+name,
			"cannot print the raw log of %s to a terminal: a capsule wrote it, and it could act on the terminal (--force does it)", name)
	}
	var w io.Writer = d.stdout
	if o.text || onTerminal && !o.raw {
		w = &plain{w: d.stdout}
	}
	var ended error
	mark := afterEnd(st, o.since)
	next := o.since
	each := func(p client.Piece) error {
		next = max(p.GapTo, p.Offset+int64(len(p.Bytes)))
		if p.GapTo > 0 {
			if p.Offset > 0 || o.since > 0 {
				d.say("output %d to %d is no longer kept", p.Offset, p.GapTo)
			}
			return nil
		}
		b := p.Bytes
		if itself && p.Offset+int64(len(b)) > st.OutputEnd {
			// The rest is what is being printed here.
			b = b[:max(st.OutputEnd-p.Offset, 0)]
			ended = io.EOF
		}
		if before := mark - p.Offset; mark >= 0 && before < int64(len(b)) {
			if _, err := w.Write(b[:max(before, 0)]); err != nil {
				return err
			}
			d.say("what follows was written after the target had ended")
			b, mark = b[max(before, 0):], -1
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		return ended
	}
	if o.follow {
		defer d.tellStopped(ctx, s)()
		return cannot("read", name, s.FollowLog(ctx, o.since, each))
	}
	err = s.ReadLog(o.since, each)
	if err == nil && st.State.Final() {
		d.sayMissing(name, shortOf(st.Record, next))
	}
	if err == nil || !errors.Is(err, io.EOF) {
		return cannot("read", name, err)
	}
	return nil
}

// afterEnd is the offset from which on the output is not the target's; -1 while that is
// not known, or if it is none of what is asked for.
func afterEnd(st client.Status, since int64) int64 {
	r := st.Record
	if r == nil || !st.State.Final() || r.Drain == lifecycle.DrainUnknown || r.Drain == lifecycle.DrainNone || since > r.EndOffset {
		return -1
	}
	return r.EndOffset
}

// shortOf is how many bytes of the output are not in the log though the record counts
// them.
func shortOf(r *client.Record, next int64) int64 {
	if r == nil {
		return 0
	}
	return max(r.EndOffset-next, 0)
}

func (d *deps) sayMissing(name string, n int64) {
	if n > 0 {
		d.say("the last %d bytes of the output are not in the log: with room on the disk they come, as long as a process of %s holds them", n, name)
	}
}
