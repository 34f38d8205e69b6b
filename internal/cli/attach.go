package cli

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

type attachOptions struct {
	readOnly  bool
	since     int64
	detachKey string
	json      bool
}

func newAttachCmd(d *deps) *cobra.Command {
	var o attachOptions
	cmd := &cobra.Command{
		Use:   "attach SESSION",
		Short: "join a session; exit with its status when it ends",
		Long: `Shows a session and types into it, until it ends or the detach key is pressed.

On a terminal the recent output comes first. Otherwise, and of a session that
has ended, all output that is still kept. Input that is no terminal is typed in
as it is; its end types nothing: to end a program that reads to the end of its
input, send the byte ^D: printf 'text\n\004' | mur attach SESSION`,
		Example:           "  mur attach work\n  mur attach --read-only work",
		Args:              exactly(1),
		Annotations:       inTargetsPlace(),
		ValidArgsFunction: d.completeCurrent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("since") {
				o.since = sensible
			}
			return runAttach(cmd.Context(), d, args[0], o)
		},
	}
	cmd.Flags().BoolVar(&o.readOnly, "read-only", false, "only look: no input, no say about the size")
	cmd.Flags().Int64Var(&o.since, "since", 0, "begin at this `offset` of the output")
	cmd.Flags().BoolVar(&o.json, "json", false, "print errors as JSON")
	registerDetachKey(cmd, &o.detachKey)
	return cmd
}

func registerDetachKey(cmd *cobra.Command, key *string) {
	cmd.Flags().StringVar(key, "detach-key", defaultDetachKey, "two `keys` that leave the session, or none")
}

func runAttach(ctx context.Context, d *deps, name string, o attachOptions) error {
	keys, err := parseChord(o.detachKey)
	if err != nil {
		return usage("cannot use the detach key: %v", err)
	}
	if o.since < sensible {
		return usage("cannot begin at offset %d", o.since)
	}
	s, err := d.session("attach to", name)
	if err != nil {
		return err
	}
	defer s.Close()
	record, err := d.view(ctx, s, viewOptions{
		keys: keys, keyName: o.detachKey, readOnly: o.readOnly, since: o.since,
	})
	if err != nil || record == nil {
		return err
	}
	return statusOf(called(s), called(s), record)
}

// statusOf is the exit status that a final record leads to, nil for 0.
func statusOf(name, session string, r *client.Record) error {
	switch r.Result {
	case lifecycle.ResultExited:
		if r.ExitCode == nil || *r.ExitCode == 0 {
			return nil
		}
		return targetStatus(*r.ExitCode)
	case lifecycle.ResultSignalled:
		return targetStatus(signalBase + r.ExitSignal)
	case lifecycle.ResultLaunchFailed:
		return launchFailed(name, &client.Failure{Stage: r.Stage, Errno: r.Errno, Message: r.Reason})
	case lifecycle.ResultLost:
		return &failure{
			cause: causeLost, code: "lost", hint: "mur show " + session,
			err: fmt.Errorf("cannot tell how %s ended: the session is lost: %s", name, r.Reason),
		}
	default:
		return &failure{cause: causeNotStarted, code: "never_started", err: fmt.Errorf("session %s was never started", name)}
	}
}

// failureText is the reason without the whole PATH in which a program was looked
// for: that is in the session's files.
func failureText(f *client.Failure) string {
	before, list, inPath := strings.Cut(f.Message, ` in PATH "`)
	if _, after, ends := strings.Cut(list, `": `); f.Stage == "lookup" && inPath && ends {
		return before + " in PATH: " + after
	}
	return f.Message
}

// launchFailed tells why a target was not started. What is missing is 127, as
// with a shell.
func launchFailed(name string, f *client.Failure) error {
	c := causeNotStarted
	errno := "no errno"
	if f.Errno != 0 {
		errno = "errno " + unix.ErrnoName(syscall.Errno(f.Errno))
	}
	if f.Errno == int(unix.ENOENT) {
		c = causeLost
	}
	return &failure{
		cause: c, code: "launch_failed", hint: "mur show " + name,
		err: fmt.Errorf("cannot start the target of %s: launch-failed at stage %s (%s): %s", name, f.Stage, errno, failureText(f)),
	}
}
