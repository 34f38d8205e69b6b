// Command shell is the capsule people meet first: an interactive shell with
// the usual file commands built in, which sees only the files its capsule was
// given. See package internal/shell for what it does; this file only hands the
// process's arguments, streams and environment to it.
//
// It must be built by "go run ./capsules/shell/mkwasm": a plain build for
// wasip1 works too, but has neither pipes nor here-documents.
package main

import (
	"io"
	"os"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/shell"
	"github.com/seed-8e62c83d/mur/sdk/guest"
)

func main() {
	stdin, stdout, stderr := guest.Streams()
	os.Exit(shell.Run(shell.Config{
		Args:     os.Args[1:],
		Stdin:    input{os.Stdin, stdin},
		Stdout:   output{os.Stdout, stdout},
		Stderr:   output{os.Stderr, stderr},
		Env:      os.Environ(),
		Files:    fsys.New(fsys.Mounts()),
		Terminal: terminal(),
	}))
}

// input and output are streams that know whether they are a terminal, which
// "test -t" asks.
type (
	input struct {
		io.Reader
		terminal bool
	}
	output struct {
		io.Writer
		terminal bool
	}
)

func (i input) IsTerminal() bool  { return i.terminal }
func (o output) IsTerminal() bool { return o.terminal }

// terminal is the terminal, when both ends of the conversation are one.
func terminal() *shell.Terminal {
	if stdin, stdout, _ := guest.Streams(); !stdin || !stdout {
		return nil
	}
	return &shell.Terminal{
		Size: func() (cols, rows int) {
			cols, rows, err := guest.TerminalSize()
			if err != nil || cols < 1 || rows < 1 {
				return 80, 24
			}
			return cols, rows
		},
		SetRaw:  guest.SetRaw,
		Changes: guest.SizeChanges,
	}
}
