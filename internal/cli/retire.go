package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

type retireOptions struct {
	mutation
	purge bool
}

func newRetireCmd(d *deps) *cobra.Command {
	var o retireOptions
	cmd := &cobra.Command{
		Use:   "retire SESSION...",
		Short: "acknowledge the end of sessions",
		Long: `Acknowledges the final record of sessions that have ended: the guardian goes away
and the name is free. The files stay until --purge, or a later retire --purge,
removes them.

Of several sessions each is tried; the exit code is that of the first that failed.`,
		Example:           "  mur retire work\n  mur retire --purge work build\n  mur ls -q --ended | xargs -r mur retire",
		ValidArgsFunction: d.completeMany,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("cannot run %s: which session?", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runRetire(cmd.Context(), d, args, o) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.purge, "purge", false, "remove the session's files, its output included")
	return cmd
}

func runRetire(ctx context.Context, d *deps, names []string, o retireOptions) error {
	if len(names) == 1 {
		return retireOne(ctx, d, names[0], o)
	}
	if o.op != "" {
		return usage("cannot use --op with several sessions: each is an operation of its own")
	}
	var first error
	for _, name := range names {
		err := retireOne(ctx, d, name, o)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			d.report(err, o.json)
		}
		if err != nil && first == nil {
			first = &failure{cause: causeOf(err), said: true, err: err}
		}
	}
	return first
}

func retireOne(ctx context.Context, d *deps, name string, o retireOptions) error {
	return d.change(ctx, "retire", name, &o.mutation, func(ctx context.Context, s *client.Session) error {
		r, err := s.Retire(ctx, o.id)
		var early *client.Error
		if errors.As(err, &early) && early.Code == client.CodeNotEnded && early.Snapshot != nil {
			// The refusal and the end may have shared a commit.
			if state := early.Snapshot.State; state != client.StateExited && !state.Final() {
				return &failure{cause: causeOf(err), hint: "mur term " + called(s), err: err}
			}
			// Only the end of its output is missing, as right after a sweep.
			if _, err := s.WaitEnd(ctx); err != nil {
				return err
			}
			r, err = s.Retire(ctx, o.id)
		}
		if err != nil {
			return err
		}
		warn(d, r)
		givenUp := d.givenUp(s, r)
		if err := leave(ctx, s, o.purge); err != nil {
			return err
		}
		if o.json {
			return writeJSON(d.stdout, struct {
				replyJSON
				Record  *client.Record  `json:"record"`
				GivenUp *client.Failure `json:"cleanup_error,omitempty"`
				Purged  bool            `json:"purged"`
			}{replyHead(s, o.mutation, r), r.Answer.Record, givenUp, o.purge})
		}
		_, err = fmt.Fprintf(d.stdout, "retired %s: %s\n", called(s), resultOf(r.Answer.Record))
		return err
	})
}

// givenUp says what a retirement leaves undone for ever: output without room on the
// disk, processes that go on.
func (d *deps) givenUp(s *client.Session, r client.Reply[client.RetireAnswer]) *client.Failure {
	if r.Snapshot == nil || r.Snapshot.CleanupError == nil {
		return nil
	}
	f := r.Snapshot.CleanupError
	d.say("%s is retired with something undone: %s", called(s), printable(f.Message))
	return f
}

// goodbye is how long the guardian's end is waited for, so that it is gone when
// mur says so.
const goodbye = 2 * time.Second

func leave(ctx context.Context, s *client.Session, purge bool) error {
	if purge {
		return s.Purge(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	s.WaitGone(ctx) // retired it is in any case
	return nil
}

func resultOf(r *client.Record) string {
	if r == nil {
		return "no record"
	}
	switch {
	case r.Result == lifecycle.ResultSignalled:
		return "ended by " + signalName(r.ExitSignal)
	case r.ExitCode != nil:
		return fmt.Sprintf("exited with %d", *r.ExitCode)
	case r.Reason != "":
		return fmt.Sprintf("%s: %s", r.Result, r.Reason)
	default:
		return string(r.Result)
	}
}
