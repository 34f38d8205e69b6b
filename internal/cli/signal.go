package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

type signalOptions struct {
	mutation
	group string
}

func newSignalCmd(d *deps) *cobra.Command {
	var o signalOptions
	cmd := &cobra.Command{
		Use:   "signal SESSION SIG",
		Short: "send one signal",
		Long: `Sends a signal, given by its name or number: to the terminal's foreground process
group, to the target process alone, or to all processes of the session.`,
		Example:           "  mur signal work INT\n  mur signal work HUP --group target",
		Args:              exactly(2),
		ValidArgsFunction: d.completeSignal,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSignal(cmd.Context(), d, args[0], args[1], o)
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.group, "group", string(client.GroupForeground), "which `group` of processes: foreground, target or all")
	cmd.RegisterFlagCompletionFunc("group", words(string(client.GroupForeground), string(client.GroupTarget), string(client.GroupAll)))
	return cmd
}

func runSignal(ctx context.Context, d *deps, name, text string, o signalOptions) error {
	sig, err := parseSignal(text)
	if err != nil {
		return err
	}
	group := client.SignalGroup(o.group)
	switch group {
	case client.GroupForeground, client.GroupTarget, client.GroupAll:
	default:
		return usage("cannot signal group %q: want foreground, target or all", o.group)
	}
	return d.change(ctx, "signal", name, &o.mutation, func(ctx context.Context, s *client.Session) error {
		r, err := s.Signal(ctx, o.id, sig, group)
		if err != nil {
			return err
		}
		return d.printControl(s, o.mutation, r, fmt.Sprintf("%s: %s", signalName(sig), delivery(r.Answer)))
	})
}

// parseSignal reads TERM, SIGTERM or 15.
func parseSignal(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 64 {
			return 0, usage("cannot send signal %d: there are 1 to 64", n)
		}
		return n, nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return int(sig), nil
	}
	return 0, usage("cannot send %q: no signal has this name", text)
}

func delivery(a client.ControlAnswer) string {
	switch a.Delivery {
	case client.Delivered:
		return "delivered"
	case client.NotNeeded:
		return "not needed, the target had ended"
	}
	switch {
	case a.Errno == int(unix.ESRCH) || a.Errno == 0:
		return "not delivered, there was nobody to deliver to"
	default:
		return "not delivered: " + unix.Errno(a.Errno).Error()
	}
}
