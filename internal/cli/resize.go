package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func newResizeCmd(d *deps) *cobra.Command {
	var o limits
	cmd := &cobra.Command{
		Use:               "resize SESSION COLSxROWS",
		Short:             "set the size of a session's terminal",
		Example:           "  mur resize work 120x40",
		Args:              exactly(2),
		ValidArgsFunction: d.completeCurrent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runResize(cmd.Context(), d, args[0], args[1], o)
		},
	}
	o.register(cmd)
	return cmd
}

func runResize(ctx context.Context, d *deps, name, text string, o limits) error {
	size, err := parseSize(text)
	if err != nil {
		return err
	}
	if size == nil {
		return usage("cannot resize %s: no size given", name)
	}
	s, err := d.session("resize", name)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := o.context(ctx)
	defer cancel()
	if err := s.Resize(ctx, *size); err != nil {
		return o.late(cannot("resize", name, err))
	}
	if o.json {
		return writeJSON(d.stdout, struct {
			Schema int    `json:"schema"`
			ID     string `json:"id"`
			Cols   int    `json:"cols"`
			Rows   int    `json:"rows"`
		}{schema, s.ID(), size.Cols, size.Rows})
	}
	return nil
}
