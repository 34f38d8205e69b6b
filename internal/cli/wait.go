package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

type waitOptions struct {
	any     bool
	timeout time.Duration
	json    bool
}

func newWaitCmd(d *deps) *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait SESSION...",
		Short: "wait for the end of sessions; exit with their status",
		Long: `Returns when all the sessions have ended, with --any when the first has, and exits
with the status of the target: of several, that of the first one named that did
not exit with 0. It reads files and needs no guardian.`,
		Example:           "  mur wait work\n  mur wait --any --timeout 10m a b c",
		Annotations:       inTargetsPlace(),
		ValidArgsFunction: d.completeMany,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("cannot run %s: which session?", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runWait(cmd.Context(), d, args, o) },
	}
	cmd.Flags().BoolVar(&o.any, "any", false, "return when the first has ended")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "give up after this `duration` (exit 124)")
	cmd.Flags().BoolVar(&o.json, "json", false, "print each ended session as one JSON object a line")
	return cmd
}

// ending is how the wait for one session came out.
type ending struct {
	index int
	name  string
	st    client.Status
	err   error
}

func runWait(ctx context.Context, d *deps, names []string, o waitOptions) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan ending, len(names))
	for i, name := range names {
		s, err := d.session("wait for", name)
		if err != nil {
			return err
		}
		defer s.Close()
		defer d.tellStopped(ctx, s)()
		go func() {
			st, err := s.WaitEnd(ctx)
			ends <- ending{index: i, name: name, st: st, err: err}
		}()
	}
	wanted := len(names)
	if o.any {
		wanted = 1
	}
	statuses := make([]error, len(names))
	for range wanted {
		e := <-ends
		if e.err == nil && o.json {
			e.err = writeJSON(d.stdout, sessionAsJSON(e.st))
		}
		if e.err != nil {
			return e.failed()
		}
		statuses[e.index] = statusOf(e.name, e.name, e.st.Record)
	}
	for _, status := range statuses {
		if status != nil {
			return status
		}
	}
	return nil
}

func (e ending) failed() error {
	if errors.Is(e.err, context.DeadlineExceeded) {
		return &failure{
			cause: causeTimeout, code: "timeout", hint: "mur show " + e.name,
			err: fmt.Errorf("cannot wait for %s any longer: --timeout has run out, and it is %s", e.name, e.st.State),
		}
	}
	return cannot("wait for", e.name, e.err)
}
