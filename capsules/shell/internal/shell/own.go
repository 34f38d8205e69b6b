package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// ownCommand is a command that needs the shell itself.
type ownCommand func(ctx context.Context, p *process, args []string) (int, error)

func ownCommands() map[string]ownCommand {
	sh := func(ctx context.Context, p *process, args []string) (int, error) { return p.sh(ctx, args) }
	return map[string]ownCommand{
		"echo":    runEcho,
		"type":    runType,
		"command": runCommand,
		"which":   runWhich,
		"help":    runHelp,
		"history": runHistory,
		"sh":      sh,
		"bash":    sh,
	}
}

// write writes to a command's output; ^C and a reader that left end it.
func (p *process) write(ctx context.Context, text string) int {
	if ctx.Err() != nil {
		return cmds.StatusInterrupted
	}
	_, err := io.WriteString(p.std.out, text)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, io.ErrClosedPipe), errors.Is(err, syscall.EPIPE):
		return cmds.StatusBrokenPipe
	}
	fmt.Fprintf(p.std.err, "mur shell: cannot write: %s\n", cmds.Reason(err))
	return statusError
}

// runEcho is the interpreter's echo, except that it notices when nobody reads.
func runEcho(ctx context.Context, p *process, args []string) (int, error) {
	newline, escapes := true, false
	args = args[1:]
	for len(args) > 0 && len(args[0]) > 1 && strings.Trim(args[0], "neE") == "-" {
		for _, letter := range args[0][1:] {
			switch letter {
			case 'n':
				newline = false
			case 'e':
				escapes = true
			case 'E':
				escapes = false
			}
		}
		args = args[1:]
	}
	text := strings.Join(args, " ")
	if escapes {
		var cut bool
		if text, cut = unescape(text); cut {
			newline = false
		}
	}
	if newline {
		text += "\n"
	}
	return p.write(ctx, text), nil
}

// unescape does what echo -e does; cut says that \c ended the output.
func unescape(text string) (out string, cut bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'c':
			return b.String(), true
		case '0':
			i += number(&b, text[i+1:], 8, 3)
		case 'x':
			if n := number(&b, text[i+1:], 16, 2); n > 0 {
				i += n
			} else {
				b.WriteString(`\x`)
			}
		default:
			if at := strings.IndexByte(`abefnrtv\`, text[i]); at >= 0 {
				b.WriteByte("\a\b\x1b\f\n\r\t\v\\"[at])
			} else {
				b.WriteString(text[i-1 : i+1])
			}
		}
	}
	return b.String(), false
}

// number writes the byte that up to most digits name and returns how many
// digits it took.
func number(b *strings.Builder, text string, radix, most int) int {
	n := 0
	for n < most && n < len(text) {
		if _, err := strconv.ParseUint(text[n:n+1], radix, 8); err != nil {
			break
		}
		n++
	}
	value, _ := strconv.ParseUint(text[:n], radix, 16)
	if n > 0 || radix == 8 {
		b.WriteByte(byte(value))
	}
	return n
}

// known says that a name is a command of ours.
func (s *Shell) known(name string) bool {
	_, command := s.commands[name]
	_, own := s.own[name]
	return command || own
}

// runType says what a name is. What is not ours the interpreter knows.
func runType(ctx context.Context, p *process, args []string) (int, error) {
	var options []string
	status := 0
	for _, name := range args[1:] {
		switch {
		case strings.HasPrefix(name, "-"):
			options = append(options, name)
		case p.shell.known(name) && slices.Contains(options, "-t"):
			status = max(status, p.write(ctx, "builtin\n"))
		case p.shell.known(name):
			status = max(status, p.write(ctx, name+" is a shell builtin\n"))
		case absent(name) != "":
			fmt.Fprintf(p.std.err, "type: %s: not found\n", name)
			status = statusError
		default:
			err := builtinStatus(p.hc.Builtin(ctx, slices.Concat([]string{"type"}, options, []string{name})))
			status = max(status, p.shell.status(ctx, p.std.err, err))
		}
	}
	return status, nil
}

// runCommand is command -v and -V.
func runCommand(ctx context.Context, p *process, args []string) (int, error) {
	status := 0
	for _, name := range args[2:] {
		switch {
		case args[1] == "-V":
			got, err := runType(ctx, p, []string{"type", name})
			if err != nil {
				return got, err
			}
			status = max(status, got)
		case p.shell.known(name):
			status = max(status, p.write(ctx, name+"\n"))
		case absent(name) != "":
			status = statusError
		default:
			err := builtinStatus(p.hc.Builtin(ctx, []string{"command", "-v", name}))
			status = max(status, p.shell.status(ctx, p.std.err, err))
		}
	}
	return status, nil
}

// runWhich is command -v with a message.
func runWhich(ctx context.Context, p *process, args []string) (int, error) {
	status := 0
	for _, name := range args[1:] {
		switch {
		case p.shell.known(name), interp.IsBuiltin(name) && absent(name) == "":
			status = max(status, p.write(ctx, name+": shell builtin\n"))
		case syntax.IsKeyword(name):
			status = max(status, p.write(ctx, name+": shell keyword\n"))
		default:
			fmt.Fprintf(p.std.err, "which: no %s here\n", name)
			status = statusError
		}
	}
	return status, nil
}

// languageBuiltins are the interpreter's builtins worth knowing.
func languageBuiltins() []string {
	return strings.Fields("alias break cd continue declare eval exec exit export false getopts let local mapfile popd " +
		"printf pushd pwd read readonly return set shift shopt source test trap true umask unalias unset wait")
}

// runHelp lists the commands, or explains one; with -s it shows only how to
// call it.
func runHelp(ctx context.Context, p *process, args []string) (int, error) {
	s := p.shell
	if len(args) == 1 {
		return p.write(ctx, s.helpText(p)), nil
	}
	status := 0
	short := args[1] == "-s"
	for _, name := range args[1:] {
		cmd, command := s.commands[name]
		text, own := ownHelp()[name]
		if command {
			text = cmd.Line() + "\n    " + cmd.Summary
		} else if reason := absent(name); reason != "" {
			text, own = name+"\n    not here: "+reason, true
		}
		switch {
		case name == "-s":
		case (command || own) && short:
			line, _, _ := strings.Cut(text, "\n")
			status = max(status, p.write(ctx, "usage: "+line+"\n"))
		case command || own:
			status = max(status, p.write(ctx, text+"\n"))
		case short:
			status = max(status, s.status(ctx, p.std.err, builtinStatus(p.hc.Builtin(ctx, []string{"help", "-s", name}))))
		default:
			status = max(status, s.status(ctx, p.std.err, builtinStatus(p.hc.Builtin(ctx, []string{"help", name}))))
		}
	}
	return status, nil
}

// ownUsage is how one of the shell's own commands is called.
func ownUsage(name string) string {
	line, _, _ := strings.Cut(ownHelp()[name], "\n")
	return line
}

func ownHelp() map[string]string {
	return map[string]string{
		"echo":    "echo [-n] [-e] [TEXT...]\n    write the arguments",
		"type":    "type NAME...\n    say what a name is",
		"which":   "which NAME...\n    say whether a command exists",
		"command": "command [-v | -V] NAME [ARGUMENT...]\n    run a command even if a function has its name, or say what it is",
		"help":    "help [NAME...]\n    list the commands, or explain one",
		"history": "history [COUNT]\n    show the lines typed before",
		"sh":      "sh [-c SCRIPT | FILE] [ARGUMENT...]\n    run a script in a shell of its own",
		"bash":    "bash [-c SCRIPT | FILE] [ARGUMENT...]\n    the same as sh",
	}
}

func (s *Shell) helpText(p *process) string {
	names := slices.Sorted(maps.Keys(s.commands))
	for name := range s.own {
		names = append(names, name)
	}
	slices.Sort(names)
	language := append(languageBuiltins(), strings.Fields("if for while until case function select time [[")...)
	slices.Sort(language)
	cols := 80
	if s.onScreen(p.std.out) {
		cols, _ = s.Terminal.Size()
	}
	return "This shell lives inside a capsule: it sees only the files it was given and\n" +
		"starts no other programs. Its commands are built in.\n\n" +
		"Commands (help NAME explains one):\n" + cmds.Columns(names, cols) +
		"\nThe shell language:\n" + cmds.Columns(language, cols) +
		"\nKeys: Tab completes, Up and ^R recall lines, ^C stops, ^D ends.\n"
}

// runHistory shows the lines of the history, or the last few.
func runHistory(ctx context.Context, p *process, args []string) (int, error) {
	history := p.shell.history
	first := 0
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 0 {
			fmt.Fprintf(p.std.err, "history: %q is no number of lines\n", args[1])
			return statusSyntax, nil
		}
		first = max(0, len(history)-n)
	}
	var b strings.Builder
	for i, line := range history[first:] {
		fmt.Fprintf(&b, "%5d  %s\n", first+i+1, strings.ReplaceAll(line, "\n", "\n       "))
	}
	return p.write(ctx, b.String()), nil
}
