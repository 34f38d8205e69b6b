package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type recoverOptions struct {
	limits
	force, upgrade bool
}

func newRecoverCmd(d *deps) *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use:   "recover [SESSION]",
		Short: "settle what a crash has left",
		Long: `Starts a guardian where none lives and there is something to settle: an owner
without a guardian, an operation without an outcome, an end that nobody has
recorded. It finds out what happened; nothing is done twice. Without a SESSION all
of them are looked at. This is never needed for a session to go on: attaching to it
or changing it does the same.

--force is for a guardian that lives and does not answer, because it is stopped or
hangs. It is continued and, if it does not answer within 5 s, killed; then the next
one starts. The session's program is not touched.

--upgrade has a living guardian leave and one of this mur's version take its place.
Attached terminals stay. The owner, and so the program, goes on as it is.`,
		Example: "  mur recover\n  mur recover --force work\n  mur recover --upgrade",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("cannot run %s: it takes one argument or none, got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		ValidArgsFunction: d.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return runRecover(cmd.Context(), d, args, o) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "continue, or kill, a guardian that does not answer")
	cmd.Flags().BoolVar(&o.upgrade, "upgrade", false, "replace the guardian by one of this version")
	return cmd
}

func runRecover(ctx context.Context, d *deps, args []string, o recoverOptions) error {
	c, err := d.client()
	if err != nil {
		return err
	}
	names := args
	if len(args) == 0 {
		if names, err = c.IDs(); err != nil {
			return cannot("recover", "all sessions", err)
		}
		if len(names) == 0 {
			d.say("no sessions")
		}
	}
	var failed error // the first; those after it are reported at once
	for _, name := range names {
		err := d.recoverOne(ctx, c, name, o)
		if len(args) == 0 && client.CodeOf(err) == client.CodeNoSession {
			continue // purged meanwhile
		}
		switch {
		case err != nil && failed != nil:
			d.report(err, o.json)
		case err != nil:
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// recoverOne looks at one session and says in one line what was done. Each has a
// time of its own.
func (d *deps) recoverOne(ctx context.Context, c *client.Client, name string, o recoverOptions) error {
	s, err := c.Open(name)
	if err != nil {
		return cannot("recover", name, err)
	}
	defer s.Close()
	ctx, cancel := o.context(ctx)
	defer cancel()
	r, err := s.Recover(ctx, client.RecoverOptions{Force: o.force, Upgrade: o.upgrade})
	if err != nil {
		return o.late(cannot("recover", called(s), err))
	}
	if o.json {
		return writeJSON(d.stdout, recoveryAsJSON(s, r))
	}
	_, err = fmt.Fprintf(d.stdout, "%s: %s\n", called(s), recoveryOf(r))
	return err
}

// recoveryJSON is what was done for one session.
type recoveryJSON struct {
	Schema      int          `json:"schema"`
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Continued   int          `json:"continued,omitempty"` // pid
	Killed      int          `json:"killed,omitempty"`    // pid
	Started     bool         `json:"started"`
	Upgraded    bool         `json:"upgraded"`
	Settled     []string     `json:"settled"`
	State       client.State `json:"state"`
	Revision    uint64       `json:"revision"`
	GuardianPID *int         `json:"guardian_pid"` // null: none lives
}

func recoveryAsJSON(s *client.Session, r client.Recovery) recoveryJSON {
	j := recoveryJSON{
		Schema: schema, ID: s.ID(), Name: s.Name(), Continued: r.Continued, Killed: r.Killed,
		Started: r.Started, Upgraded: r.Upgraded, Settled: []string{},
		State: r.Status.State, Revision: r.Status.Revision,
		GuardianPID: sessionAsJSON(r.Status).GuardianPID,
	}
	for _, id := range r.Settled {
		j.Settled = append(j.Settled, id.String())
	}
	return j
}

// recoveryOf says what was done, and what there is now.
func recoveryOf(r client.Recovery) string {
	if r.Idle() {
		return fmt.Sprintf("nothing to do, it is %s", r.Status.State)
	}
	var did []string
	add := func(is bool, format string, args ...any) {
		if is {
			did = append(did, fmt.Sprintf(format, args...))
		}
	}
	add(r.Continued != 0, "guardian %d, which did not answer, was continued", r.Continued)
	add(r.Killed != 0, "guardian %d, which did not answer, was killed and replaced", r.Killed)
	add(r.Started, "a guardian was started")
	add(r.Upgraded, "the guardian is of this version now")
	add(len(r.Settled) > 0, "operations settled: %d", len(r.Settled))
	add(true, "it is %s", r.Status.State)
	return strings.Join(did, "; ")
}
