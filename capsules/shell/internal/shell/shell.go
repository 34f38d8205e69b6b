// Package shell is the shell itself: it joins the interpreter, the commands,
// the line editor and the view of the files, and runs scripts or a session at
// a terminal.
//
// The language is Bash as mvdan.cc/sh understands it, not bare POSIX: every
// POSIX script runs, and what people paste from elsewhere does too. The
// package owns the history file, which it only appends to and replaces whole,
// so that a crash costs the last line at most. It starts no process, handles
// no signal, and touches neither the process's streams nor its environment:
// all comes in by [Config].
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/line"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// Statuses of the shell itself.
const (
	statusError    = 1
	statusSyntax   = 2
	statusNotFound = 127
)

// Terminal is what the shell can do with its terminal.
type Terminal struct {
	// Size returns the size in cells.
	Size func() (cols, rows int)
	// SetRaw turns raw mode on and off.
	SetRaw func(on bool) error
	// Changes counts the changes of the size.
	Changes func() uint32
}

// Config is all the shell is given.
type Config struct {
	Args   []string // without the name of the shell
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Env    []string // NAME=VALUE
	Files  *fsys.FS
	// Terminal is set when standard input and output are one.
	Terminal *Terminal
}

// Shell runs scripts in one environment. [Run] makes it.
type Shell struct {
	Config
	commands map[string]cmds.Command
	own      map[string]ownCommand
	home     string

	// Only in a session at a terminal:
	screen     *screen
	discipline *line.Discipline
	history    []string
	functions  func() []string
}

// Run does what the arguments say and returns the exit status.
func Run(cfg Config) int {
	s := &Shell{Config: cfg, commands: map[string]cmds.Command{}, own: ownCommands()}
	for _, cmd := range cmds.Table() {
		s.commands[cmd.Name] = cmd
	}
	dir := s.startDir()
	s.home = dir
	call, err := parseArgs(cfg.Args)
	if err != nil {
		fmt.Fprintf(cfg.Stderr, "mur shell: %v\n", err)
		return statusSyntax
	}
	ctx := context.Background()
	switch {
	case call.help:
		fmt.Fprint(cfg.Stdout, usageText)
		return 0
	case call.inline:
		return s.script(ctx, streams{cfg.Stdin, cfg.Stdout, cfg.Stderr}, dir, cfg.Env, call)
	case call.file != "":
		return s.scriptFile(ctx, streams{cfg.Stdin, cfg.Stdout, cfg.Stderr}, dir, cfg.Env, call)
	case cfg.Terminal != nil:
		return s.session(dir, call)
	}
	return s.piped(ctx, dir, call)
}

const usageText = `usage: shell [OPTIONS] [FILE [ARGUMENT...]]
       shell [OPTIONS] -c SCRIPT [NAME [ARGUMENT...]]

Without FILE and -c the shell talks to its terminal, or reads a script from
its input. OPTIONS are those of set: -e -u -x -f -n -a. "help" inside the shell
lists the commands.
`

// call is what the arguments of a shell ask for.
type call struct {
	help    bool
	inline  bool
	text    string   // the script of -c
	file    string   // or the file of a script
	name    string   // $0
	options []string // for set
	params  []string
}

func parseArgs(args []string) (call, error) {
	c := call{name: "shell"}
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		if arg == "--help" {
			c.help = true
			return c, nil
		}
		for _, letter := range arg[1:] {
			switch {
			case letter == 'c' && arg[0] == '-':
				c.inline = true
			case strings.ContainsRune("aefnux", letter):
				c.options = append(c.options, arg[:1]+string(letter))
			case letter == 'i' || letter == 's' || letter == 'l':
			default:
				return c, fmt.Errorf("unknown option %s (shell --help lists them)", arg)
			}
		}
	}
	if c.inline {
		if len(args) == 0 {
			return c, errors.New("option -c needs a script")
		}
		c.text, args = args[0], args[1:]
		if len(args) > 0 {
			c.name, args = args[0], args[1:]
		}
	} else if len(args) > 0 {
		c.file, c.name, args = args[0], args[0], args[1:]
	}
	c.params = args
	return c, nil
}

// startDir is where PWD points, when that is a directory.
func (s *Shell) startDir() string {
	if dir := lookup(s.Env, "PWD"); path.IsAbs(dir) {
		if info, err := s.Files.Stat(path.Clean(dir)); err == nil && info.IsDir() {
			return path.Clean(dir)
		}
	}
	return s.Files.Home()
}

func lookup(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// streams are the three standard streams of a script or command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// runner returns an interpreter that knows our commands and our files.
func (s *Shell) runner(std streams, dir string, env []string, c call) (*interp.Runner, error) {
	if lookup(env, "HOME") == "" {
		env = append(env[:len(env):len(env)], "HOME="+s.home)
	}
	// SHELL stays unset: it names a program to start, and there is none.
	params := append(append([]string(nil), c.options...), "--")
	return interp.New(
		// Dir as an option would look for the directory with the system's own
		// idea of files, to which "/" may not exist.
		func(r *interp.Runner) error {
			r.Dir = dir
			return nil
		},
		interp.Env(expand.ListEnviron(env...)),
		interp.StdIO(std.in, std.out, std.err),
		interp.Params(append(params, c.params...)...),
		interp.CallHandler(s.override),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(s.open),
		interp.ReadDirHandler2(func(_ context.Context, name string) ([]fs.DirEntry, error) {
			return s.Files.ReadDir(path.Clean(name))
		}),
		interp.StatHandler(func(_ context.Context, name string, follow bool) (fs.FileInfo, error) {
			if follow {
				return s.Files.Stat(path.Clean(name))
			}
			return s.Files.Lstat(path.Clean(name))
		}),
	)
}

// open opens the files of redirections. The interpreter wants a *fs.PathError
// for what the script may survive.
func (s *Shell) open(ctx context.Context, name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	hc := interp.HandlerCtx(ctx)
	file, err := s.Files.OpenFile(cmds.Abs(hc.Dir, name), flag, perm)
	if err != nil {
		return nil, &fs.PathError{Op: "cannot open", Path: name, Err: errors.New(cmds.Reason(err))}
	}
	return file, nil
}

// newParser returns a parser of the shell's language.
func newParser() *syntax.Parser { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }
