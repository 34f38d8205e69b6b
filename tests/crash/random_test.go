package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// sampleKills is how many random kills there are when nobody asks for more.
const sampleKills = 40

// TestRandomKillsDuringStart kills client and guardian, untraced and at any
// moment, while a start is under way. The owner lives on, if there is one.
func TestRandomKillsDuringStart(t *testing.T) {
	count := sampleKills
	if text := os.Getenv(killsVar); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir, n := t.TempDir(), seed(t)
	usual, err := usualStart(dir)
	if err != nil {
		t.Fatal(err)
	}
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex // guards states
		states  = map[string]int{}
	)
	for range 3 * runtime.NumCPU() {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(count); i = next.Add(1) {
				r := rand.New(rand.NewPCG(n, uint64(i)))
				k := killing{after: time.Duration(r.Int64N(int64(usual))), guardianFirst: r.IntN(2) == 0}
				found, err := k.run(dir)
				if err != nil {
					t.Errorf("kill %d, after %v: %v", i, k.after, err)
				}
				mu.Lock()
				states[found]++
				mu.Unlock()
				if i%1000 == 0 {
					t.Logf("%d kills", i)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d kills within %v; states found: %v", count, usual, states)
}

// usualStart measures how long the driver takes, with as many beside it as later.
func usualStart(dir string) (time.Duration, error) {
	took := make([]time.Duration, 3*runtime.NumCPU())
	errs := make([]error, len(took))
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			k := killing{after: patience}
			_, errs[i] = k.run(dir)
			took[i] = k.took
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("without a kill: %w", err)
	}
	return slices.Max(took), nil
}

// killing is one start with one kill.
type killing struct {
	after         time.Duration
	guardianFirst bool
	took          time.Duration // until the driver had ended
}

// run kills after a while, unless the driver has ended before, and tells the state
// that the files showed then.
func (k *killing) run(dir string) (string, error) {
	w, err := newWorld(dir, "kills")
	if err != nil {
		return "", err
	}
	defer w.destroy()
	if err := w.create(); err != nil {
		return "", err
	}
	acked, err := k.drive(w)
	if err != nil {
		return "", err
	}
	found, err := w.state()
	if err != nil {
		return "", err
	}
	return found, judge{world: w, acked: acked, rounds: 1}.verdict()
}

func (k *killing) drive(w world) ([]ack, error) {
	argv, env, err := errand{World: w, Patience: patience, Only: []int{1}}.command()
	if err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(filepath.Dir(w.Root), "said"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd := exec.Command(argv[0])
	cmd.Env, cmd.Stdout = env, said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(k.after):
		if k.guardianFirst {
			w.killGuardians()
		}
		_ = cmd.Process.Kill()
		err = <-ended
		w.killGuardians()
	}
	k.took = time.Since(began)
	if err != nil && cmd.ProcessState.ExitCode() > 0 {
		return nil, fmt.Errorf("the driver failed: %w", err)
	}
	text, err := os.ReadFile(said.Name())
	if err != nil {
		return nil, err
	}
	return acks(text)
}

// create makes the session and starts nothing.
func (w world) create() error {
	root, err := sessiondir.OpenRoot(w.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	d, _, err := root.Create(w.scenario().op(0), sessiondir.CreateOptions{Name: sessionName})
	if err != nil {
		return err
	}
	return d.Close()
}

// killGuardians finds them by their arguments: not each has noted itself yet.
func (w world) killGuardians() {
	for _, pid := range processesWith(func(pid string) bool {
		line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		return strings.Contains(string(line), "mur-guardian") && strings.Contains(string(line), w.Root+"/")
	}) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (w world) state() (string, error) {
	d, err := sessiondir.Open(w.session())
	if err != nil {
		return "", err
	}
	defer d.Close()
	v, err := d.Read()
	if err != nil {
		return "", err
	}
	return string(v.Snapshot.State), nil
}
