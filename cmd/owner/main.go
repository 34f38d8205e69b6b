// Command mur-owner is the parent of a session's program. It is started by
// mur-guardian, never by hand.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/seed-8e62c83d/mur/internal/owner"
	"github.com/seed-8e62c83d/mur/internal/version"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mur-owner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	show := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "mur-owner: cannot use argument %q: it takes none\n", flags.Arg(0))
		return 2
	}
	if *show {
		fmt.Fprintln(stdout, "mur-owner", version.String())
		return 0
	}
	return owner.Run(stderr, version.String())
}
