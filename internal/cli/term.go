package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

func newTermCmd(d *deps) *cobra.Command {
	var o termOptions
	cmd := &cobra.Command{
		Use:   "term SESSION",
		Short: "ask the target to end (SIGTERM)",
		Long: `Sends SIGTERM to the target's process group and returns when it is delivered. An
interactive shell ignores it; then mur says so, and what to use instead.

With --grace the session is swept if the target has not ended by then, whatever
becomes of guardian and client meanwhile; --grace alone is 10 seconds. What the
target leaves behind when it ends in time is not touched.`,
		Example:           "  mur term work\n  mur term --grace=1m work",
		Args:              func(cmd *cobra.Command, args []string) error { return oneSession(cmd, args, o.grace) },
		ValidArgsFunction: d.completeCurrent,
		RunE:              func(cmd *cobra.Command, args []string) error { return runTerm(cmd.Context(), d, args[0], o) },
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.grace, "grace", 0, "sweep if it has not ended after this `duration`")
	cmd.Flags().Lookup("grace").NoOptDefVal = "10s"
	return cmd
}

// oneSession also knows what becomes of "--grace 5s work": the value of a flag that
// may do without one is joined to it.
func oneSession(cmd *cobra.Command, args []string, grace time.Duration) error {
	if len(args) == 2 && grace > 0 {
		for i, arg := range args {
			if _, err := time.ParseDuration(arg); err == nil {
				return fail(causeUsage, fmt.Sprintf("mur term --grace=%s %s", arg, quoted(args[1-i:2-i])),
					"cannot run %s: the time belongs to --grace, joined by =", cmd.CommandPath())
			}
		}
	}
	return exactly(1)(cmd, args)
}

type termOptions struct {
	mutation
	grace time.Duration
}

func runTerm(ctx context.Context, d *deps, name string, o termOptions) error {
	if o.cmd.Flags().Changed("grace") && o.grace <= 0 {
		return usage("cannot leave the target %v: want a time such as 10s; mur sweep ends it at once", o.grace)
	}
	return d.change(ctx, "end", name, &o.mutation, func(ctx context.Context, s *client.Session) error {
		r, err := s.Term(ctx, o.id, o.grace)
		if err != nil {
			return err
		}
		text := "SIGTERM: " + delivery(r.Answer)
		if o.grace > 0 && r.Answer.Delivery == client.Delivered {
			text += fmt.Sprintf("; swept if it has not ended in %v", o.grace)
		}
		if err := d.printControl(s, o.mutation, r, text); err != nil {
			return err
		}
		snap := r.Snapshot
		if o.grace == 0 && snap != nil && snap.State.Alive() && ignores(snap.TargetPID, unix.SIGTERM) {
			d.say("%s (pid %d) ignores SIGTERM, as an interactive shell does", targetOf(*snap), snap.TargetPID)
			d.say("hint: mur signal %s HUP --group target, or mur sweep %s", called(s), called(s))
		}
		return nil
	})
}

// ignores reads from the kernel whether a process ignores a signal: see SigIgn in
// proc_pid_status(5). The pid may be a stranger's by now; this only looks.
func ignores(pid int, sig unix.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && mask&(1<<(sig-1)) != 0
		}
	}
	return false
}
