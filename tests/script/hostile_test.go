package script

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

// hostile is a session with a hostile tree in it.
type hostile struct {
	t       *testing.T
	s       *client.Session
	marker  string
	dir     string
	members map[string]int // pids
	decoys  []*exec.Cmd
}

func (b *bench) hostile() *hostile {
	t := b.t
	t.Helper()
	h := &hostile{t: t, marker: "tree-" + client.NewMutationID().String(), dir: t.TempDir(), members: map[string]int{}}
	h.decoy("decoy", true)
	h.decoy("decoy", false)
	h.decoy("plain", false, "beside the tree")
	spec, err := actor("tree", h.marker, h.dir)
	if err != nil {
		t.Fatal(err)
	}
	if h.s, err = b.begin(within(t), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.s.Close() })
	for _, kind := range members() {
		path := filepath.Join(h.dir, kind)
		eventually(t, "the process "+kind, func() bool {
			h.members[kind], err = notedPID(path)
			return err == nil
		})
	}
	eventually(t, "one to be stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.members["stopped"]))
		return err == nil && bytes.Contains(text, []byte(") T "))
	})
	for _, kind := range chains() {
		before := h.links(kind)
		eventually(t, "links of the "+kind, func() bool { return h.links(kind) > before+5 })
	}
	return h
}

// decoy starts a process that is like the tree's and not of it. More arguments keep
// it from noting itself as a member.
func (h *hostile) decoy(kind string, session bool, more ...string) {
	h.t.Helper()
	cmd, err := acting("member", append([]string{kind, h.marker, h.dir}, more...)...)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	h.decoys = append(h.decoys, cmd)
	h.t.Cleanup(func() { // it does by itself what it is told, so it was left alone
		in.Close()
		if err := <-ended; err != nil {
			h.t.Errorf("the decoy %s ended with %v", cmd.Args, err)
		}
	})
}

// links counts those of a chain so far.
func (h *hostile) links(kind string) uint64 {
	text, err := os.ReadFile(filepath.Join(h.dir, kind))
	if err != nil || len(text) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(text)
}

// left looks for processes with the tree's marker.
func (h *hostile) left() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.ContainsFunc(h.decoys, func(d *exec.Cmd) bool { return d.Process.Pid == pid }) {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); bytes.Contains(line, []byte(h.marker)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// swept checks that the sweep's word is true.
func (h *hostile) swept(a client.SweepAnswer) {
	t := h.t
	t.Helper()
	before := map[string]uint64{}
	for _, kind := range chains() {
		before[kind] = h.links(kind)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("after the sweep there are %v", left)
	}
	for kind, n := range before {
		if now := h.links(kind); now != n {
			t.Errorf("the %s goes on after the sweep, from %d to %d", kind, n, now)
		}
	}
	if !a.Proved || a.Partial != "" {
		t.Errorf("it is not proved: %q", a.Partial)
	}
	told := map[int]bool{}
	for _, p := range a.Processes {
		if told[p.PID] = true; !p.Gone {
			t.Errorf("it is reported as there: %+v", p)
		}
	}
	for kind, pid := range h.members {
		if !told[pid] {
			t.Errorf("the process %s, %d, is not reported", kind, pid)
		}
	}
	if len(told) == len(h.members) {
		t.Error("of the chains no process is reported")
	}
	for _, d := range h.decoys {
		if told[d.Process.Pid] || syscall.Kill(d.Process.Pid, 0) != nil {
			t.Errorf("the decoy %v was taken for one of the tree", d.Args)
		}
	}
}

func TestASweepLeavesNothingOfAHostileTreeAndTouchesNobodyElse(t *testing.T) {
	b := newBench(t)
	for i := range often(3, 100) {
		guardianless, leaderless := i%2 != 0, i%3 == 2
		t.Run(fmt.Sprintf("%d/guardianless=%v/leaderless=%v", i, guardianless, leaderless), func(t *testing.T) {
			b := &bench{t: t, home: b.home, c: b.c}
			b.hostileRound(guardianless, leaderless)
		})
	}
}

func (b *bench) hostileRound(guardianless, leaderless bool) {
	t := b.t
	h := b.hostile()
	if leaderless {
		if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if end, err := h.s.WaitEnd(within(t)); err != nil || exitedWith(end.Record, 0) != nil {
			t.Errorf("the target: %+v, %v", end.Record, err)
		}
	}
	st, err := h.s.Snapshot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if guardianless {
		killed, err := procs.Of(st.GuardianPID)
		if err != nil {
			t.Fatal(err)
		}
		if err := hit(killed.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the guardian's end", func() bool { return !killed.Alive() })
	}
	r, err := h.s.Sweep(within(t), client.NewMutationID())
	if err != nil {
		t.Fatal(err)
	}
	if !leaderless {
		h.members["target"] = st.TargetPID
	}
	h.swept(r.Answer)
	if guardianless != (r.Snapshot.Generation > st.Generation) {
		t.Errorf("generation %d, then %d", st.Generation, r.Snapshot.Generation)
	}
	end, err := h.s.WaitEnd(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if rec := end.Record; !leaderless && (rec.ExitSignal != int(syscall.SIGKILL) || rec.AskedBy != r.Answer.MutationID.String()) {
		t.Errorf("the target: %+v", *rec)
	}
	if _, err := h.s.Retire(within(t), client.NewMutationID()); err != nil {
		t.Error(err)
	}
	if err := h.s.Purge(within(t)); err != nil {
		t.Error(err)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("after the retirement there are %v", left)
	}
}
