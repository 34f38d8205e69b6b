package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// script runs a text to its end.
func (s *Shell) script(ctx context.Context, std streams, dir string, env []string, c call) int {
	file, err := newParser().Parse(strings.NewReader(c.text), c.name)
	if err != nil {
		fmt.Fprintf(std.err, "%s\n", syntaxMessage(err))
		return statusSyntax
	}
	r, err := s.runner(std, dir, env, c)
	if err != nil {
		fmt.Fprintf(std.err, "%s: %v\n", c.name, err)
		return statusSyntax
	}
	return s.status(ctx, std.err, r.Run(ctx, file))
}

// scriptFile runs a file.
func (s *Shell) scriptFile(ctx context.Context, std streams, dir string, env []string, c call) int {
	file, err := s.Files.Open(cmds.Abs(dir, c.file))
	if err != nil {
		fmt.Fprintf(std.err, "mur shell: cannot open %s: %s\n", c.file, cmds.Reason(err))
		return statusNotFound
	}
	data, err := io.ReadAll(file)
	file.Close()
	if err == nil {
		err = notScript(data)
	}
	if err != nil {
		fmt.Fprintf(std.err, "mur shell: cannot run %s: %s\n", c.file, cmds.Reason(err))
		return statusNotExecutable
	}
	c.text = string(data)
	return s.script(ctx, std, dir, env, c)
}

// statusNotExecutable is the status of a file that is no script.
const statusNotExecutable = 126

// notScript refuses what is not text, and scripts of other languages.
func notScript(data []byte) error {
	first, _, _ := strings.Cut(string(data[:min(len(data), 256)]), "\n")
	if strings.ContainsRune(first, 0) {
		return errors.New("it is no script, and programs cannot be started here")
	}
	if words := strings.Fields(strings.TrimPrefix(first, "#!")); strings.HasPrefix(first, "#!") && len(words) > 0 {
		if !strings.HasSuffix(words[0], "sh") && !strings.HasSuffix(words[len(words)-1], "sh") {
			return fmt.Errorf("there is no %s here", words[0])
		}
	}
	return nil
}

// piped runs standard input, each command as soon as it is complete, so that
// a writer at the other end sees it done.
func (s *Shell) piped(ctx context.Context, dir string, c call) int {
	std := streams{s.Stdin, s.Stdout, s.Stderr}
	// The commands find the end of the input: what the parser has read ahead
	// cannot be given back to them.
	r, err := s.runner(streams{strings.NewReader(""), std.out, std.err}, dir, s.Env, c)
	if err != nil {
		fmt.Fprintf(std.err, "mur shell: %v\n", err)
		return statusSyntax
	}
	status := 0
	for stmts, err := range newParser().InteractiveSeq(s.Stdin) {
		if err != nil {
			fmt.Fprintf(std.err, "%s\n", syntaxMessage(err))
			status = statusSyntax
			break
		}
		for _, stmt := range stmts {
			status = s.status(ctx, std.err, r.Run(ctx, stmt))
			if r.Exited() {
				return status
			}
		}
	}
	s.runExitTrap(ctx, r)
	return status
}

// runExitTrap ends an interpreter that ran statement by statement.
func (s *Shell) runExitTrap(ctx context.Context, r *interp.Runner) {
	s.status(ctx, s.Stderr, r.Run(ctx, &syntax.File{}))
}

// status is the exit status in what the interpreter returned. An error that is
// no status is told.
func (s *Shell) status(ctx context.Context, stderr io.Writer, err error) int {
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil:
		return cmds.StatusInterrupted
	}
	fmt.Fprintf(stderr, "mur shell: %v\n", err)
	return statusError
}

// syntaxMessage says where a script is wrong.
func syntaxMessage(err error) string { return "mur shell: syntax error: " + err.Error() }
