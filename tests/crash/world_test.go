package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// world is where one session lives and what is outside of it.
type world struct {
	Root     string // state directory
	Launches string // a line for each execution of the target
	Token    string // in the target's environment
	Scenario string
}

// newWorld makes one below dir. Its paths are part of what is started, so a state
// that is laid out elsewhere keeps the Launches and Token it was recorded with.
func newWorld(dir, scenario string) (world, error) {
	base, err := os.MkdirTemp(dir, scenario+"-")
	if err != nil {
		return world{}, err
	}
	w := world{
		Root: filepath.Join(base, "state"), Launches: filepath.Join(base, "launches"),
		Token: filepath.Base(dir) + "/" + filepath.Base(base), Scenario: scenario,
	}
	return w, os.Mkdir(w.Root, 0o700)
}

func (w world) scenario() scenario { return scenarioOf(w.Scenario) }

func (w world) spec() client.StartSpec {
	return client.StartSpec{
		Program: []byte("/bin/sh"),
		Args:    [][]byte{[]byte("-c"), []byte(w.scenario().target), []byte("sh"), []byte(w.Launches)},
		Env:     map[client.Bytes]client.Bytes{"PATH": "/usr/bin:/bin", "MUR_CRASH": client.Bytes(w.Token)},
	}
}

// session is the session's directory.
func (w world) session() string {
	return filepath.Join(w.Root, "sessions", client.IDFor(w.scenario().op(0)))
}

// launched lists the pids of the target's executions that came to its first line.
func (w world) launched() ([]int, error) {
	data, err := os.ReadFile(w.Launches)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var pids []int
	for _, word := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// processes lists what lives of the session: its programs, and its target with
// what that has started.
func (w world) processes() []int { return processesWith(w.concerns) }

func processesWith(is func(pid string) bool) []int {
	var out []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if is(e.Name()) && alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func (w world) concerns(pid string) bool {
	env, _ := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	if bytes.Contains(env, []byte("MUR_CRASH="+w.Token+"\x00")) {
		return true
	}
	line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if bytes.Contains(line, []byte(w.Root+"/")) {
		return true
	}
	fds, _ := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		to, _ := os.Readlink(filepath.Join("/proc", pid, "fd", fd.Name()))
		return strings.HasPrefix(to, w.Root+"/sessions")
	})
}

// describe says what processes are, for whoever reads a failure.
func describe(pids []int) string {
	var out []string
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := bytes.Cut(state, []byte(") "))
		out = append(out, fmt.Sprintf("%d %q (%.12s)", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}), rest))
	}
	return strings.Join(out, ", ")
}

func alive(pid int) bool {
	id, err := procs.Of(pid)
	return err == nil && id.Alive()
}

// kill ends the holders of locks of the session, in this order, and waits until
// the locks are free.
func (w world) kill(sig syscall.Signal, locks ...string) error {
	d, err := sessiondir.Open(w.session())
	if err != nil {
		return err
	}
	defer d.Close()
	for _, lock := range locks {
		var first procs.Identity
		free := eventually(10*time.Second, func() bool {
			id, held, err := d.Holder(lock)
			if err != nil || !held || first.PID != 0 && id.PID != 0 && id != first {
				return true // or it has a successor
			}
			if id.PID != 0 && first.PID == 0 {
				first = id
				_ = syscall.Kill(id.PID, sig)
			}
			return false
		})
		if !free {
			return fmt.Errorf("cannot end the holder of %s: it still lives", lock)
		}
	}
	return nil
}

// group is the directory that the session's control group has, if one was made.
func (w world) group() (string, error) {
	d, err := sessiondir.Open(w.session())
	if err != nil {
		return "", err
	}
	defer d.Close()
	o, err := d.Outcome()
	if err != nil {
		return "", err
	}
	if o != nil && o.Cgroup != "" {
		return o.Cgroup, nil
	}
	place, err := cgroup.Own()
	if err != nil || place.Dir == "" {
		return "", err
	}
	name, err := sessiondir.GroupName(d.ID(), d.File())
	return filepath.Join(place.Dir, name), err
}

// destroy leaves neither processes nor files, whatever state the session is in.
func (w world) destroy() {
	eventually(10*time.Second, func() bool {
		left := w.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	if path, err := w.group(); err == nil && path != "" {
		_ = os.Remove(path)
	}
	_ = os.RemoveAll(filepath.Dir(w.Root))
}

// longJournal makes the session with a journal that the next commit will compact:
// five old answers of nearly the greatest length.
func longJournal(w world) error {
	root, err := sessiondir.OpenRoot(w.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	d, _, err := root.Create(w.scenario().op(0), sessiondir.CreateOptions{Name: sessionName})
	if err != nil {
		return err
	}
	defer d.Close()
	j, err := journal.Create(d.File(), sessiondir.JournalFile)
	if err != nil {
		return err
	}
	defer j.Close()
	for i := range 5 {
		r := receipts.Record{Kind: receipts.KindSettled, Receipt: receipts.Receipt{
			ID: protocol.MutationID{0: 0xff, 15: byte(i)}, Op: "signal", Fingerprint: receipts.Fingerprint{1},
			AdmittedAt: time.Unix(1, 0).UTC(), CompletedAt: time.Unix(2, 0).UTC(), Code: "ok", Done: true,
			Response: make([]byte, 250<<10),
		}}
		entry, err := sessiondir.EncodeEntry(sessiondir.Entry{Receipt: &r})
		if err != nil {
			return err
		}
		if err := j.Append(entry); err != nil {
			return err
		}
	}
	return nil
}
