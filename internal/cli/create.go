package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type createOptions struct {
	mutation
	name nameValue
	size string
}

func newCreateCmd(d *deps) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create",
		Short: "make a session and its guardian, without a program",
		Long: `Makes a session in state new and prints its id, with --json also its directory
and the guardian's socket: what a program needs that starts and controls sessions
over the socket.`,
		Example: "  mur create --name build --size 120x40 --json",
		Args:    exactly(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runCreate(cmd.Context(), d, o) },
	}
	o.register(cmd)
	cmd.Flags().Var(&o.name, "name", "call the session by this `name`")
	cmd.Flags().StringVar(&o.size, "size", "", "the terminal's `size`, such as 80x24")
	return cmd
}

func runCreate(ctx context.Context, d *deps, o createOptions) error {
	size, err := parseSize(o.size)
	if err != nil {
		return err
	}
	if err := o.settle(d); err != nil {
		return err
	}
	c, err := d.client()
	if err != nil {
		return err
	}
	ctx, cancel := o.context(ctx)
	defer cancel()
	s, err := c.Create(ctx, client.CreateOptions{Op: o.id, Name: string(o.name), Size: size})
	if err != nil {
		return o.late(cannot("create", "a session", d.nameInUse(ctx, c, err)))
	}
	defer s.Close()
	return d.printCreated(ctx, s, o.mutation, nil)
}

// nameInUse finds what to do about a name that another session has.
func (d *deps) nameInUse(ctx context.Context, c *client.Client, err error) error {
	var taken *client.Error
	if !errors.As(err, &taken) || taken.Code != client.CodeConflict || taken.Hint == "" || len(taken.Candidates) != 1 {
		return err
	}
	s, openErr := c.Open(taken.Candidates[0])
	if openErr != nil {
		return err
	}
	defer s.Close()
	st, readErr := s.Snapshot(ctx)
	if readErr != nil || st.Name == "" || st.State.Final() || st.State == client.StateNew {
		return err // to retire it frees the name
	}
	return &failure{cause: causeOf(err), hint: "mur attach " + st.Name, err: err}
}

// createdJSON is a session with what a program needs to control it.
type createdJSON struct {
	sessionJSON
	Op       string `json:"op"`
	Replayed *bool  `json:"replayed,omitempty"` // of start only
	Socket   string `json:"socket"`
}

func (d *deps) printCreated(ctx context.Context, s *client.Session, m mutation, replayed *bool) error {
	if !m.json {
		_, err := fmt.Fprintln(d.stdout, s.ID())
		return err
	}
	st, err := s.Snapshot(ctx)
	if err != nil {
		return cannot("read", called(s), err)
	}
	return writeJSON(d.stdout, createdJSON{sessionJSON: sessionAsJSON(st), Op: m.id.String(), Replayed: replayed, Socket: s.Socket()})
}
