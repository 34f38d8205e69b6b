package wasmhost

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/seed-8e62c83d/mur/internal/capsule"
	"golang.org/x/sys/unix"
)

// onTerminal runs the probe in a process that leads a session on a terminal of its own, as a shell starts one.
type onTerminal struct {
	*process
	master *os.File
	slave  *os.File // kept open to look at the modes after the end
	out    *lines
	before unix.Termios
}

func startOnTerminal(t *testing.T, m *capsule.Manifest, args ...string) *onTerminal {
	t.Helper()
	p := &onTerminal{process: runnerCmd(t, runnerJob{Manifest: m, Args: append([]string{"tty"}, args...)})}
	p.master, p.slave = openTTY(t)
	t.Cleanup(func() { p.slave.Close() })
	if err := pty.Setsize(p.master, &pty.Winsize{Cols: 70, Rows: 12}); err != nil {
		t.Fatal(err)
	}
	p.before = modesOf(t, p.slave)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = collect(p.master)
	return p
}

// openTTY gives a terminal whose master can be closed while another goroutine reads it, which needs Go's poller.
func openTTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "master"), slave
}

func modesOf(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

func (p *onTerminal) typed(t *testing.T, text string) {
	t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// end waits for the guest, checks that the terminal is as it was, and gives the exit code and what was shown.
func (p *onTerminal) end(t *testing.T) (int, string) {
	t.Helper()
	code, _ := p.process.end(t)
	if after := modesOf(t, p.slave); after != p.before {
		t.Errorf("the terminal was %+v and is %+v", p.before, after)
	}
	p.slave.Close()
	return code, strings.ReplaceAll(p.out.end(t), "\r\n", "\n")
}

func TestATerminalIsOneToTheGuest(t *testing.T) {
	p := startOnTerminal(t, manifest(), "isatty", "size", "badsize", "changes", "raw7")
	code, out := p.end(t)
	if code != 0 || out != "isatty true true true streams 7\nsize 0 70 12\nbadsize 21\nchanges 0\nraw7 28\n" {
		t.Fatalf("%d %q", code, out)
	}
}

func TestWhatIsNoTerminalIsNone(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, out := call(t, manifest(), func(c *Config) { c.Stdin, c.Stderr = null, null }, "tty", "isatty", "size", "raw", "changes")
	if out != "isatty false false false streams 0\nsize 59 0 0\nraw 59\nchanges 0\n" {
		t.Fatalf("%q", out)
	}
}

func TestWithoutTheGrantTheImportsRefuse(t *testing.T) {
	none := manifest(func(m *capsule.Manifest) { m.Capabilities.Terminal = nil })
	if _, out := startOnTerminal(t, none, "size", "raw", "changes", "isatty").end(t); out != "size 76 0 0\nraw 76\nchanges 0\nisatty true true true streams 0\n" {
		t.Fatalf("%q", out)
	}
	cooked := manifest(func(m *capsule.Manifest) { m.Capabilities.Terminal.Raw = false })
	if _, out := startOnTerminal(t, cooked, "size", "raw").end(t); out != "size 0 70 12\nraw 76\n" {
		t.Fatalf("%q", out)
	}
}

func TestTheEnvironmentDescribesTheTerminal(t *testing.T) {
	p := runnerCmd(t, runnerJob{Manifest: manifest(), Args: []string{"env"}})
	master, slave := openTTY(t)
	if err := pty.Setsize(master, &pty.Winsize{Cols: 91, Rows: 33}); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdin, p.cmd.Stdout = slave, slave
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	out := collect(master)
	p.end(t)
	if got := out.end(t); got != "COLUMNS=91|LINES=33|TERM=xterm|PWD=/work\r\n" {
		t.Fatalf("%q", got)
	}
}

func TestRawModeHandsOverEveryByteAtOnceAndIsUndone(t *testing.T) {
	p := startOnTerminal(t, manifest(), "raw", "read", "cooked", "read")
	p.out.await(t, "reading")
	p.typed(t, "\r\x1a")
	p.out.await(t, `read "\r\x1a" <nil>`)
	p.out.await(t, "cooked 0\r\nreading\r\n")
	p.typed(t, "line\r")
	code, out := p.end(t)
	if code != 0 || !strings.Contains(out, "line\nread \"line\\n\" <nil>\n") {
		t.Fatalf("%d %q", code, out)
	}
}

func TestTheTerminalIsRestoredWhateverEndsTheGuest(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		typed string
		sig   syscall.Signal
		code  int
	}{
		"exit":     {[]string{"raw"}, "", 0, 0},
		"panic":    {[]string{"raw", "panic"}, "", 0, 2},
		"SIGTERM":  {[]string{"raw", "read"}, "", syscall.SIGTERM, 143},
		"SIGHUP":   {[]string{"raw", "read"}, "", syscall.SIGHUP, 129},
		"ctrl-c":   {[]string{"raw", "read"}, "\x03", 0, 130},
		"quit":     {[]string{"raw", "read"}, "\x1c", 0, 131},
		"line ^C":  {[]string{"read"}, "half\x03", 0, 130},
		"line ^\\": {[]string{"read"}, "\x1c", 0, 131},
	} {
		t.Run(name, func(t *testing.T) {
			p := startOnTerminal(t, manifest(), c.args...)
			if c.typed != "" || c.sig != 0 {
				p.out.await(t, "reading")
				p.typed(t, c.typed)
				if c.sig != 0 {
					_ = p.cmd.Process.Signal(c.sig)
				}
			}
			if code, out := p.end(t); code != c.code {
				t.Fatalf("%d %q", code, out)
			}
		})
	}
}

func TestCtrlZDoesNotSuspend(t *testing.T) {
	p := startOnTerminal(t, manifest(), "read")
	p.out.await(t, "reading")
	p.typed(t, "\x1az\r")
	if code, out := p.end(t); code != 0 || !strings.Contains(out, `read "\x1az\n"`) {
		t.Fatalf("%d %q", code, out)
	}
}

func TestCtrlCIsInputWhenTheManifestSaysSo(t *testing.T) {
	input := manifest(func(m *capsule.Manifest) { m.Capabilities.Terminal.Interrupt = capsule.InterruptInput })
	for name, args := range map[string][]string{"line": {"read", "read"}, "raw": {"raw", "read", "read"}} {
		t.Run(name, func(t *testing.T) {
			p := startOnTerminal(t, input, args...)
			p.out.await(t, "reading")
			p.typed(t, "\x03")
			p.out.await(t, `read "\x03" <nil>`)
			p.typed(t, "\x1c\r")
			code, out := p.end(t)
			if code != 0 || !strings.Contains(out, `read "\x1c`) {
				t.Fatalf("%d %q", code, out)
			}
		})
	}
	p := startOnTerminal(t, input, "read")
	p.out.await(t, "reading")
	p.typed(t, "half\x03")
	if code, out := p.end(t); code != 0 || !strings.Contains(out, `read "half\x03" <nil>`) {
		t.Fatalf("a line begun before ^C: %d %q", code, out)
	}
}

func TestAResizeIsCounted(t *testing.T) {
	p := startOnTerminal(t, manifest(), "changes", "await-change", "size", "changes")
	p.out.await(t, "waiting")
	// By the slave: Setsize on a master that the collector may close at the same time is a race.
	if err := pty.Setsize(p.slave, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	if code, out := p.end(t); code != 0 || out != "changes 0\nwaiting\nchanged\nsize 0 80 24\nchanges 1\n" {
		t.Fatalf("%d %q", code, out)
	}
}

func TestAHangupOfTheTerminalEndsTheGuest(t *testing.T) {
	p := startOnTerminal(t, manifest(), "raw", "read")
	p.out.await(t, "reading")
	p.slave.Close()
	p.master.Close()
	if code, res := p.process.end(t); code != 129 || res.Reason != HungUp {
		t.Fatalf("%d %+v", code, res)
	}
}

func TestNonBlockingInputSaysAgain(t *testing.T) {
	g := start(t, manifest(), nil, "tty", "eagain")
	if res, out := g.wait(t); res.ExitCode != 0 || out != "eagain 6\n" {
		t.Fatalf("%+v %q", res, out)
	}
}

func TestEndOfFileOnATerminalReachesTheGuest(t *testing.T) {
	p := startOnTerminal(t, manifest(), "all")
	p.typed(t, "one\r\x04")
	if code, out := p.end(t); code != 0 || !strings.Contains(out, `all "one\n" <nil>`) {
		t.Fatalf("%d %q", code, out)
	}
}
