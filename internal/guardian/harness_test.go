package guardian_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// bound is how long anything in these tests may take.
const bound = time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if path := os.Getenv("MUR_TEST_DIAL"); path != "" {
		return dialAsStranger(path)
	}
	if filepath.Base(os.Args[0]) == "mur-owner" {
		return actAsOwner()
	}
	dir, err := os.MkdirTemp("", "mur-guardian-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for name, pkg := range map[string]string{"mur-guardian": "guardian", "mur-owner": "owner"} {
		args := []string{"build", "-o", filepath.Join(dir, name)}
		if raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, "../../cmd/"+pkg)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot build", pkg, err)
			return 1
		}
	}
	os.Setenv("MUR_TEST_BIN", dir)
	flag.Parse()
	flag.Set("test.parallel", "16") // the parallel ones mostly wait
	return m.Run()
}

// dialAsStranger connects as whoever it runs as and prints the refusal's code.
func dialAsStranger(path string) int {
	if err := os.Chdir(path); err != nil { // the whole path is too long for a socket's name
		fmt.Print(err)
		return 1
	}
	conn, err := net.Dial("unix", sessiondir.GuardianSocket)
	if err != nil {
		fmt.Print(err)
		return 1
	}
	defer conn.Close()
	frame, err := protocol.ReadFrame(conn, nil)
	if err != nil {
		fmt.Print(err)
		return 1
	}
	var w protocol.Welcome
	if err := protocol.Unmarshal(frame, &w); err != nil || w.Error == nil {
		fmt.Print("not refused: ", err)
		return 1
	}
	fmt.Print(w.Error.Code)
	return 0
}

// often is how often something is tried: more with MUR_LONG.
func often(short, long int) int {
	if os.Getenv("MUR_LONG") != "" {
		return long
	}
	return short
}

// session is one session under test.
type session struct {
	t    *testing.T
	dir  *sessiondir.Dir
	idle string // how long its guardians stay without work
	bin  string // where their executable and the owner's are
}

// newSession makes a session with its guardian; both are gone after the test.
func newSession(t *testing.T) *session {
	t.Helper()
	s := makeSession(t)
	if r := s.startGuardian(); r.Error != nil || r.Already {
		t.Fatalf("guardian: %+v", r)
	}
	return s
}

func makeSession(t *testing.T) *session {
	t.Helper()
	return makeSessionIn(t, t.TempDir())
}

func makeSessionIn(t *testing.T, parent string) *session {
	t.Helper()
	root, err := sessiondir.OpenRoot(filepath.Join(parent, "state"))
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := root.Create(newID(), sessiondir.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, dir: dir, idle: "1h", bin: os.Getenv("MUR_TEST_BIN")}
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(dir.Path(), sessiondir.GuardianLog)); err == nil && t.Failed() {
			t.Logf("guardian.log:\n%s", log)
		}
		s.end()
		s.dissolve()
		dir.Close()
		root.Close()
	})
	return s
}

func newID() protocol.MutationID { return protocol.NewMutationID(time.Now()) }

// startGuardian starts one more guardian and returns what it says of itself.
func (s *session) startGuardian() protocol.Ready {
	s.t.Helper()
	ready, err := s.tryGuardian()
	if err != nil {
		s.t.Fatal(err)
	}
	return ready
}

func (s *session) tryGuardian() (ready protocol.Ready, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return ready, err
	}
	defer r.Close()
	cmd := exec.Command(filepath.Join(s.bin, "mur-guardian"), "--session", s.dir.Path(), "--startup-fd", "3", "--idle", s.idle)
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return ready, err
	}
	w.Close()
	go cmd.Wait()
	r.SetReadDeadline(time.Now().Add(bound))
	frame, err := protocol.ReadFrame(r, nil)
	if err != nil {
		return ready, fmt.Errorf("no startup frame: %w", err)
	}
	return ready, protocol.Unmarshal(frame, &ready)
}

// end sweeps what is left of a session, by force: the owner first, which would
// start guardians.
func (s *session) end() {
	for _, lock := range []string{sessiondir.OwnerLock, sessiondir.GuardianLock} {
		eventually(s.t, lock+" to be free", func() bool {
			id, held, err := s.dir.Holder(lock)
			if err != nil || !held {
				return true
			}
			if id.PID != 0 {
				syscall.Kill(id.PID, syscall.SIGKILL)
			}
			return false
		})
	}
}

// link is one connection after its hello.
type link struct {
	t    *testing.T
	conn *net.UnixConn
	next uint64
}

func (s *session) dialRaw() *net.UnixConn {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	conn, err := peersock.Dial(ctx, s.dir.File(), sessiondir.GuardianSocket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(bound))
	return conn
}

func (s *session) dial() *link {
	s.t.Helper()
	conn := s.dialRaw()
	w := hello(s.t, conn, s.hello())
	if w.Error != nil {
		s.t.Fatalf("welcome: %v", w.Error)
	}
	return &link{t: s.t, conn: conn}
}

func (s *session) hello() protocol.Hello {
	b := s.dir.Bootstrap()
	return protocol.Hello{
		Version: protocol.Version, ExecutionToken: b.ExecutionToken, Authentication: b.Secret,
		Capabilities: []string{protocol.CapLifecycle},
	}
}

func hello(t *testing.T, conn *net.UnixConn, h protocol.Hello) protocol.Welcome {
	t.Helper()
	if err := protocol.WriteFrame(conn, h); err != nil {
		t.Fatal(err)
	}
	var w protocol.Welcome
	read(t, conn, &w)
	return w
}

func read(t *testing.T, conn *net.UnixConn, v any) {
	t.Helper()
	frame, err := protocol.ReadFrame(conn, nil)
	if err != nil {
		t.Fatal("cannot read a frame: ", err)
	}
	if err := protocol.Unmarshal(frame, v); err != nil {
		t.Fatal(err)
	}
}

func (l *link) head(op protocol.Op) protocol.Head {
	l.next++
	return protocol.Head{ID: l.next, Op: op}
}

// call sends a request and waits for its answer.
func (l *link) call(request any) protocol.Response {
	l.t.Helper()
	if err := protocol.WriteFrame(l.conn, request); err != nil {
		l.t.Fatal(err)
	}
	var r protocol.Response
	read(l.t, l.conn, &r)
	return r
}

func (l *link) status() *lifecycle.Snapshot {
	l.t.Helper()
	return l.call(protocol.StatusRequest{Head: l.head(protocol.OpStatus)}).Snapshot
}

// decode reads a response's answer, which must be there.
func decode[T any](t *testing.T, r protocol.Response) T {
	t.Helper()
	var v T
	if r.Error != nil {
		t.Fatalf("refused: %s: %s", r.Error.Code, r.Error.Message)
	}
	if err := protocol.Unmarshal(r.OK, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func shell(script string) protocol.StartSpec {
	return protocol.StartSpec{
		Program: []byte("/bin/sh"), Args: [][]byte{[]byte("-c"), []byte(script)},
		Env: map[protocol.Bytes]protocol.Bytes{"PATH": "/usr/bin:/bin"},
	}
}

func (l *link) start(id protocol.MutationID, spec protocol.StartSpec) protocol.Response {
	l.t.Helper()
	return l.call(protocol.StartRequest{Head: l.head(protocol.OpStart), MutationID: id, StartSpec: spec})
}

func (l *link) run(script string) protocol.StartAnswer {
	l.t.Helper()
	return decode[protocol.StartAnswer](l.t, l.start(newID(), shell(script)))
}

// states subscribes and collects every state until the stream's end.
func (s *session) states() []lifecycle.Snapshot {
	s.t.Helper()
	l := s.dial()
	if r := l.call(protocol.SubscribeRequest{Head: l.head(protocol.OpSubscribe)}); r.Error != nil {
		s.t.Fatal(r.Error)
	}
	var out []lifecycle.Snapshot
	for {
		var f protocol.SubscribeFrame
		read(s.t, l.conn, &f)
		out = append(out, *f.Snapshot)
		if f.Last {
			return out
		}
	}
}

// final waits for the final record.
func (s *session) final() lifecycle.Snapshot {
	s.t.Helper()
	all := s.states()
	return all[len(all)-1]
}

// attached is an attachment that has ended.
type attached struct {
	output []byte
	next   int64
	gaps   []protocol.GapFrame
	end    protocol.EndFrame
}

func (s *session) attach(r protocol.AttachRequest) *link {
	s.t.Helper()
	l := s.dial()
	r.Head = l.head(protocol.OpAttach)
	if answer := l.call(r); answer.Error != nil {
		s.t.Fatal(answer.Error)
	}
	return l
}

// toEnd reads an attachment to its end frame.
func (l *link) toEnd() attached {
	l.t.Helper()
	var a attached
	for {
		var f protocol.AttachFrame
		read(l.t, l.conn, &f)
		switch {
		case f.Output != nil:
			a.output = append(a.output, f.Output.Bytes...)
			a.next = f.Output.Next
		case f.Gap != nil:
			a.gaps = append(a.gaps, *f.Gap)
		case f.End != nil:
			a.end = *f.End
			return a
		}
	}
}

// closed waits for the peer to end the connection.
func closed(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal("the connection was not ended: ", err)
	}
}
