package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// seedVar makes the signals of a run those of an earlier one. What they meet is as the
// machine has it.
const seedVar = "MUR_SEED"

// blow is one signal to one of the processes of a start.
type blow struct {
	who   string // of those that do not exist yet, the one that does
	sig   unix.Signal
	after time.Duration // from the beginning of the start
	pause time.Duration // until what was stopped is continued
	// swept: what is left of mur ends with the session; else by a SIGTERM.
	swept bool
}

func (b blow) String() string {
	return fmt.Sprintf("%s to %s after %v (continued after %v, swept %v)", unix.SignalName(b.sig), b.who, b.after, b.pause, b.swept)
}

// stops: the default of the signal is to stop a process, and somebody continues it.
func (b blow) stops() bool { return b.sig == unix.SIGSTOP || b.sig == unix.SIGTSTP }

// harmless: no process ends by it that does not want to.
func (b blow) harmless() bool {
	return b.stops() || b.sig == unix.SIGWINCH || b.sig == unix.SIGCONT
}

func newBlow(r *rand.Rand, span time.Duration) blow {
	signals := []unix.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP, unix.SIGSTOP, unix.SIGKILL,
	}
	return blow{
		who:   []string{"mur", "guardian", "owner"}[r.IntN(3)],
		sig:   signals[r.IntN(len(signals))],
		after: time.Duration(r.Float64() * float64(span)),
		pause: time.Duration(r.Float64() * float64(span)),
		swept: r.IntN(2) == 0,
	}
}

func TestASignalToAnyProcessOfAStartLeavesALegalState(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv(seedVar); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t)
	span := b.startTime()
	r := rand.New(rand.NewPCG(seed, 0))
	hits := map[string]int{}
	n := often(24, 1000)
	for i := range n {
		s := &struck{bench: b, blow: newBlow(r, span), op: client.NewMutationID(), ran: filepath.Join(t.TempDir(), "ran")}
		if err := s.check(); err != nil {
			t.Errorf("%d of %d, %s=%d: %v: %v", i, n, seedVar, seed, s.blow, err)
			s.clear()
		}
		hits[s.who]++
	}
	b.startTime() // the next creation clears away what a killed one has left half-made
	t.Logf("hit within %v: %v", span, hits)
}

// startTime is for how long a start is worth hitting: 50 ms, and on a slow machine twice
// the time of one that nobody hits, which then shows the session.
func (b *bench) startTime() time.Duration {
	b.t.Helper()
	op := client.NewMutationID()
	began := time.Now()
	if out, status, err := b.mur("start", "-d", "--op", op.String(), "--", "/bin/true"); err != nil || status != 0 {
		b.t.Fatalf("start: %d, %v\n%s", status, err, out)
	}
	took := time.Since(began)
	for _, args := range [][]string{{"wait", client.IDFor(op)}, {"retire", "--purge", client.IDFor(op)}} {
		if out, status, err := b.mur(args...); err != nil || status != 0 {
			b.t.Fatalf("mur %v: %d, %v\n%s", args, status, err, out)
		}
	}
	return max(2*took, 50*time.Millisecond)
}

// struck is a start that is hit.
type struck struct {
	*bench
	blow
	op  client.MutationID
	ran string // gets a line from each run of the target, and is in its environment
	p   *ptyProgram
}

func (s *struck) id() string  { return client.IDFor(s.op) }
func (s *struck) dir() string { return filepath.Join(s.home, "sessions", s.id()) }

// line is the start; verb may have a flag.
func (s *struck) line(verb ...string) []string {
	return append(verb, "--op", s.op.String(), "--size", "80x24", "--clean-env", "--env", "RAN="+s.ran, "--workdir", "/",
		"--", "/bin/sh", "-c", `echo ran >>"$RAN"; exec sleep 1000`)
}

// check starts, hits, and looks at what has become of it.
func (s *struck) check() (err error) {
	bin := os.Getenv(binDirVar)
	env := []string{"MUR_HOME=" + s.home, "HOME=/", "PATH=" + bin + ":/usr/bin:/bin", "TERM=xterm"}
	if s.p, err = startOnPTY(env, "/", append([]string{"mur"}, s.line("start")...)); err != nil {
		return err
	}
	defer s.p.close()
	<-time.After(s.after)
	if err := s.hit(); err != nil {
		return fmt.Errorf("cannot hit: %w", err)
	}
	if _, err := s.look(); err != nil {
		return err
	}
	if err := s.again(); err != nil {
		return err
	}
	if s.swept {
		err = errors.Join(s.sweep(), s.end(false))
	} else {
		err = errors.Join(s.end(true), s.sweep())
	}
	if err != nil {
		return err
	}
	if out, status, err := s.tell("retire", "--purge", s.id()); err != nil || status != 0 {
		return fmt.Errorf("retire: %d, %v\n%s", status, err, out)
	}
	return s.left()
}

// hit sends the signal to whom it is for, or to whoever is there instead.
func (s *struck) hit() error {
	dir, err := sessiondir.Open(s.dir())
	if err == nil {
		defer dir.Close()
	}
	for _, other := range []struct{ who, lock string }{{"owner", sessiondir.OwnerLock}, {"guardian", sessiondir.GuardianLock}} {
		if s.who != other.who {
			continue
		}
		var id procs.Identity
		if err == nil {
			id, _, _ = dir.Holder(other.lock)
		}
		if id.PID == 0 {
			s.who = map[string]string{"owner": "guardian", "guardian": "mur"}[s.who]
			continue
		}
		p, err := procs.Open(id)
		if errors.Is(err, procs.ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		defer p.Close()
		return s.strike(p.Signal)
	}
	return s.strike(func(sig unix.Signal) error { return s.p.cmd.Process.Signal(sig) })
}

func (s *struck) strike(send func(unix.Signal) error) error {
	err := send(s.sig)
	if s.stops() {
		<-time.After(s.pause)
		err = errors.Join(err, send(unix.SIGCONT))
	}
	if errors.Is(err, procs.ErrGone) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// told is what mur show tells.
type told struct {
	State  client.State    `json:"state"`
	Error  *client.Failure `json:"error"`
	Record *client.Record  `json:"record"`
}

// explained: it is over, and it is said why.
func (v told) explained() bool {
	return (v.State == client.StateLaunchFailed || v.State == client.StateLost) &&
		v.Error != nil && v.Error.Stage != "" && v.Error.Message != "" && v.Record != nil
}

// look shows the session, if there is one.
func (s *struck) look() (v told, err error) {
	if _, err := os.Stat(s.dir()); errors.Is(err, os.ErrNotExist) {
		return v, nil
	}
	out, status, err := s.mur("show", "--json", s.id())
	if err == nil && status == 0 {
		err = json.Unmarshal([]byte(out), &v)
	}
	if err != nil || status != 0 {
		return v, fmt.Errorf("show: %d, %v", status, err)
	}
	if !slices.Contains(lifecycle.States(), v.State) || v.State == client.StateRetired {
		return v, fmt.Errorf("it is shown as %q", v.State)
	}
	return v, nil
}

// again repeats the start, which is done then or cannot be done any more, and sees how
// often the target has run.
func (s *struck) again() error {
	out, status, err := s.tell(s.line("start", "-d")...)
	if err != nil {
		return err
	}
	v, err := s.look()
	if err != nil {
		return err
	}
	runs := func() int { b, _ := os.ReadFile(s.ran); return bytes.Count(b, []byte("\n")) }
	switch {
	case v.State == client.StateRunning && status == 0:
		// A killed owner may not be missed yet.
		await(patience, func() bool {
			if runs() == 0 {
				v, err = s.look()
			}
			return runs() > 0 || err != nil || v.State.Final()
		})
	case s.harmless():
		return fmt.Errorf("the same again: %d, and the state is %s (%+v)\n%s", status, v.State, v.Error, out)
	}
	n := runs()
	switch {
	case err != nil:
		return err
	case v.State == client.StateRunning && n == 1:
	case v.State == client.StateLost && v.explained() && n <= 1:
	case v.State == client.StateLaunchFailed && v.explained() && n == 0:
	default:
		return fmt.Errorf("the same again: %d, the state is %s (%+v, %+v), and the target ran %d times\n%s",
			status, v.State, v.Error, v.Record, n, out)
	}
	return nil
}

// end waits until mur is gone, ended by the signal, by one more, or by the end of the
// session, and looks at its terminal.
func (s *struck) end(signal bool) error {
	if signal {
		s.p.cmd.Process.Signal(unix.SIGTERM) // it may have ended
	}
	select {
	case <-s.p.ended:
		s.p.over = true
	case <-time.After(patience):
		return fmt.Errorf("mur did not end\n%q", s.p.output())
	}
	now, err := s.p.termios()
	if err == nil && now != s.p.before && (s.who != "mur" || s.sig != unix.SIGKILL) {
		err = fmt.Errorf("the terminal is not as before:\n%+v\n%+v", s.p.before, now)
	}
	return err
}

func (s *struck) sweep() error {
	out, status, err := s.tell("sweep", s.id())
	if err != nil || status > 1 {
		return fmt.Errorf("sweep: %d, %v\n%s", status, err, out)
	}
	// Without an owner it proves nothing.
	if v, err := s.look(); err != nil || status == 1 && v.State != client.StateLost {
		return fmt.Errorf("sweep: %d, and the state is %s, %v\n%s", status, v.State, err, out)
	}
	return nil
}

// left tells what is left of the session.
func (s *struck) left() error {
	if _, err := os.Stat(s.dir()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the directory is left: %v", err)
	}
	if err := await(patience, func() bool { return len(s.targets()) == 0 }); err != nil {
		return fmt.Errorf("of the target are left %v: %w", s.targets(), err)
	}
	if err := await(patience, func() bool { return len(ours(os.Getenv(binDirVar), s.home)) == 0 }); err != nil {
		return fmt.Errorf("of mur are left %v: %w", ours(os.Getenv(binDirVar), s.home), err)
	}
	return nil
}

// tell runs mur; all that it says counts.
func (s *struck) tell(args ...string) (out string, status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(binDirVar)+"/mur", args...)
	cmd.Env = append(os.Environ(), "MUR_HOME="+s.home)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return string(b), exit.ExitCode(), nil
	}
	return string(b), 0, err
}

// targets are the target's processes, by their environment.
func (s *struck) targets() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, err := os.ReadFile(path)
		pid, err2 := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && err2 == nil && slices.Contains(strings.Split(string(env), "\x00"), "RAN="+s.ran) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// clear ends what a failed round has left.
func (s *struck) clear() {
	end(ours(os.Getenv(binDirVar), s.home))
	end(s.targets())
}
