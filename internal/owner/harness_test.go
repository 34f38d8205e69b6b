package owner_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// patience bounds every wait.
const patience = time.Minute

// ownerPath is where TestMain puts the real executable.
func ownerPath() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("mur-owner-test-%d", os.Getpid()))
}

func TestMain(m *testing.M) {
	build := exec.Command("go", "build", "-race", "-o", ownerPath(), "github.com/seed-8e62c83d/mur/cmd/owner")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Printf("cannot build the owner: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.Remove(ownerPath())
		os.Exit(code)
	}))
}

// guardian does what a guardian does for its owner, and no more.
type guardian struct {
	t       *testing.T
	dir     *sessiondir.Dir
	out     *os.File
	master  *os.File
	pipeR   *os.File
	pipeW   *os.File
	conn    *ownerlink.Conn
	channel *os.File // conn's, for what is no message
	capture *output.Capture
	ran     chan struct{} // closed when the capture has ended
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the owner has ended
	states  chan ownerlink.State
	last    ownerlink.State
	seen    []lifecycle.Outcome
	seq     uint64
	hangUp  func()
}

func launch(program string, args ...string) ownerlink.Launch {
	l := ownerlink.Launch{
		Program: []byte(program), Cwd: []byte("/"),
		Env: map[protocol.Bytes]protocol.Bytes{"PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "xterm"},
	}
	for _, a := range args {
		l.Args = append(l.Args, []byte(a))
	}
	return l
}

// sh is a launch of a shell script.
func sh(script string) ownerlink.Launch { return launch("/bin/sh", "-c", script) }

// start launches l with a new session around it.
func start(t *testing.T, l ownerlink.Launch) *guardian {
	t.Helper()
	return startThrough(t, l)
}

// startThrough starts the owner by way of a command that execs it.
func startThrough(t *testing.T, l ownerlink.Launch, wrap ...string) *guardian {
	t.Helper()
	root, err := sessiondir.OpenRoot(t.TempDir() + "/state")
	must(t, err)
	defer root.Close()
	dir, _, err := root.Create(protocol.NewMutationID(time.Now()), sessiondir.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	return startIn(t, dir, l, wrap...)
}

func startIn(t *testing.T, dir *sessiondir.Dir, l ownerlink.Launch, wrap ...string) *guardian {
	t.Helper()
	g := &guardian{
		t: t, dir: dir,
		states: make(chan ownerlink.State, 4096), ended: make(chan struct{}), ran: make(chan struct{}),
	}
	l.Version, l.Session = ownerlink.Version, dir.ID()
	if l.Umask == 0 {
		l.Umask = 0o022
	}
	var err error
	g.out, err = dir.Output()
	must(t, err)
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	g.pipeR, g.pipeW = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	_, err = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, 1<<20)
	must(t, err)
	g.spawn(l, wrap)
	t.Cleanup(g.close)
	return g
}

// spawn does it in the order in which a guardian has to.
func (g *guardian) spawn(l ownerlink.Launch, wrap []string) {
	t := g.t
	data, err := protocol.Marshal(l)
	must(t, err)
	memfd, err := procs.SealedMemfd("launch", data)
	must(t, err)
	var slave *os.File
	g.master, slave, err = ptmx.Open(ptmx.Size{Cols: 101, Rows: 37})
	must(t, err)
	ours, theirs, err := peersock.Pair()
	must(t, err)
	lock, err := g.dir.OpenOwnerLock()
	must(t, err)
	if ok, err := procs.Lock(lock); err != nil || !ok {
		t.Fatalf("lock: %v %v", ok, err)
	}
	listener, err := peersock.Listen(g.dir.File(), sessiondir.GuardianSocket)
	must(t, err)
	socket, err := listener.File()
	must(t, err)
	g.capture, err = output.NewCapture(g.out, g.master, g.pipeR, g.pipeW, output.Options{})
	must(t, err)
	go func() {
		defer close(g.ran)
		g.capture.Run()
	}()
	// Every guardian that the owner starts fails at once: these tests are about
	// what it does by itself.
	successor, err := os.Open("/bin/false")
	must(t, err)
	argv := append(slices.Clone(wrap), ownerPath())
	g.cmd = exec.Command(argv[0], argv[1:]...)
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = slave, slave, slave
	g.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 log_path="+g.dir.Path()+"/race")
	g.cmd.ExtraFiles = []*os.File{theirs, memfd, g.master, g.pipeR, g.pipeW, socket, lock, g.dir.File(), successor}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	must(t, g.cmd.Start())
	for _, f := range []io.Closer{slave, theirs, memfd, lock, socket, listener, successor} {
		f.Close()
	}
	g.conn, g.channel = ownerlink.NewConn(ours), ours
	g.hangUp = sync.OnceFunc(func() { g.conn.Close() })
	go g.listen()
	go func() {
		g.cmd.Wait()
		close(g.ended)
	}()
}

func (g *guardian) listen() {
	defer close(g.states)
	for {
		var s ownerlink.State
		if err := g.conn.Receive(&s); err != nil {
			if !errors.Is(err, io.EOF) {
				g.t.Errorf("cannot receive: %v", err)
			}
			return
		}
		g.states <- s
	}
}

// await returns the first state that is as wanted.
func (g *guardian) await(what string, want func(ownerlink.State) bool) ownerlink.State {
	g.t.Helper()
	limit := time.After(patience)
	for !want(g.last) {
		select {
		case s, open := <-g.states:
			if !open {
				g.t.Fatalf("the owner left before %s: %+v, output %q", what, g.last, g.output())
			}
			g.last = s
			g.seen = append(g.seen, s.Outcome)
		case <-limit:
			g.t.Fatalf("never %s: %+v, output %q", what, g.last, g.output())
		}
	}
	return g.last
}

func (g *guardian) awaitRunning() int {
	g.t.Helper()
	return g.await("running", func(s ownerlink.State) bool { return s.Outcome.Running != nil }).Outcome.Running.PID
}

func (g *guardian) awaitExit() *lifecycle.ExitStatus {
	g.t.Helper()
	return g.await("exited", func(s ownerlink.State) bool { return s.Outcome.Exit != nil }).Outcome.Exit
}

func (g *guardian) awaitDrain() *lifecycle.DrainReport {
	g.t.Helper()
	return g.await("drained", func(s ownerlink.State) bool { return s.Outcome.Drain != nil }).Outcome.Drain
}

// control sends c and returns its answer.
func (g *guardian) control(c ownerlink.Control) ownerlink.Answer {
	g.t.Helper()
	g.seq++
	c.Seq = g.seq
	must(g.t, g.conn.Send(c, time.Second))
	s := g.await("answered", func(s ownerlink.State) bool { return s.Answer != nil && s.Answer.Seq == c.Seq })
	return *s.Answer
}

func (g *guardian) release() {
	g.t.Helper()
	must(g.t, g.conn.Send(ownerlink.Control{Kind: ownerlink.ControlRelease}, time.Second))
}

func (g *guardian) write(text string) {
	g.t.Helper()
	_, err := g.master.Write([]byte(text))
	must(g.t, err)
}

// mutation is a fresh mutation id.
func mutation() string { return protocol.NewMutationID(time.Now()).String() }

// awaitOutput waits until the captured output contains text.
func (g *guardian) awaitOutput(text string) string {
	g.t.Helper()
	var out string
	eventually(g.t, fmt.Sprintf("%q in the output", text), func() bool {
		out = g.output()
		return strings.Contains(out, text)
	})
	return out
}

func (g *guardian) output() string {
	r, err := output.OpenReader(g.out)
	must(g.t, err)
	defer r.Close()
	tail, end, err := r.Bounds()
	must(g.t, err)
	buf := make([]byte, end-tail)
	for n := 0; n < len(buf); {
		m, err := r.ReadAt(buf[n:], tail+int64(n))
		must(g.t, err)
		n += m
	}
	return string(buf)
}

// outcome is what the file says.
func (g *guardian) outcome() lifecycle.Outcome {
	g.t.Helper()
	records, err := journal.Read(g.dir.File(), sessiondir.OutcomeFile)
	must(g.t, err)
	var o lifecycle.Outcome
	for _, b := range records {
		var r lifecycle.OutcomeRecord
		must(g.t, protocol.Unmarshal(b, &r))
		o.Add(r)
	}
	return o
}

// awaitEnd waits for the owner's own end, which has to be an orderly one.
func (g *guardian) awaitEnd() {
	g.t.Helper()
	select {
	case <-g.ended:
	case <-time.After(patience):
		g.t.Fatalf("the owner does not leave: %+v", g.last)
	}
	if g.cmd.ProcessState.ExitCode() != 0 {
		g.t.Errorf("the owner's exit: %v", g.cmd.ProcessState)
	}
	if _, held, err := g.dir.Holder(sessiondir.OwnerLock); err != nil || held {
		g.t.Errorf("owner.lock after the owner's end: held %v, %v", held, err)
	}
}

func (g *guardian) stopCapture() {
	g.capture.Stop()
	<-g.ran
}

// close leaves nothing behind: the tree first, as that of a dead owner cannot be
// found any more.
func (g *guardian) close() {
	if g.running() {
		left, _ := procs.Descendants(g.cmd.Process.Pid)
		for _, pid := range slices.Backward(left) {
			unix.Kill(pid, unix.SIGKILL)
		}
		g.cmd.Process.Kill()
	}
	<-g.ended
	// Who was killed could not take its group away.
	if o, err := g.dir.Outcome(); err == nil && o != nil && o.Cgroup != "" {
		if group, err := cgroup.Open(o.Cgroup); err == nil {
			if err := group.Dissolve(); err != nil {
				g.t.Error(err)
			}
			group.Close()
		}
	}
	g.hangUp()
	for range g.states {
	}
	g.stopCapture()
	for _, f := range []io.Closer{g.master, g.pipeR, g.pipeW, g.out} {
		f.Close()
	}
	races, _ := filepath.Glob(g.dir.Path() + "/race*")
	for _, name := range races {
		text, _ := os.ReadFile(name)
		g.t.Errorf("data race in the owner:\n%s", text)
	}
}

func (g *guardian) running() bool {
	select {
	case <-g.ended:
		return false
	default:
		return true
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls a condition of the world outside.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

// field reads a line of /proc/PID/status; "" when there is no such process.
func field(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ""
	}
	must(t, err)
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return strings.TrimSpace(string(rest))
		}
	}
	return ""
}
