package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

// playForker makes N orphans, which end with 9, and itself ends with 5: at once, or
// when the file GATE is there.
func playForker(args []string) (int, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 1, err
	}
	d := &unix.Timespec{Nsec: int64(2 * time.Millisecond)} // they outlive their parent
	for range n {
		pid, errno := orphan(d)
		if errno != 0 {
			return 1, errno
		}
		var status syscall.WaitStatus
		for {
			_, err := syscall.Wait4(int(pid), &status, 0, nil)
			if err == nil && status.ExitStatus() == 0 {
				break
			}
			if err != syscall.EINTR {
				return 1, fmt.Errorf("a child ended with %#x: %w", int(status), err)
			}
		}
	}
	fmt.Println("made")
	if len(args) > 1 {
		err = await(lifetime, func() bool { _, err := os.Stat(args[1]); return err == nil })
	}
	return 5, err
}

// orphan forks a process that forks another one and exits.
//
//go:norace
//go:nosplit
func orphan(d *unix.Timespec) (pid uintptr, errno syscall.Errno) {
	pid, errno = fork()
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	pid, errno = fork()
	if errno != 0 {
		leave(uintptr(errno))
	}
	if pid != 0 {
		leave(0)
	}
	doze(d)
	leave(9)
	return 0, 0
}

// fields gives those of /proc/PID/stat from the third on.
func fields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])), nil
}

// ticks is the CPU time that a process has used, in hundredths of a second.
func ticks(pid int) (int, error) {
	f, err := fields(pid)
	if err != nil {
		return 0, err
	}
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	return user + system, errors.Join(err1, err2)
}

// quiet waits for a second in which the processes together use less than 1 %: at
// most one tick in two seconds, and a tick that is charged whole.
func quiet(t *testing.T, pids ...int) {
	t.Helper()
	const windows, window = 10, 2 * time.Second
	var used []int
	for range windows {
		sum := 0
		for _, sign := range []int{-1, 1} {
			for _, pid := range pids {
				n, err := ticks(pid)
				if err != nil {
					t.Fatal(err)
				}
				sum += sign * n
			}
			if sign < 0 {
				<-time.After(window)
			}
		}
		if used = append(used, sum); sum <= 1 {
			return
		}
	}
	t.Errorf("there is no quiet time: ticks in %v each: %v", window, used)
}

func TestThousandsOfOrphansLeaveNoZombieAndAnotherStatus(t *testing.T) {
	b := newBench(t)
	gate := filepath.Join(t.TempDir(), "gate")
	for _, args := range [][]string{
		{strconv.Itoa(often(500, 10_000)), gate},
		{strconv.Itoa(often(300, 10_000))},
	} {
		spec, err := actor("forker", args...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.begin(within(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if len(args) > 1 {
			b.gated(s, gate)
		}
		end, err := s.WaitEnd(during(t, longTime))
		if err != nil {
			t.Fatal(err)
		}
		if err := exitedWith(end.Record, 5); err != nil {
			t.Error(err)
		}
		if log, err := logged(s); err != nil || string(log) != "made\r\n" {
			t.Errorf("the log is %q, %v", log, err)
		}
		// The owner leaves when the last of them is reaped, which proves it.
		eventually(t, "the owner to leave", func() bool {
			st, err := s.Snapshot(within(t))
			return err == nil && st.TerminalSessionEnded && !st.OwnerAlive
		})
		r, err := s.Sweep(within(t), client.NewMutationID())
		if err != nil || !r.Answer.Proved || len(r.Answer.Processes) != 0 {
			t.Errorf("sweep: %+v, %v", r.Answer, err)
		}
		if err := b.done(s); err != nil {
			t.Error(err)
		}
	}
}

// gated looks at the session while its target waits, all orphans being made.
func (b *bench) gated(s *client.Session, gate string) {
	t := b.t
	t.Helper()
	ctx := during(t, longTime)
	var out []byte
	err := s.FollowLog(ctx, 0, func(p client.Piece) error {
		if out = append(out, p.Bytes...); string(out) == "made\r\n" {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) {
		t.Fatalf("%q: %v", out, err)
	}
	st, err := s.Snapshot(ctx)
	if err != nil || !st.OwnerAlive || !st.GuardianAlive {
		t.Fatalf("%+v, %v", st, err)
	}
	// Zombies would be among them.
	eventually(t, "the target to be the owner's only child", func() bool {
		children, err := procs.Children(st.OwnerPID)
		return err == nil && slices.Equal(children, []int{st.TargetPID})
	})
	quiet(t, st.OwnerPID, st.GuardianPID)
	if now, err := s.Snapshot(ctx); err != nil || now.State != client.StateRunning || now.Revision != st.Revision {
		t.Errorf("revision %d, then %s, %d, %v", st.Revision, now.State, now.Revision, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
