package shell

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
)

// ownPrefix marks a call of one of our commands whose name the interpreter
// takes for its own.
const ownPrefix = "\x00"

// override sends the calls of a few of the interpreter's builtins to ours.
func (s *Shell) override(_ context.Context, args []string) ([]string, error) {
	name := args[0]
	_, own := s.own[name]
	help := len(args) > 1 && args[1] == "--help" && interp.IsBuiltin(name)
	switch {
	case absent(name) != "":
	case name == "echo", name == "type", name == "history", name == "help":
	case name == "command" && len(args) > 1 && (args[1] == "-v" || args[1] == "-V" || help):
	case name == "exec" && len(args) > 1 && s.screen != nil && !s.runnable(args[1]):
		// It cannot be run, which must not cost the user the session.
		args = args[1:]
	case help && !own && !takesAnything(name):
		args = []string{"help", "-s", name}
	default:
		return args, nil
	}
	return append([]string{ownPrefix + args[0]}, args[1:]...), nil
}

// takesAnything says that --help is an argument like others to a builtin.
func takesAnything(name string) bool {
	switch name {
	case ":", "true", "false", "test", "[", "echo":
		return true
	}
	return false
}

// runnable says that exec finds something by a name.
func (s *Shell) runnable(name string) bool {
	return s.known(name) || interp.IsBuiltin(name) && absent(name) == "" || strings.Contains(name, "/")
}

// exec runs what is neither a function nor a builtin of the interpreter.
func (s *Shell) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	args = append([]string{strings.TrimPrefix(args[0], ownPrefix)}, args[1:]...)
	p := &process{shell: s, hc: hc, std: streams{hc.Stdin, hc.Stdout, hc.Stderr}, env: exported(hc)}
	status, err := p.run(ctx, args)
	if err != nil {
		return err
	}
	switch status {
	case 0:
		return nil
	case cmds.StatusBrokenPipe:
		// Elsewhere the signal ends this side of the pipeline; here a loop
		// around the command would go on writing to nobody.
		return hc.Builtin(ctx, []string{"exit", fmt.Sprint(status)})
	}
	return interp.ExitStatus(uint8(status))
}

// process is one command that runs.
type process struct {
	shell *Shell
	hc    interp.HandlerContext
	std   streams
	env   map[string]string
}

// exported are the variables a command sees.
func exported(hc interp.HandlerContext) map[string]string {
	env := map[string]string{}
	hc.Env.Each(func(name string, v expand.Variable) bool {
		if v.Exported && v.Kind == expand.String {
			env[name] = v.Str
		} else {
			delete(env, name)
		}
		return true
	})
	env["PWD"] = hc.Dir
	return env
}

// run finds the command and runs it. The error is the interpreter's own, for
// what changes its flow.
func (p *process) run(ctx context.Context, args []string) (int, error) {
	s := p.shell
	name := args[0]
	if own, ok := s.own[name]; ok {
		if len(args) > 1 && args[1] == "--help" && !takesAnything(name) {
			return p.write(ctx, "usage: "+ownUsage(name)+"\n"), nil
		}
		return own(ctx, p, args)
	}
	if absent(name) != "" {
		return runAbsent(ctx, p, args)
	}
	if cmd, ok := s.commands[name]; ok {
		c := p.call(args)
		status := cmd.Invoke(ctx, c)
		if c.Terminal != nil {
			s.discipline.Keys(false)
		}
		return status, nil
	}
	if strings.Contains(name, "/") {
		return p.file(ctx, args), nil
	}
	if interp.IsBuiltin(name) { // only exec and other commands ask for one here
		return s.status(ctx, p.std.err, builtinStatus(p.hc.Builtin(ctx, args))), nil
	}
	fmt.Fprintf(p.std.err, "mur shell: %s: command not found (help lists the commands)\n", name)
	return statusNotFound, nil
}

// call makes the call of a command.
func (p *process) call(args []string) *cmds.Call {
	c := &cmds.Call{
		Args: args, Stdin: p.std.in, Stdout: p.std.out, Stderr: p.std.err,
		Dir: p.hc.Dir, Env: p.env, Files: p.shell.Files, Run: p.nested,
	}
	if p.shell.onScreen(p.std.out) {
		c.Terminal = p.shell.pagerTerminal()
	}
	return c
}

// nested runs a command for another one, such as xargs.
func (p *process) nested(ctx context.Context, args []string, env map[string]string, stdin io.Reader) int {
	inner := *p
	inner.env = env
	inner.std.in = stdin
	if stdin == nil {
		inner.std.in = strings.NewReader("")
	}
	status, err := inner.run(ctx, args)
	if err != nil {
		return statusError
	}
	return status
}

// builtinStatus makes an exit status of what a builtin returned, whose own
// type says it only in its text.
func builtinStatus(err error) error {
	var status uint8
	if err == nil {
		return nil
	}
	if _, scanErr := fmt.Sscanf(err.Error(), "builtin exit status %d", &status); scanErr == nil {
		if status == 0 {
			return nil
		}
		return interp.ExitStatus(status)
	}
	return err
}

// file runs a script by its path.
func (p *process) file(ctx context.Context, args []string) int {
	full := cmds.Abs(p.hc.Dir, args[0])
	if info, err := p.shell.Files.Stat(full); err == nil && info.IsDir() {
		fmt.Fprintf(p.std.err, "mur shell: %s: is a directory\n", args[0])
		return statusNotExecutable
	}
	return p.shell.scriptFile(ctx, p.std, p.hc.Dir, p.environ(), call{file: args[0], name: args[0], params: args[1:]})
}

func (p *process) environ() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		list = append(list, name+"="+p.env[name])
	}
	return list
}

// sh runs a script in a shell of its own.
func (p *process) sh(ctx context.Context, args []string) (int, error) {
	c, err := parseArgs(args[1:])
	if err != nil {
		fmt.Fprintf(p.std.err, "%s: %v\n", args[0], err)
		return statusSyntax, nil
	}
	switch {
	case c.file != "":
		return p.shell.scriptFile(ctx, p.std, p.hc.Dir, p.environ(), c), nil
	case !c.inline:
		data, err := io.ReadAll(p.std.in)
		if err != nil {
			fmt.Fprintf(p.std.err, "%s: cannot read the script: %s\n", args[0], cmds.Reason(err))
			return statusError, nil
		}
		c.text = string(data)
	}
	return p.shell.script(ctx, streams{p.std.in, p.std.out, p.std.err}, p.hc.Dir, p.environ(), c), nil
}
