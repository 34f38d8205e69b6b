// Package cmds holds the file and text commands of the shell, written in Go
// because a capsule cannot start another program.
//
// A command is a function of a [Call]: its arguments, its three streams, its
// directory and its environment, and nothing else. It owns no state beyond the
// call, ends early when the context does, and never touches the process's own
// streams, directory or environment. What it changes are files; a command that
// is stopped leaves what it had done, except that "sed -i" and "sort -o"
// replace a file whole or not at all.
package cmds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
)

// Statuses every command uses alike.
const (
	statusOK    = 0
	statusError = 1
	statusUsage = 2

	// StatusInterrupted is the status of what ^C ended.
	StatusInterrupted = 130
	// StatusBrokenPipe is the status of a command whose reader went away.
	StatusBrokenPipe = 141
)

// Terminal is the terminal a pager draws on.
type Terminal struct {
	// Size returns the size in cells.
	Size func() (cols, rows int)
	// ReadKeys returns the bytes of the next key or keys, or io.EOF.
	ReadKeys func(ctx context.Context) ([]byte, error)
}

// Call is one run of a command.
type Call struct {
	Args   []string // with the command's name first
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Dir    string // absolute
	Env    map[string]string
	Files  *fsys.FS

	// Run runs another command of the shell with this call's directory and
	// output; the commands that start others use it. A nil stdin is an empty
	// one.
	Run func(ctx context.Context, args []string, env map[string]string, stdin io.Reader) int
	// Terminal is set when standard output is the terminal.
	Terminal *Terminal

	out    buffer
	broken bool
	line   string // how it is called, for --help
	asked  bool   // --help was among the options
}

// Command is an entry of the table.
type Command struct {
	Name    string
	Usage   string // the arguments
	Summary string // one line
	Run     func(ctx context.Context, c *Call) int
}

// Line is the command with its arguments, as a usage message shows it.
func (cmd Command) Line() string { return strings.TrimSpace(cmd.Name + " " + cmd.Usage) }

// Invoke runs the command with its output buffered and says how it ended.
func (cmd Command) Invoke(ctx context.Context, c *Call) int {
	if c.Stdin == nil {
		c.Stdin = strings.NewReader("")
	}
	c.Stdin = &input{ctx: ctx, call: c, from: c.Stdin}
	c.out = buffer{bufio.NewWriterSize(&output{ctx: ctx, call: c, to: c.Stdout}, 8<<10)}
	c.line = cmd.Line()
	status := statusOK
	if len(c.Args) > 1 && c.Args[1] == "--help" {
		c.println("usage: " + c.line)
	} else {
		status = cmd.Run(ctx, c)
	}
	c.flush()
	switch {
	case c.broken:
		return StatusBrokenPipe
	case ctx.Err() != nil:
		return StatusInterrupted
	}
	return status
}

// buffer is a command's output on its way. It has no ReadFrom, and so is not a
// *bufio.Writer: io.Copy would let that one fill its buffer straight from
// [input], which flushes the same buffer before it reads, and what was flushed
// would be written again.
type buffer struct{ to *bufio.Writer }

func (b buffer) Write(p []byte) (int, error)          { return b.to.Write(p) }
func (b buffer) WriteString(text string) (int, error) { return b.to.WriteString(text) }
func (b buffer) WriteByte(ch byte) error              { return b.to.WriteByte(ch) }
func (b buffer) WriteRune(r rune) (int, error)        { return b.to.WriteRune(r) }

// output writes until the context ends and remembers that the reader left.
type output struct {
	ctx  context.Context
	call *Call
	to   io.Writer
}

func (o *output) Write(p []byte) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := o.to.Write(p)
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) {
		o.call.broken = true
	}
	return n, err
}

// input shows what was written before it waits for more, so that a filter
// typed at a terminal answers line by line.
type input struct {
	ctx  context.Context
	call *Call
	from io.Reader
}

func (i *input) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	i.call.flush()
	return i.from.Read(p)
}

// flush reports a failure once; a reader that left is no failure to report.
func (c *Call) flush() {
	err := c.out.to.Flush()
	if err != nil && !c.broken && !errors.Is(err, context.Canceled) && !errors.Is(err, errReported) {
		c.errorf("cannot write: %s", reason(err))
		c.out.to.Reset(refusing{})
	}
}

// errReported is returned by a stream whose failure was already told.
var errReported = errors.New("already reported")

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errReported }

// stopped says that going on is useless: ^C, or nobody reads the output.
func (c *Call) stopped(ctx context.Context) bool { return c.broken || ctx.Err() != nil }

func (c *Call) name() string { return c.Args[0] }

// errorf writes a message with the command's name before it.
func (c *Call) errorf(format string, args ...any) {
	fmt.Fprintf(c.Stderr, "%s: %s\n", c.name(), fmt.Sprintf(format, args...))
}

// fail writes a message and returns the status of an error.
func (c *Call) fail(format string, args ...any) int {
	c.errorf(format, args...)
	return statusError
}

// usage writes a message about the arguments, or how to call the command when
// that was asked.
func (c *Call) usage(format string, args ...any) int {
	if c.asked {
		c.println("usage: " + c.line)
		return statusOK
	}
	c.errorf(format, args...)
	fmt.Fprintf(c.Stderr, "hint: help %s\n", c.name())
	return statusUsage
}

// fileError reports what could not be done with a file, by the name the user
// gave it.
func (c *Call) fileError(verb, name string, err error) int {
	if errors.Is(err, context.Canceled) || errors.Is(err, io.ErrClosedPipe) {
		return statusError
	}
	return c.fail("cannot %s %s: %s", verb, name, reason(err))
}

// path makes a name the user gave absolute.
func (c *Call) path(name string) string { return Abs(c.Dir, name) }

// Abs makes a name absolute and clean.
func Abs(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// reason is the part of an error that the user has not typed.
func reason(err error) string {
	var pathErr *fs.PathError
	var linkErr interface{ Unwrap() error }
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, syscall.ENOTEMPTY):
		return "directory not empty"
	case errors.Is(err, fs.ErrExist):
		return "file exists"
	case errors.Is(err, syscall.EISDIR):
		return "is a directory"
	case errors.Is(err, syscall.ENOTDIR):
		return "not a directory"
	case errors.As(err, &pathErr):
		err = pathErr.Err
	case errors.As(err, &linkErr):
		err = linkErr.Unwrap()
	}
	return strings.ToLower(err.Error())
}

// Reason is the cause of a file error in the words all commands use.
func Reason(err error) string { return reason(err) }

// open opens a file to read, or standard input for "-".
func (c *Call) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.Stdin), nil
	}
	file, err := c.Files.Open(c.path(name))
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, syscall.EISDIR
	}
	return struct {
		io.Reader
		io.Closer
	}{&input{ctx: ctx, call: c, from: file}, file}, nil
}

// eachFile calls fn with every named file, or standard input when there is no
// name. It reports what cannot be opened or read and goes on.
func (c *Call) eachFile(ctx context.Context, names []string, fn func(name string, r io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := statusOK
	for _, name := range names {
		if c.stopped(ctx) {
			break
		}
		file, err := c.open(ctx, name)
		if err != nil {
			status = c.fileError("open", name, err)
			continue
		}
		err = fn(name, file)
		file.Close()
		if err != nil && !c.stopped(ctx) {
			status = c.fileError("read", name, err)
		}
	}
	return status
}

// errStop ends lines early without an error.
var errStop = errors.New("enough")

// lines calls fn with every line without its end; last says that the line had
// no end. fn may return errStop.
func lines(r io.Reader, fn func(line string, last bool) error) error {
	buffered := bufio.NewReaderSize(r, 32<<10)
	for {
		line, err := buffered.ReadString('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if line == "" {
			return nil
		}
		text, ended := strings.CutSuffix(line, "\n")
		if err := fn(text, !ended); err == errStop {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// run runs another command after what was written so far is shown.
func (c *Call) run(ctx context.Context, args []string, env map[string]string, stdin io.Reader) int {
	c.flush()
	if c.stopped(ctx) {
		return statusError
	}
	return c.Run(ctx, args, env, stdin)
}

// println writes a line to the buffered output.
func (c *Call) println(line string) error {
	c.out.WriteString(line)
	return c.out.WriteByte('\n')
}
