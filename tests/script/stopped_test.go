package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// longStop is how long a guardian stays stopped with MUR_LONG; else it does for as
// long as it takes others to notice.
const longStop = 90 * time.Second

// stopGuardian stops the session's guardian and waits until each of its threads has
// stopped: kill(2) returns before that, and the last of them may still answer.
func stopGuardian(t *testing.T, dir *sessiondir.Dir) procs.Identity {
	t.Helper()
	id, held, err := dir.Holder(sessiondir.GuardianLock)
	if err != nil || !held || id.PID == 0 {
		t.Fatalf("no guardian to stop: %+v, %v, %v", id, held, err)
	}
	if err := hit(id.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // were it left so, nothing could end the session
		if p, err := procs.Open(id); err == nil {
			p.Signal(syscall.SIGCONT)
			p.Close()
		}
	})
	eventually(t, "all threads to be stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", id.PID))
		for _, path := range threads {
			var b []byte
			if b, err = os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(") T ")) {
				return false
			}
		}
		return err == nil && len(threads) > 0
	})
	return id
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// shownState is what `mur show --json` tells.
func (b *bench) shownState(session string) (state string, code *int, err error) {
	out, status, err := b.mur("show", "--json", session)
	if err != nil || status != 0 {
		return "", nil, fmt.Errorf("show: %d, %w", status, err)
	}
	var show struct {
		State    string `json:"state"`
		ExitCode *int   `json:"exit_code"`
	}
	err = json.Unmarshal([]byte(out), &show)
	return show.State, show.ExitCode, err
}

func TestAStoppedGuardianIsMissedByNobodyOnceItGoesOn(t *testing.T) {
	stay := time.Duration(often(0, int(longStop)))
	b := newBench(t)
	gate := filepath.Join(t.TempDir(), "gate")
	c := b.countBy(fmt.Sprintf("seq 1 1000; until test -e %s; do sleep 0.05; done; seq 1001 1500; exit 7", gate), 1500)
	eventually(t, "the first lines", func() bool { end, err := c.end(); return err == nil && end == int64(len(numbers(1000))) })
	before, err := c.s.Snapshot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	id := stopGuardian(t, c.dir)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// What the target has written stays in the terminal, and its end is on record.
	eventually(t, "the target's end to be shown", func() bool {
		state, code, err := b.shownState(c.s.ID())
		return err == nil && state == "exited" && code != nil && *code == 7
	})
	if _, status, err := b.mur("wait", "--timeout", "100ms", c.s.ID()); err != nil || status != 124 {
		t.Errorf("the output is not complete, and wait exits with %d, %v", status, err)
	}
	c.pause(stay)
	if now, held, err := c.dir.Holder(sessiondir.GuardianLock); err != nil || !held || now != id {
		t.Errorf("the guardian is %+v, then %+v, %v, %v", id, now, held, err)
	}
	if err := hit(id.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.check()
	after, err := c.s.Snapshot(within(t))
	if err != nil || after.Generation != before.Generation {
		t.Errorf("generation %d, then %d, %v", before.Generation, after.Generation, err)
	}
	if err := b.done(c.s); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfAQuietSessionIsToldWithAStoppedGuardian(t *testing.T) {
	b := newBench(t)
	gate := filepath.Join(t.TempDir(), "gate")
	c := b.countBy(fmt.Sprintf("seq 1 10; until test -e %s; do sleep 0.05; done; exit 7", gate), 10)
	eventually(t, "the lines", func() bool { end, err := c.end(); return err == nil && end == int64(len(numbers(10))) })
	id := stopGuardian(t, c.dir)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, status, err := b.mur("wait", c.s.ID()); err != nil || status != 7 {
		t.Errorf("wait exits with %d, %v", status, err)
	}
	b.watchAll(1)
	if out, status, err := b.mur("ls"); err != nil || status != 0 || !bytes.Contains([]byte(out), []byte(" ended ")) {
		t.Errorf("ls: %d, %v\n%s", status, err, out)
	}
	if err := hit(id.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.check()
	if err := b.done(c.s); err != nil {
		t.Error(err)
	}
}

// crowd fills the backlog of the session's socket.
func crowd(t *testing.T, dir *sessiondir.Dir) (conns []net.Conn) {
	t.Helper()
	const most = 5000 // the kernel's bound, net.core.somaxconn, is 4096
	for range most {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		conn, err := peersock.Dial(ctx, dir.File(), sessiondir.GuardianSocket)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return conns
		}
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	t.Fatalf("%d connections do not fill the backlog", most)
	return nil
}

func TestAFullBacklogIsNoDeadGuardian(t *testing.T) {
	b := newBench(t)
	op := client.NewMutationID()
	start := []string{"start", "-d", "--op", op.String(), "--", "cat"}
	if _, status, err := b.mur(start...); err != nil || status != 0 {
		t.Fatalf("start: %d, %v", status, err)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir, err := sessiondir.Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	socket, err := peersock.FileOf(dir.File(), sessiondir.GuardianSocket)
	if err != nil {
		t.Fatal(err)
	}
	id := stopGuardian(t, dir)
	conns := crowd(t, dir)
	t.Logf("%d clients wait", len(conns))
	for _, args := range [][]string{{"show", s.ID()}, {"ls"}, {"op", "ls", s.ID()}, {"logs", s.ID()}} {
		if out, status, err := b.mur(args...); err != nil || status != 0 {
			t.Errorf("mur %v: %d, %v\n%s", args, status, err, out)
		}
	}
	timely := append([]string{"start", "--timeout", "500ms"}, start[1:]...)
	for _, args := range [][]string{timely, {"term", "--timeout", "500ms", s.ID()}} {
		if out, status, err := b.mur(args...); err != nil || status != 124 {
			t.Errorf("mur %v: %d, %v\n%s", args, status, err, out)
		}
	}
	if now, held, err := dir.Holder(sessiondir.GuardianLock); err != nil || !held || now != id {
		t.Errorf("the guardian is %+v, then %+v, %v, %v", id, now, held, err)
	}
	if !peersock.StillBound(dir.File(), sessiondir.GuardianSocket, socket) {
		t.Error("the socket was replaced")
	}
	for _, conn := range conns {
		conn.Close()
	}
	if err := hit(id.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, status, err := b.mur(start...); err != nil || status != 0 {
		t.Errorf("the same start again: %d, %v", status, err)
	}
	if got, err := s.Input(within(t), []byte("x\n")); err != nil || got != 2 {
		t.Errorf("input: %d, %v", got, err)
	}
	if err := b.done(s); err != nil {
		t.Error(err)
	}
}
