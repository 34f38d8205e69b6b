package cli

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

func newTermCmd(d *deps) *cobra.Command {
	var o mutation
	cmd := &cobra.Command{
		Use:   "term SESSION",
		Short: "ask the target to end (SIGTERM)",
		Long: `Sends SIGTERM to the target's process group and returns when it is delivered. An
interactive shell ignores it; then mur says so, and what to use instead.`,
		Args:              exactly(1),
		ValidArgsFunction: d.completeCurrent,
		RunE:              func(cmd *cobra.Command, args []string) error { return runTerm(cmd.Context(), d, args[0], o) },
	}
	o.register(cmd)
	return cmd
}

func runTerm(ctx context.Context, d *deps, name string, o mutation) error {
	return d.change(ctx, "end", name, &o, func(ctx context.Context, s *client.Session) error {
		r, err := s.Term(ctx, o.id)
		if err != nil {
			return err
		}
		if err := d.printControl(s, o, r, "SIGTERM: "+delivery(r.Answer.Delivery)); err != nil {
			return err
		}
		snap := r.Snapshot
		if snap != nil && snap.State.Alive() && ignores(snap.TargetPID, unix.SIGTERM) {
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
