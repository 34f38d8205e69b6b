package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// How often everything is upgraded while it works.
const fewUpgrades, manyUpgrades = 5, 20

// version makes a copy of the programs: to the kernel, and to mur, another version.
func version(t *testing.T, name string) (bin string) {
	t.Helper()
	from := os.Getenv(binDirVar)
	bin = filepath.Join(from, name)
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	for _, program := range []string{"mur", "mur-guardian", "mur-owner"} {
		if err := copyFile(filepath.Join(from, program), filepath.Join(bin, program)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

// servedBy tells which executable the session's guardian runs.
func servedBy(s *client.Session) (string, error) {
	dir, err := sessiondir.Open(s.Dir())
	if err != nil {
		return "", err
	}
	defer dir.Close()
	id, _, err := dir.Holder(sessiondir.GuardianLock)
	if err != nil {
		return "", err
	}
	return os.Readlink(fmt.Sprintf("/proc/%d/exe", id.PID))
}

// editor is a vim in a session, with somebody who types into it.
type editor struct {
	s    *client.Session
	a    *client.Attachment
	file string

	mu      sync.Mutex // guards the following
	fate    map[int]string
	unknown int
	end     *client.EndFrame
	err     error
	done    chan struct{}
}

func (b *bench) edit() *editor {
	t := b.t
	t.Helper()
	e := &editor{file: filepath.Join(t.TempDir(), "text"), fate: map[int]string{}, done: make(chan struct{})}
	_, status, err := b.mur("start", "-d", "--name", "vim", "--size", "80x24", "--", "vim", "-u", "NONE", "-i", "NONE", "-n", e.file)
	if err != nil || status != 0 {
		t.Fatalf("start: %d, %v", status, err)
	}
	if e.s, err = b.c.Open("vim"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.s.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), longTime)
	t.Cleanup(cancel)
	var zero int64
	if e.a, err = e.s.Attach(ctx, client.AttachOptions{Since: &zero}); err != nil {
		t.Fatal(err)
	}
	go e.read()
	return e
}

func (e *editor) read() {
	defer close(e.done)
	for f, err := range e.a.Frames() {
		e.mu.Lock()
		switch {
		case err != nil:
			e.err = err
		case f.Ack != nil:
			e.fate[int(f.Ack.Seq)] = "typed"
		case f.Refused != nil && f.Refused.Error.Code == client.CodeUnknownOutcome:
			e.fate[int(f.Refused.Seq)] = "unknown"
			e.unknown++
		case f.Refused != nil:
			e.fate[int(f.Refused.Seq)] = "refused: " + f.Refused.Error.Message
		case f.End != nil:
			e.end = f.End
		}
		e.mu.Unlock()
	}
}

// word is what is typed as the n-th piece, which is the n-th frame.
func word(n int) string { return fmt.Sprintf("w%d.\r", n) }

// check compares what vim has written with what became of each piece.
func (e *editor) check(t *testing.T, pieces int) {
	t.Helper()
	text, err := os.ReadFile(e.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	next := 0
	for n := 2; n <= pieces; n++ { // the first was i
		there := next < len(lines) && lines[next]+"\r" == word(n)
		if there {
			next++
		}
		switch fate := e.fate[n]; {
		case fate == "typed" && there, fate == "unknown":
		default:
			t.Errorf("piece %d was %q, and is there: %v", n, fate, there)
		}
	}
	if next != len(lines) {
		t.Errorf("vim has %d lines more than were typed: %q", len(lines)-next, lines[next:])
	}
	t.Logf("%d pieces typed, of %d it is not known", pieces, e.unknown)
}

func TestAnUpgradeLosesNeitherByteNorKeyNorStatus(t *testing.T) {
	if _, err := exec.LookPath("vim"); err != nil {
		t.Skip("vim is not installed")
	}
	b := newBench(t)
	flood := b.count(manyLines / 2)
	vim := b.edit()
	if err := vim.a.Input(within(t), []byte("i")); err != nil {
		t.Fatal(err)
	}
	stop, typed := make(chan struct{}), make(chan int)
	go func() {
		n := 2
		defer func() { typed <- n }()
		for ; ; n++ {
			if err := vim.a.Input(context.Background(), []byte(word(n))); err != nil {
				t.Errorf("cannot type: %v", err)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	during := 0
	upgrades := often(fewUpgrades, manyUpgrades)
	for i := range upgrades {
		bin := version(t, fmt.Sprintf("v%d", i))
		cmd := exec.Command(filepath.Join(bin, "mur"), "recover", "--upgrade")
		cmd.Env = append(os.Environ(), "MUR_HOME="+b.home)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("upgrade %d: %v\n%s", i, err, out)
		}
		t.Logf("upgrade %d took %v", i, time.Since(began).Round(time.Millisecond))
		for _, s := range []*client.Session{flood.s, vim.s} {
			st, err := s.Snapshot(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if st.State.Final() {
				continue
			}
			if s == flood.s {
				during++
			}
			exe, err := servedBy(s)
			if errors.Is(err, fs.ErrPermission) {
				t.Log("which executable serves is not for this user to see")
			} else if filepath.Dir(exe) != bin {
				t.Errorf("upgrade %d: %s is served by %s, %v", i, s.ID(), exe, err)
			}
		}
	}
	t.Logf("%d of %d upgrades were during the flood", during, upgrades)
	close(stop)
	pieces := <-typed
	if err := vim.a.Input(within(t), []byte("\x1b:wq\r")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-vim.done:
	case <-time.After(patience):
		log, _, _ := b.mur("logs", vim.s.ID())
		vim.mu.Lock()
		t.Fatalf("vim does not end: %d pieces, fates %v\n%q", pieces, vim.fate, log[max(0, len(log)-2000):])
	}
	if vim.err != nil || vim.end == nil || vim.end.Record == nil || *vim.end.Record.ExitCode != 0 {
		t.Errorf("vim: %+v, %v", vim.end, vim.err)
	}
	vim.check(t, pieces)
	flood.check()
	for _, s := range []*client.Session{flood.s, vim.s} {
		if err := b.done(s); err != nil {
			t.Error(err)
		}
	}
}

// How many sessions wait for something without a guardian.
const fewIdlers, manyIdlers = 30, 500

func TestReadingStartsNoGuardian(t *testing.T) {
	b := newBench(t)
	idlers := often(fewIdlers, manyIdlers)
	var sessions []*client.Session
	generations := map[string]uint64{}
	for i := range idlers {
		name := fmt.Sprintf("idle%d", i)
		if _, status, err := b.mur("start", "-d", "--name", name, "--", "cat"); err != nil || status != 0 {
			t.Fatalf("start: %d, %v", status, err)
		}
		s, err := b.c.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		st, err := s.Snapshot(within(t))
		if err != nil {
			t.Fatal(err)
		}
		hit(st.GuardianPID, syscall.SIGTERM) // it leaves, as an idle one does
		if err := s.WaitGone(within(t)); err != nil {
			t.Fatal(err)
		}
		sessions, generations[s.ID()] = append(sessions, s), st.Generation
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}} {
		if out, status, err := b.mur(args...); err != nil || status != 0 || strings.Count(out, "running") < idlers {
			t.Errorf("mur %v: %d, %v\n%s", args, status, err, out)
		}
	}
	b.watchAll(idlers)
	for _, s := range sessions[:5] {
		for _, args := range [][]string{
			{"show", s.ID()},
			{"show", "--json", s.Name()},
			{"logs", s.ID()},
			{"op", "ls", s.ID()},
			{"op", "show", s.ID(), b.startOf(s)},
		} {
			if _, status, err := b.mur(args...); err != nil || status != 0 {
				t.Errorf("mur %v: %d, %v", args, status, err)
			}
		}
	}
	if _, status, err := b.mur("wait", "--timeout", "100ms", sessions[0].ID()); err != nil || status != 124 {
		t.Errorf("mur wait: %d, %v", status, err)
	}
	for _, s := range sessions {
		st, err := s.Snapshot(within(t))
		if err != nil || st.GuardianAlive || !st.OwnerAlive || st.State != client.StateRunning || st.Generation != generations[s.ID()] {
			t.Errorf("%s: guardian %v, owner %v, %s, generation %d of %d, %v", s.Name(),
				st.GuardianAlive, st.OwnerAlive, st.State, st.Generation, generations[s.ID()], err)
		}
	}
	for _, s := range sessions {
		if err := b.done(s); err != nil {
			t.Error(err)
		}
	}
}

// startOf is the id of the operation that started a session.
func (b *bench) startOf(s *client.Session) string {
	all, err := s.Operations()
	if err != nil || len(all) != 1 {
		b.t.Fatalf("operations: %v, %v", all, err)
	}
	return all[0].ID.String()
}

// watchAll runs mur watch --all until it has told of n sessions.
func (b *bench) watchAll(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(binDirVar)+"/mur", "watch", "--all", "--json")
	cmd.Env = append(os.Environ(), "MUR_HOME="+b.home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	buf := make([]byte, 64<<10)
	for told := 0; told < n; {
		got, err := out.Read(buf)
		if told += bytes.Count(buf[:got], []byte("\n")); err != nil && told < n {
			b.t.Errorf("mur watch --all told of %d sessions, %v", told, err)
			return
		}
	}
}
