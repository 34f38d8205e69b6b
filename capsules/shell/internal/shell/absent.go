package shell

import (
	"context"
	"fmt"
)

// absent says why a builtin that other shells have is not here, and "" for
// all others.
func absent(name string) string {
	switch name {
	case "kill":
		return "there are no other processes here"
	case "jobs":
		return "no list is kept of what runs in the background (wait waits for it)"
	case "bg", "fg", "disown", "suspend":
		return "there is no job control here"
	case "fc":
		return "lines cannot be called by number here (Up and ^R recall them)"
	case "logout":
		return "this is no login shell (exit ends it)"
	case "newgrp":
		return "there are no groups here"
	case "ulimit":
		return "the limits are those of the capsule and cannot be changed in it"
	case "bind", "caller", "compgen", "complete", "compopt", "enable":
		return "this shell does not have it"
	}
	return ""
}

// runAbsent says why the command is not here.
func runAbsent(_ context.Context, p *process, args []string) (int, error) {
	fmt.Fprintf(p.std.err, "mur shell: %s: %s\n", args[0], absent(args[0]))
	return statusError, nil
}
