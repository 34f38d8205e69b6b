package script

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// ptyCmd runs a program on a terminal. Each line of the steps is one of
//
//	expect REGEX       output that comes, after what was expected before
//	reject REGEX       output that has not come so far
//	send "TEXT"        what is typed, a Go string
//	sh LINE            a shell line, which must succeed
//	until LINE         a shell line, repeated until it succeeds
//	resize COLS ROWS   a change of the terminal's size
//	kill SIGNAL        a signal to the program
//	hangup             the terminal is closed
//	exit N             the program ends with N; its terminal is as it was
//	killed SIGNAL      it dies of a signal; its terminal is as it was
//
// All output goes to stdout and the file pty.out.
func ptyCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: pty STEPS CMD [ARG...]")
	}
	steps := ts.ReadFile(args[0])
	p, err := startOnPTY(environment(ts), ts.MkAbs("."), args[1:])
	ts.Check(err)
	defer p.close()
	for i, line := range strings.Split(steps, "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == "" || strings.HasPrefix(verb, "#") {
			continue
		}
		if err := p.step(verb, rest); err != nil {
			ts.Fatalf("%s:%d: %s: %v\n--- output\n%q", args[0], i+1, line, err, p.output())
		}
	}
	ts.Stdout().Write(p.output())
	ts.Check(os.WriteFile(ts.MkAbs("pty.out"), p.output(), 0o600))
}

type ptyProgram struct {
	env           []string
	dir           string
	master, slave *os.File
	before        unix.Termios
	cmd           *exec.Cmd
	ended         chan error
	drained       chan struct{}
	gone          bool // the terminal was closed
	over          bool // the end was seen

	mu   sync.Mutex // guards the following
	out  []byte
	more chan struct{}
	seen int
}

func startOnPTY(env []string, dir string, args []string) (*ptyProgram, error) {
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 80, Rows: 24})
	if err != nil {
		return nil, err
	}
	p := &ptyProgram{
		env: env, dir: dir, master: master, slave: slave,
		ended: make(chan error, 1), drained: make(chan struct{}), more: make(chan struct{}),
	}
	if p.before, err = p.termios(); err != nil {
		return nil, err
	}
	path, err := lookPath(args[0], env)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(path, args[1:]...)
	p.cmd.Env, p.cmd.Dir = env, dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read()
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

func lookPath(name string, env []string) (string, error) {
	for _, entry := range env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			for _, dir := range strings.Split(path, ":") {
				if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode()&0o111 != 0 {
					return dir + "/" + name, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s is not in the script's PATH", name)
}

func (p *ptyProgram) close() {
	if !p.over {
		p.cmd.Process.Kill()
		<-p.ended
	}
	if !p.gone {
		p.master.Close()
		p.slave.Close()
	}
}

func (p *ptyProgram) termios() (t unix.Termios, err error) {
	err = ptmx.Control(p.slave, func(fd int) (err error) {
		t, err = ptmx.GetTermios(fd)
		return err
	})
	return t, err
}

func (p *ptyProgram) read() {
	defer close(p.drained)
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.out = append(p.out, buf[:n]...)
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *ptyProgram) output() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.out)
}

func (p *ptyProgram) step(verb, rest string) error {
	switch verb {
	case "expect":
		return p.expect(rest)
	case "reject":
		if re, err := regexp.Compile(rest); err != nil || re.Match(p.output()) {
			return errors.Join(err, errors.New("it is there"))
		}
		return nil
	case "send":
		text, err := strconv.Unquote(rest)
		if err == nil {
			_, err = p.master.Write([]byte(text))
		}
		return err
	case "sh":
		cmd := exec.Command("sh", "-c", rest)
		cmd.Env, cmd.Dir = p.env, p.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	case "until":
		return until(p.env, p.dir, rest)
	case "resize":
		var size ptmx.Size
		if _, err := fmt.Sscan(rest, &size.Cols, &size.Rows); err != nil {
			return err
		}
		return ptmx.Control(p.master, func(fd int) error { return ptmx.SetSize(fd, size) })
	case "kill":
		return p.cmd.Process.Signal(unix.SignalNum("SIG" + rest))
	case "hangup":
		p.gone = true
		p.slave.Close()
		return p.master.Close()
	case "exit", "killed":
		return p.end(verb, rest)
	}
	return errors.New("no such step")
}

func (p *ptyProgram) expect(text string) error {
	re, err := regexp.Compile(text)
	if err != nil {
		return err
	}
	over := time.After(patience)
	for {
		p.mu.Lock()
		at, more := re.FindIndex(p.out[p.seen:]), p.more
		if at != nil {
			p.seen += at[1]
		}
		p.mu.Unlock()
		if at != nil {
			return nil
		}
		select {
		case <-more:
		case <-over:
			return fmt.Errorf("it did not come within %v", patience)
		}
	}
}

func (p *ptyProgram) end(verb, want string) error {
	select {
	case <-p.ended:
		p.over = true
	case <-time.After(patience):
		return fmt.Errorf("the program did not end within %v", patience)
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	got := strconv.Itoa(status.ExitStatus())
	if verb == "killed" {
		got = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
	}
	if got != want || status.Signaled() != (verb == "killed") {
		return fmt.Errorf("its status is %#x (%s)", int(status), got)
	}
	if p.gone {
		return nil
	}
	after, err := p.termios()
	// Without a slave the master comes to its end, after the last byte.
	p.slave.Close()
	<-p.drained
	if err == nil && after != p.before {
		err = fmt.Errorf("the terminal is not as before:\n%+v\n%+v", p.before, after)
	}
	return err
}
