package script

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

// patternSize is more than all the buffers on the way hold together.
const patternSize = 1 << 20

// pattern is what the role of that name writes: every value, and no two alike.
func pattern(seed uint64) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	out := make([]byte, patternSize)
	rand.NewChaCha8(key).Read(out)
	return out
}

// playPattern writes the pattern SEED and exits at once with CODE.
func playPattern(args []string) (int, error) {
	seed, err1 := strconv.ParseUint(args[0], 10, 64)
	code, err2 := strconv.Atoi(args[1])
	mode, err3 := unix.IoctlGetTermios(1, unix.TCGETS)
	if err := errors.Join(err1, err2, err3); err != nil {
		return 255, err
	}
	mode.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(1, unix.TCSETS, mode); err != nil {
		return 255, err
	}
	for out := pattern(seed); len(out) > 0; {
		n, err := syscall.Write(1, out)
		if err != nil && err != syscall.EINTR {
			return 255, err
		}
		out = out[max(n, 0):]
	}
	return code, nil
}

func TestTheLastByteOfAProgramThatEndsAtOnceIsNotLost(t *testing.T) {
	b := newBench(t)
	b.each(often(5, 500), func(ctx context.Context, i int) error {
		seed, code := uint64(i), i*7%256
		spec, err := actor("pattern", strconv.FormatUint(seed, 10), strconv.Itoa(code))
		if err != nil {
			return err
		}
		op := client.NewMutationID()
		s, err := b.c.Create(ctx, client.CreateOptions{Op: op})
		if err != nil {
			return err
		}
		defer s.Close()
		// By turns somebody is there from before the start, or nobody until the end.
		type result struct {
			got *shown
			err error
		}
		attached := make(chan result, 1)
		if i%2 == 0 {
			var zero int64
			a, err := s.Attach(ctx, client.AttachOptions{Since: &zero})
			if err != nil {
				return err
			}
			go func() {
				got, err := seen(a)
				attached <- result{got, err}
			}()
		}
		if err := launched(s.Start(ctx, op, spec)); err != nil {
			return err
		}
		end, err := s.WaitEnd(ctx)
		if err != nil {
			return err
		}
		if i%2 != 0 {
			got, err := look(ctx, s)
			attached <- result{got, err}
		}
		want, r := pattern(seed), <-attached
		if r.err != nil {
			return r.err
		}
		log, err := logged(s)
		errs := []error{err, exitedWith(end.Record, code), exitedWith(r.got.end.Record, code)}
		if !bytes.Equal(log, want) {
			errs = append(errs, fmt.Errorf("log: %s", difference(log, want)))
		}
		if stream := r.got.output.Bytes(); !bytes.Equal(stream, want) {
			errs = append(errs, fmt.Errorf("stream: %s", difference(stream, want)))
		}
		for who, record := range map[string]*client.Record{"log": end.Record, "stream": r.got.end.Record} {
			if record == nil || record.EndOffset != int64(r.got.output.Len()) {
				errs = append(errs, fmt.Errorf("%s: %d bytes were shown, the record is %+v", who, r.got.output.Len(), record))
			}
		}
		return errors.Join(append(errs, b.done(s))...)
	})
}

func TestWhatAProgramSaidBeforeAnybodyLookedIsThere(t *testing.T) {
	b := newBench(t)
	b.each(often(20, 1000), func(ctx context.Context, i int) error {
		s, err := b.begin(ctx, program("/bin/echo", "hoge"))
		if err != nil {
			return err
		}
		defer s.Close()
		if i%4 != 0 { // else it may still be running
			if _, err := s.WaitEnd(ctx); err != nil {
				return err
			}
		}
		got, err := look(ctx, s)
		if err != nil {
			return err
		}
		log, err := logged(s)
		errs := []error{err, exitedWith(got.end.Record, 0)}
		for who, out := range map[string][]byte{"stream": got.output.Bytes(), "log": log} {
			if string(out) != "hoge\r\n" {
				errs = append(errs, fmt.Errorf("%s: %q", who, out))
			}
		}
		return errors.Join(append(errs, b.done(s))...)
	})
}

func TestAProgramThatEndsAtOnceIsAlwaysReached(t *testing.T) {
	b := newBench(t)
	b.each(often(10, 500), func(ctx context.Context, i int) error {
		op := client.NewMutationID()
		if i%4 == 0 {
			if out, status, err := b.mur("start", "--op", op.String(), "--", "/bin/true"); err != nil || status != 0 || out != "" {
				return fmt.Errorf("mur start: %q, %d, %w", out, status, err)
			}
		}
		s, err := b.c.Create(ctx, client.CreateOptions{Op: op})
		if err != nil {
			return err
		}
		defer s.Close()
		if i%4 != 0 {
			if err := launched(s.Start(ctx, op, program("/bin/true"))); err != nil {
				return err
			}
		}
		got, err := look(ctx, s)
		if err != nil {
			return err
		}
		return errors.Join(exitedWith(got.end.Record, 0), b.done(s))
	})
}

func TestTheFirstSizeATargetSeesIsTheOneAskedFor(t *testing.T) {
	b := newBench(t)
	b.each(often(20, 1000), func(ctx context.Context, i int) error {
		size := client.Size{Cols: 1 + i*37%500, Rows: 1 + i*11%200}
		other := client.Size{Cols: size.Cols + 1, Rows: size.Rows + 1}
		op := client.NewMutationID()
		create, spec := client.CreateOptions{Op: op}, program("/bin/stty", "size")
		switch i % 4 {
		case 0:
			create.Size, spec.Size = &other, &size
		case 1:
			create.Size = &size
		case 2, 3:
			create.Size = &other
		}
		s, err := b.c.Create(ctx, create)
		if err != nil {
			return err
		}
		defer s.Close()
		switch i % 4 {
		case 2: // before there is a terminal
			if err := s.Resize(ctx, size); err != nil {
				return err
			}
		case 3:
			var zero int64
			a, err := s.Attach(ctx, client.AttachOptions{Since: &zero, Size: &size})
			if err != nil {
				return err
			}
			defer a.Close()
		}
		if err := launched(s.Start(ctx, op, spec)); err != nil {
			return err
		}
		end, err := s.WaitEnd(ctx)
		if err != nil {
			return err
		}
		log, err := logged(s)
		if want := fmt.Sprintf("%d %d\r\n", size.Rows, size.Cols); err == nil && string(log) != want {
			err = fmt.Errorf("way %d: the target saw %q, want %q", i%4, log, want)
		}
		return errors.Join(err, exitedWith(end.Record, 0), b.done(s))
	})
}

// there tells whether there is a process of this pid, a zombie too.
func there(pid int) bool {
	_, err := procs.Of(pid)
	return err == nil
}

func TestAHeldTerminalDoesNotHideTheExit(t *testing.T) {
	b := newBench(t)
	for range often(1, 20) {
		holder := filepath.Join(t.TempDir(), "holder")
		s, err := b.begin(within(t), shell(
			`(trap '' HUP; exec sh -c 'echo $$ >"$0"; exec sleep 300' "$1") &
			 until test -s "$1"; do sleep 0.01; done; exit 7`, holder))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		end, err := s.WaitEnd(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := exitedWith(end.Record, 7); err != nil {
			t.Error(err)
		}
		if r := end.Record; r.Holders != 1 || r.Descendants != 1 {
			t.Errorf("the record tells of %d holders, %d descendants", r.Holders, r.Descendants)
		}
		eventually(t, "the target to be reaped", func() bool { return !there(end.TargetPID) })
		pid, err := notedPID(holder)
		if err != nil || !there(pid) {
			t.Fatalf("the holder is %d: %v", pid, err)
		}
		r, err := s.Sweep(within(t), client.NewMutationID())
		if a := r.Answer; err != nil || !a.Proved || len(a.Processes) != 1 || a.Processes[0].PID != pid || !a.Processes[0].Gone {
			t.Errorf("sweep: %+v, %v", a, err)
		}
		if there(pid) {
			t.Error("the holder is still there")
		}
		if err := b.done(s); err != nil {
			t.Error(err)
		}
	}
}

// growing waits until the session has written more than it had.
func growing(t *testing.T, s *client.Session) (end int64) {
	t.Helper()
	before := int64(-1)
	eventually(t, "the log to grow", func() bool {
		st, err := s.Snapshot(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if before < 0 {
			before = st.OutputEnd
		}
		end = st.OutputEnd
		return end > before
	})
	return end
}

func TestAChildThatPrintsForEverDoesNotDelayTheEnd(t *testing.T) {
	b := newBench(t)
	for i := range often(2, 20) {
		ready := filepath.Join(t.TempDir(), "ready")
		loop := "while :; do echo on and on; done" // the terminal may well be empty for a moment
		if i%2 != 0 {
			loop = "exec yes" // faster than anybody reads
		}
		s, err := b.begin(within(t), shell(
			`(trap '' HUP; : >"$1"; `+loop+`) & until test -e "$1"; do sleep 0.01; done; exit 0`, ready))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		end, err := s.WaitEnd(within(t))
		if err != nil {
			t.Fatal(err)
		}
		first := end.Record
		if err := exitedWith(first, 0); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s at %d", loop, first.Drain, first.EndOffset)
		if first.Drain != "cut" && first.Drain != "empty" || first.Holders != 1 || first.Descendants != 1 {
			t.Errorf("the record is %+v", *first)
		}
		same := func(when string) client.Status {
			st, err := s.Snapshot(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if st.Record == nil || st.Record.EndOffset != first.EndOffset || st.State != client.StateEnded {
				t.Errorf("%s: %s, %+v", when, st.State, st.Record)
			}
			return st
		}
		if at := growing(t, s); at <= first.EndOffset {
			t.Errorf("the log ends at %d, the output at %d", at, first.EndOffset)
		}
		st := same("while it goes on")
		hit(st.GuardianPID, syscall.SIGKILL)
		eventually(t, "the next guardian", func() bool {
			now := same("without a guardian")
			return now.GuardianAlive && now.GuardianPID != 0 && now.GuardianPID != st.GuardianPID
		})
		growing(t, s)
		same("with another guardian")
		r, err := s.Sweep(within(t), client.NewMutationID())
		if err != nil || !r.Answer.Proved || len(r.Answer.Processes) != 1 {
			t.Errorf("sweep: %+v, %v", r.Answer, err)
		}
		same("after the sweep")
		retired, err := s.Retire(within(t), client.NewMutationID())
		if err != nil || retired.Answer.Record == nil || retired.Answer.Record.EndOffset != first.EndOffset {
			t.Errorf("retire: %+v, %v", retired.Answer, err)
		}
		if err := s.Purge(within(t)); err != nil {
			t.Error(err)
		}
	}
}
