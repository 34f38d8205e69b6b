package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// cause is why mur ends as it does.
type cause int

// The causes, in the order of their exit codes.
const (
	causeDone cause = iota
	causeFailed
	causeUsage
	causeState
	causeNotFound
	causeDenied
	causeConflict
	causeUnknown
	causeUnreachable
	causeBusy
	causeTimeout
	causeMur
	causeNotStarted
	causeLost
	causes // their number
)

// exit is the one place where exit codes are given out; help renders it.
func (c cause) exit() (code int, meaning string) {
	switch c {
	case causeDone:
		return 0, "done, or already done (a replayed receipt); detached"
	case causeUsage:
		return 2, "wrong usage"
	case causeState:
		return 3, "the session is not in a state that allows this"
	case causeNotFound:
		return 4, "no such session, capsule or operation"
	case causeDenied:
		return 5, "not permitted"
	case causeConflict:
		return 6, "name in use; operation id or launch used before for something else"
	case causeUnknown:
		return 7, "outcome unknown: begun before a crash (mur op show)"
	case causeUnreachable:
		return 69, "guardian not reachable"
	case causeBusy:
		return 75, "busy, try again"
	case causeTimeout:
		return 124, "--timeout ran out"
	case causeMur:
		return 125, "start, run, attach, wait: mur itself failed, wrong usage included"
	case causeNotStarted:
		return 126, "start, run, attach, wait: the target could not be started"
	case causeLost:
		return 127, "start, run, attach, wait: not found, or the session is lost"
	default:
		return 1, "an error without a code below"
	}
}

// inTargetsPlace is the cause as told by the verbs that otherwise exit with the
// target's status: none of the codes that a target may well use.
func (c cause) inTargetsPlace() cause {
	switch c {
	case causeDone, causeTimeout, causeMur, causeNotStarted, causeLost:
		return c
	case causeNotFound:
		return causeLost
	default:
		return causeMur
	}
}

// signalBase is added to the number of the signal that ended the target.
const signalBase = 128

func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("start, run, attach and wait exit with the target's own status. Otherwise:\n\n")
	for c := range causes {
		code, meaning := c.exit()
		fmt.Fprintf(&b, "  %3d    %s\n", code, meaning)
	}
	fmt.Fprintf(&b, "  %d+n  the target died of signal n\n", signalBase)
	b.WriteString("\nstart -d returns no status of a target and uses the whole table.\n\n")
	b.WriteString("A capsule that a limit ends (--deadline, memory, processor time, output), or that\n")
	b.WriteString("traps, exits with 1; the reason is on stderr and in mur show. ^C ends it with\n")
	b.WriteString("130, SIGTERM with 143. One that is refused before it runs exits with 126.\n\n")
	b.WriteString("Of several sessions, the exit code is that of the first that failed.\n")
	b.WriteString("With --json the error on stderr has a code in words.")
	return b.String()
}

// failure is an error with the exit code it leads to.
type failure struct {
	cause cause
	code  string // in words, for --json; empty: the client's, else the cause's
	hint  string
	usage string // the verb's usage line
	said  bool   // it was reported where it happened
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail builds a failure; its message is complete.
func fail(c cause, hint, format string, args ...any) error {
	return &failure{cause: c, hint: hint, err: fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return fail(causeUsage, "", format, args...) }

// cannot says what was to be done and why it was not.
func cannot(verb, thing string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{cause: causeOf(err), hint: hintOf(err), err: fmt.Errorf("cannot %s %s: %w", verb, thing, reason(err))}
}

// again matches the beginning of a refusal that only says what the one who asked
// says too, and better: a guardian knows no names.
func again() *regexp.Regexp { return regexp.MustCompile(`^cannot [a-z]+: `) }

// reason is the error without what would be said twice.
func reason(err error) error {
	text := err.Error()
	if short := again().ReplaceAllString(text, ""); short != text {
		return &shortened{text: short, err: err}
	}
	return err
}

// shortened is an error in fewer words.
type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.err }

// isReported tells that nothing is left to say about an error.
func isReported(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.said
}

// usageOf is the usage line that an error comes with.
func usageOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.usage
	}
	return ""
}

// withUsage completes a usage error with how the verb is used.
func withUsage(cmd *cobra.Command, err error) error {
	out := &failure{cause: causeUsage, code: word(err), hint: hintOf(err), usage: strings.TrimSuffix(cmd.UseLine(), " [flags]"), err: err}
	if out.hint == "" {
		out.hint = "mur help"
		if cmd.HasParent() && cmd.Name() != "help" {
			_, path, _ := strings.Cut(cmd.CommandPath(), " ")
			out.hint += " " + path
		}
	}
	return out
}

// targetStatus is not a failure: it is the status to exit with.
type targetStatus int

func (s targetStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// causeOf finds the cause of any error.
func causeOf(err error) cause {
	var f *failure
	if errors.As(err, &f) {
		return f.cause
	}
	switch client.CodeOf(err) {
	case client.CodeNoSession, client.CodeAmbiguous, client.CodeNotFound:
		return causeNotFound
	case client.CodeNotStarted, client.CodeNotRunning, client.CodeNotEnded:
		return causeState
	case client.CodeUnauthorized, client.CodeForbidden:
		return causeDenied
	case client.CodeConflict:
		return causeConflict
	case client.CodeUnknownOutcome:
		return causeUnknown
	case client.CodeUnreachable, client.CodeGuardianLost, client.CodeVersion:
		return causeUnreachable
	case client.CodeBusy, client.CodeOwnerNotResponding, client.CodeNotDurable:
		return causeBusy
	case client.CodeInvalid, client.CodeTooLarge:
		return causeUsage
	}
	switch {
	case errors.Is(err, sessiondir.ErrNotRetired):
		return causeState
	case errors.Is(err, sessiondir.ErrUnsafe), errors.Is(err, fs.ErrPermission):
		return causeDenied
	case errors.Is(err, unix.ENOSPC):
		return causeBusy
	}
	return causeFailed
}

func hintOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.hint
	}
	var e *client.Error
	if errors.As(err, &e) {
		return e.Hint
	}
	if errors.Is(err, unix.ENOSPC) {
		return "free some space, then repeat it"
	}
	return ""
}

// word is the code of an error in --json.
func word(err error) string {
	if code := client.CodeOf(err); code != "" {
		return string(code)
	}
	var f *failure
	if errors.As(err, &f) && f.code != "" {
		return f.code
	}
	switch causeOf(err) {
	case causeUsage:
		return "usage"
	case causeState:
		return "state"
	case causeNotFound:
		return "not_found"
	case causeDenied:
		return "forbidden"
	case causeConflict:
		return "conflict"
	case causeUnknown:
		return "unknown_outcome"
	case causeUnreachable:
		return "unreachable"
	case causeBusy:
		return "busy"
	case causeTimeout:
		return "timeout"
	case causeNotStarted:
		return "launch_failed"
	case causeLost:
		return "lost"
	default:
		return "failed"
	}
}
