package cli

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

// sessionJSON is a session as ls, show and watch print it: the snapshot's own
// keys, and some that are not part of a revision.
type sessionJSON struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Name   string `json:"name"`
	client.Snapshot
	GuardianPID *int   `json:"guardian_pid"` // null: none lives
	OwnerPID    *int   `json:"owner_pid"`    // null: none lives
	Attached    *int   `json:"attached"`     // null: not known
	OutputEnd   int64  `json:"output_end"`
	Dir         string `json:"dir"`
}

func sessionAsJSON(st client.Status) sessionJSON {
	j := sessionJSON{
		Schema: schema, ID: st.Session, Name: st.Name, Snapshot: st.Snapshot,
		OutputEnd: st.OutputEnd, Dir: st.Dir,
	}
	if st.GuardianAlive && st.GuardianPID != 0 {
		j.GuardianPID = &st.GuardianPID
	}
	if st.OwnerAlive && st.OwnerPID != 0 {
		j.OwnerPID = &st.OwnerPID
	}
	j.Attached = attachedOf(st)
	return j
}

func candidates(err error) []string {
	var e *client.Error
	if errors.As(err, &e) && e.Code == client.CodeAmbiguous {
		return e.Candidates
	}
	return nil
}

// attachedOf tells how many attach to a session: unknown is nil.
func attachedOf(st client.Status) *int {
	none := 0
	switch {
	case st.Live != nil:
		return &st.Live.Attached
	case !st.GuardianAlive:
		return &none
	default:
		return nil
	}
}

// exitOf is how a session ended, in short.
func exitOf(s client.Snapshot) string {
	switch {
	case s.ExitSignal != 0:
		name := signalName(s.ExitSignal)
		if s.CoreDumped {
			name += "+core"
		}
		return name
	case s.ExitCode != nil:
		return strconv.Itoa(*s.ExitCode)
	default:
		return "-"
	}
}

func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

// targetOf is what a session runs, in short.
func targetOf(s client.Snapshot) string {
	switch {
	case s.Capsule != nil && s.Capsule.Name != "":
		return printable(s.Capsule.Name)
	case s.Program != "":
		return printable(path.Base(s.Program))
	default:
		return "-"
	}
}

// printable keeps what a stranger chose from acting on a terminal.
func printable(text string) string {
	quoted := strconv.Quote(text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// table lines up cells. Colour is applied to one column after its width is known.
func table(w io.Writer, rows [][]string, paint func(column int, cell, padded string) string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			padded := cell
			if i < len(row)-1 {
				padded += strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
			}
			if n > 0 {
				padded = paint(i, cell, padded)
			}
			line.WriteString(padded)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// painter colours states, where colour is wanted.
func (d *deps) painter() func(state client.State, text string) string {
	on := d.color == "always"
	if d.color == "auto" {
		on = terminal(d.stdout) != nil && d.getenv("NO_COLOR") == "" && d.getenv("TERM") != "dumb"
	}
	return func(state client.State, text string) string {
		code := ""
		switch state {
		case client.StateRunning:
			code = "32"
		case client.StateStopped, client.StateStarting, client.StateReserved, client.StateExited:
			code = "33"
		case client.StateLost, client.StateLaunchFailed:
			code = "31"
		}
		if !on || code == "" {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
}
