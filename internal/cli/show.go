package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/capsule"
)

type showOptions struct {
	json bool
}

func newShowCmd(d *deps) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:               "show SESSION",
		Short:             "tell everything known about a session",
		Long:              "Everything known about a session, read from its files; the size and who attaches from its guardian, if one lives.",
		Args:              exactly(1),
		ValidArgsFunction: d.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return runShow(cmd.Context(), d, args[0], o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

func runShow(ctx context.Context, d *deps, name string, o showOptions) error {
	s, err := d.session("show", name)
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Snapshot(ctx)
	if err != nil {
		return cannot("show", name, err)
	}
	if o.json {
		return writeJSON(d.stdout, createdJSON{sessionJSON: sessionAsJSON(st), Op: st.StartID, Socket: s.Socket()})
	}
	p := pairs{w: d.stdout}
	p.add("id", st.Session)
	p.add("name", st.Name)
	p.add("state", d.painter()(st.State, string(st.State)))
	p.add("target", describeTarget(st))
	p.processes(st)
	p.live(st)
	p.add("revision", fmt.Sprintf("%d, generation %d", st.Revision, st.Generation))
	p.add("created", at(st.Created.UnixNano()))
	p.add("started", at(st.Times.Started))
	p.add("ended", at(st.Times.Ended))
	p.add("retired", at(st.Times.Retired))
	p.failure("error", st.Error)
	p.failure("cleanup error", st.CleanupError)
	p.add("not durable", st.NotDurable)
	p.record(st)
	p.add("directory", st.Dir)
	p.add("socket", s.Socket())
	return p.err
}

func describeTarget(st client.Status) string {
	text := printable(st.Program)
	if c := st.Capsule; c != nil {
		text = fmt.Sprintf("%s %s (sha256 %.12s, %s)", printable(c.Name), printable(c.Version), c.SHA256, printable(c.Path))
	}
	return text
}

// pairs prints lines of a name and a value; those without a value are left out.
type pairs struct {
	w   io.Writer
	err error
}

func (p *pairs) add(name, value string) {
	if value == "" || p.err != nil {
		return
	}
	_, p.err = fmt.Fprintf(p.w, "%-14s %s\n", name, value)
}

func (p *pairs) failure(name string, f *client.Failure) {
	if f == nil {
		return
	}
	text := f.Stage + ": " + failureText(f)
	if f.Errno != 0 {
		text += fmt.Sprintf(" (errno %d)", f.Errno)
	}
	p.add(name, text)
}

func (p *pairs) processes(st client.Status) {
	pid := func(n int, alive bool) string {
		if !alive {
			return ""
		}
		return strconv.Itoa(n)
	}
	p.add("target pid", pid(st.TargetPID, st.TargetPID != 0 && !st.State.Final()))
	owner := pid(st.OwnerPID, st.OwnerAlive)
	if st.OwnerStopped {
		owner += ", stopped: the next change of the session continues it"
	}
	p.add("owner pid", owner)
	guardian := pid(st.GuardianPID, st.GuardianAlive)
	switch {
	case st.GuardianStopped:
		guardian += ", stopped: nothing is recorded or answered; mur recover --force ends that"
	case st.GuardianAlive && st.Live == nil:
		guardian += ", did not answer at once"
	}
	p.add("guardian pid", guardian)
}

func (p *pairs) live(st client.Status) {
	if l := st.Live; l != nil {
		p.add("size", fmt.Sprintf("%dx%d", l.Cols, l.Rows))
		p.add("attached", strconv.Itoa(l.Attached))
		p.add("output", fmt.Sprintf("%d to %d bytes", l.OutputStart, l.OutputEnd))
		p.add("output fault", l.OutputFault)
		return
	}
	p.add("output", fmt.Sprintf("%d bytes", st.OutputEnd))
}

func (p *pairs) record(st client.Status) {
	if st.GraceUntil != 0 {
		p.add("swept at", at(st.GraceUntil)+" if it has not ended")
	}
	r := st.Record
	if r == nil {
		return
	}
	result := string(r.Result)
	switch {
	case r.ExitSignal != 0:
		result += " by " + signalName(r.ExitSignal)
		if r.CoreDumped {
			result += ", core dumped"
		}
	case r.ExitCode != nil:
		result += fmt.Sprintf(" with %d", *r.ExitCode)
	}
	p.add("result", result)
	p.add("reason", r.Reason)
	p.add("asked by", r.AskedBy)
	if r.Duration > 0 {
		p.add("duration", time.Duration(r.Duration).Round(time.Millisecond).String())
	}
	p.add("end of output", fmt.Sprintf("%d (%s)", r.EndOffset, r.Drain))
	if u := r.Usage; u != nil {
		p.add("processor time", fmt.Sprintf("%v user, %v system", time.Duration(u.UserNanos).Round(time.Millisecond), time.Duration(u.SystemNanos).Round(time.Millisecond)))
		p.add("largest memory", capsule.Size(u.MaxRSSBytes).String())
	}
	gone := st.GroupConsumed || st.TerminalSessionEnded
	if (r.Holders > 0 || r.Descendants > 0) && !gone {
		text := fmt.Sprintf("processes: %d, holding the terminal: %d", r.Descendants, r.Holders)
		var names []string
		for _, h := range r.HeldBy {
			names = append(names, fmt.Sprintf("%d %s", h.PID, printable(h.Name)))
		}
		if len(names) > 0 {
			text += " (" + strings.Join(names, ", ") + ")"
		}
		p.add("left behind", text+"; mur sweep ends them")
	}
}

func at(nanos int64) string {
	if nanos == 0 {
		return ""
	}
	return time.Unix(0, nanos).Format(time.DateTime)
}
