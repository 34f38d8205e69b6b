package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

const (
	// driverVar makes this binary the driver; it holds the errand.
	driverVar = "MUR_CRASH_DRIVER"
	binVar    = "MUR_CRASH_BIN"
	// fullVar asks for everything instead of a sample, seedVar for another sample,
	// killsVar says how many random kills there are.
	fullVar  = "MUR_CRASH_FULL"
	seedVar  = "MUR_CRASH_SEED"
	killsVar = "MUR_CRASH_KILLS"
	// onlyVar names one fault of the matrix.
	onlyVar = "MUR_CRASH_ONLY"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if text := os.Getenv(driverVar); text != "" {
		var e errand
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		return e.drive()
	}
	dir, err := os.MkdirTemp("", "mur-crash-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"guardian", "owner"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "mur-"+name), "github.com/seed-8e62c83d/mur/cmd/"+name)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	os.Setenv(binVar, dir)
	return m.Run()
}

// traced skips a test where there is no tracing.
func traced(t *testing.T) {
	t.Helper()
	if err := tracer.Supported(); err != nil {
		t.Skip("no calls can be traced here: ", err)
	}
}

func full() bool { return os.Getenv(fullVar) != "" }

// seed is printed, so that a sample can be had again.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(1)
	if text := os.Getenv(seedVar); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedVar, n)
	return n
}

// eventually polls what nothing announces.
func eventually(within time.Duration, is func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(within)
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
	return true
}
