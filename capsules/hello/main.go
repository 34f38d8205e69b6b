// Command hello is the smallest useful capsule: it says hello, shows what it
// was given, and ends with the status it is asked for. It reads nothing,
// writes only to its standard streams and keeps no state.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/seed-8e62c83d/mur/sdk/guest"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: what --exit asks for, 2 for a wrong call.
func run(args []string, stdout, stderr io.Writer) int {
	status := 0
	for i := 0; i < len(args); i++ {
		value, given := strings.CutPrefix(args[i], "--exit=")
		if args[i] == "--exit" && i+1 < len(args) {
			value, given = args[i+1], true
			args = append(args[:i:i], args[i+1:]...)
		}
		if !given {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > 255 {
			fmt.Fprintf(stderr, "hello: cannot exit with %q: a number from 0 to 255 is needed\n", value)
			return 2
		}
		status = n
		args = append(args[:i:i], args[i+1:]...)
		i--
	}
	fmt.Fprintln(stdout, "hello from a capsule")
	if len(args) > 0 {
		fmt.Fprintf(stdout, "arguments: %s\n", strings.Join(args, " "))
	}
	if cols, rows, err := guest.TerminalSize(); err == nil {
		fmt.Fprintf(stdout, "terminal: %d columns, %d rows\n", cols, rows)
	}
	return status
}
