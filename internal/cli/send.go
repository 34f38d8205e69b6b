package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

// sendPiece is how much is typed in one request, in bytes.
const sendPiece = 4096

type sendOptions struct {
	limits
	enter bool
}

func newSendCmd(d *deps) *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send SESSION [TEXT...]",
		Short: "type text into a session",
		Long: `Types TEXT, its words joined by blanks, or without TEXT the standard input, and
says how many bytes the session's terminal took.`,
		Example:           "  mur send work --enter 'make test'\n  printf '\\003' | mur send work",
		ValidArgsFunction: d.completeCurrent,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("cannot run %s: which session?", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runSend(cmd.Context(), d, args[0], args[1:], o) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.enter, "enter", false, "press Enter at the end")
	return cmd
}

func runSend(ctx context.Context, d *deps, name string, words []string, o sendOptions) error {
	s, err := d.session("type into", name)
	if err != nil {
		return err
	}
	defer s.Close()
	text := d.stdin
	if len(words) > 0 || o.enter && terminal(d.stdin) != nil {
		text = strings.NewReader(strings.Join(words, " "))
	}
	if o.enter {
		text = io.MultiReader(text, strings.NewReader("\r"))
	}
	ctx, cancel := o.context(ctx)
	defer cancel()
	accepted, err := typeAll(ctx, s, text)
	switch {
	case err != nil && accepted == 0: // the error says it all
	case o.json:
		line := struct {
			Schema   int    `json:"schema"`
			ID       string `json:"id"`
			Accepted int64  `json:"accepted"`
		}{schema, s.ID(), accepted}
		err = errors.Join(err, writeJSON(d.stdout, line))
	default:
		_, printed := fmt.Fprintf(d.stdout, "%d bytes accepted\n", accepted)
		err = errors.Join(err, printed)
	}
	return o.late(cannot("type into", name, err))
}

func typeAll(ctx context.Context, s *client.Session, text io.Reader) (accepted int64, err error) {
	buf := make([]byte, sendPiece)
	for {
		n, err := io.ReadFull(text, buf)
		if n > 0 {
			written, err := s.Input(ctx, buf[:n])
			accepted += int64(written)
			if err != nil {
				return accepted, err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return accepted, nil
		case err != nil:
			return accepted, fmt.Errorf("cannot read the input: %w", err)
		}
	}
}
