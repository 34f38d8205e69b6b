package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

// bench is a state directory of its own for a test in Go.
type bench struct {
	t    *testing.T
	home string
	c    *client.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	home, err := os.MkdirTemp("", "mur-s-")
	if err != nil {
		t.Fatal(err)
	}
	bin := os.Getenv(binDirVar)
	c, err := client.New(client.Options{Root: home, Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if left := leftovers(bin, home); left != nil {
			end(ours(bin, home))
			t.Error(left)
		}
		os.RemoveAll(home)
	})
	return &bench{t: t, home: home, c: c}
}

// mur runs mur and gives its output and exit code.
func (b *bench) mur(args ...string) (out string, code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Getenv(binDirVar)+"/mur", args...)
	cmd.Env = append(os.Environ(), "MUR_HOME="+b.home)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return stdout.String(), exit.ExitCode(), nil
	}
	if err != nil {
		err = fmt.Errorf("mur %v: %w\n%s", args, err, stderr.String())
	}
	return stdout.String(), 0, err
}

// done sweeps, retires and purges a session.
func (b *bench) done(s *client.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, sweep := s.Sweep(ctx, client.NewMutationID())
	_, wait := s.WaitEnd(ctx)
	_, retire := s.Retire(ctx, client.NewMutationID())
	return errors.Join(sweep, wait, retire, s.Purge(ctx))
}

// ending is one row of the matrix.
type ending struct {
	script string
	status int
	code   int
	signal int
}

func endings() []ending {
	var all []ending
	for code := range 256 {
		all = append(all, ending{script: fmt.Sprintf("exit %d", code), status: code, code: code})
	}
	for _, sig := range []unix.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE,
		unix.SIGKILL, unix.SIGUSR1, unix.SIGSEGV, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGTERM,
		unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
		34, 64,
	} {
		all = append(all, ending{script: fmt.Sprintf("ulimit -c 0; kill -%d $$", sig), status: 128 + int(sig), signal: int(sig)})
	}
	return all
}

func TestEveryStatusIsToldAsItWas(t *testing.T) {
	b := newBench(t)
	all := endings()
	b.each(len(all), func(ctx context.Context, i int) error {
		if err := b.check(ctx, all[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i].script, err)
		}
		return nil
	})
}

// check runs one row, through the command line where its own codes are near.
func (b *bench) check(ctx context.Context, e ending) error {
	s, err := b.begin(ctx, shell(e.script))
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.WaitEnd(ctx)
	if err != nil {
		return err
	}
	r := st.Record
	switch {
	case r.ExitSignal != e.signal, r.CoreDumped:
		err = fmt.Errorf("the record tells signal %d, core %v", r.ExitSignal, r.CoreDumped)
	case e.signal == 0 && (r.ExitCode == nil || *r.ExitCode != e.code), e.signal != 0 && r.ExitCode != nil:
		err = fmt.Errorf("the record's exit code is wrong: %+v", r)
	}
	if e.signal != 0 || e.code < 8 || e.code > 120 && e.code < 132 || e.code > 252 {
		if _, status, runErr := b.mur("wait", s.ID()); runErr != nil || status != e.status {
			err = errors.Join(err, fmt.Errorf("wait exits with %d, want %d: %w", status, e.status, runErr))
		}
	}
	_, retire := s.Retire(ctx, client.NewMutationID())
	return errors.Join(err, retire, s.Purge(ctx))
}

func TestAttachAndLogsAgreeByteByByte(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		op := client.NewMutationID()
		out, status, err := b.mur("start", "--op", op.String(), "--", "seq", "1", "100000")
		if err != nil || status != 0 {
			t.Fatalf("start: %d, %v", status, err)
		}
		s, err := b.c.Open(client.IDFor(op))
		if err != nil {
			t.Fatal(err)
		}
		log, _, err := b.mur("logs", s.ID())
		if err != nil || log != out {
			t.Errorf("run %d: %d bytes shown, %d in the log, %v", i, len(out), len(log), err)
		}
		st, err := s.Snapshot(context.Background())
		if err != nil || st.Record.EndOffset != int64(len(out)) {
			t.Errorf("run %d: the record's end is %+v, %d bytes were shown, %v", i, st.Record, len(out), err)
		}
		if err := b.done(s); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// within is a context for one step of a test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestATargetCannotBeStartedTwiceByEqualStarts(t *testing.T) {
	b := newBench(t)
	op := client.NewMutationID()
	marker := b.home + "/marker"
	spec := client.StartSpec{
		Program: []byte("/bin/sh"), Cwd: []byte("/"),
		Args: [][]byte{[]byte("-c"), []byte("echo x >>" + marker + "; sleep 100")},
		Env:  map[client.Bytes]client.Bytes{"PATH": "/usr/bin:/bin"},
	}
	type result struct {
		answer   client.StartAnswer
		replayed bool
		err      error
	}
	results := make(chan result)
	const callers = 64
	for range callers {
		go func() {
			s, err := b.c.Create(within(t), client.CreateOptions{Op: op, Name: "one"})
			if err != nil {
				results <- result{err: err}
				return
			}
			defer s.Close()
			r, err := s.Start(within(t), op, spec)
			results <- result{r.Answer, r.Replayed, err}
		}()
	}
	var first *client.StartAnswer
	fresh := 0
	for range callers {
		r := <-results
		if client.CodeOf(r.err) == client.CodeBusy {
			continue // more callers than connections: refused without effect
		}
		if r.err != nil {
			t.Errorf("start: %v", r.err)
			continue
		}
		if !r.replayed {
			fresh++
		}
		if first == nil {
			first = &r.answer
		}
		if r.answer.TargetPID != first.TargetPID || r.answer.State != first.State {
			t.Errorf("answers differ: %+v and %+v", r.answer, *first)
		}
	}
	if first == nil {
		t.Fatal("no start was answered")
	}
	s, err := b.c.Open("one")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		_, err := s.Start(within(t), client.NewMutationID(), spec)
		if client.CodeOf(err) == client.CodeBusy {
			continue // the callers' connections are not all gone yet
		}
		if client.CodeOf(err) != client.CodeConflict {
			t.Errorf("a start with another id: %v", err)
		}
		break
	}
	if err := until(os.Environ(), "/", "test -s "+marker); err != nil {
		t.Fatal(err)
	}
	if ran, err := os.ReadFile(marker); err != nil || string(ran) != "x\n" {
		t.Errorf("the target ran %q times, %v", ran, err)
	}
	if err := b.done(s); err != nil {
		t.Error(err)
	}
}
