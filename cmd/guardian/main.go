// Command mur-guardian holds the control authority over one session. It is started
// by mur and by clients, not by hand.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-8e62c83d/mur/internal/guardian"
	"github.com/seed-8e62c83d/mur/internal/version"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mur-guardian", flag.ContinueOnError)
	flags.SetOutput(stderr)
	session := flags.String("session", "", "serve the session in this `directory`")
	startup := flags.Int("startup-fd", -1, "tell on this `descriptor` in one frame that it is served, or why not")
	adopt := flags.Bool("adopt", false, "take the session over from the owner that started this")
	idle := flags.Duration("idle", 30*time.Second, "leave after so `long` without connection and output")
	show := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	switch {
	case *show:
		fmt.Fprintln(stdout, "mur-guardian", version.String())
		return 0
	case *session == "" || flags.NArg() > 0:
		fmt.Fprintln(stderr, "mur-guardian: cannot run: it takes --session DIR; mur start makes a session and runs it")
		return 2
	}
	return guardian.Run(guardian.Config{Session: *session, StartupFD: *startup, Adopt: *adopt, Idle: *idle}, stderr)
}
