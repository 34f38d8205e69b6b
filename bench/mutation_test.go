package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the executables for the benchmarks, if any is asked for.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mur-bench")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("MUR_BENCH_DIR", dir)
	return m.Run()
}

// build puts the executables into one directory and returns it.
func build(b *testing.B) string {
	b.Helper()
	dir := filepath.Join(os.Getenv("MUR_BENCH_DIR"), "bin")
	for name, pkg := range map[string]string{"mur-guardian": "guardian", "mur-owner": "owner", "mur": "mur"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "../cmd/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("cannot build %s: %v\n%s", pkg, err, out)
		}
	}
	return dir
}

// session starts a program in a session that is gone after the benchmark.
func session(b *testing.B, args ...string) *client.Session {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.New(client.Options{Root: filepath.Join(b.TempDir(), "state"), Bin: build(b)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.Create(ctx, client.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	spec := client.StartSpec{Program: []byte(args[0])}
	for _, a := range args[1:] {
		spec.Args = append(spec.Args, []byte(a))
	}
	if _, err := s.Start(ctx, client.NewMutationID(), spec); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		s.Sweep(ctx, client.NewMutationID())
		s.WaitEnd(ctx)
		s.Retire(ctx, client.NewMutationID())
		s.WaitGone(ctx)
		s.Close()
		c.Close()
	})
	return s
}

// BenchmarkMutation is a signal from the request to its answer, beside its three
// fdatasyncs (the guardian's admission and completion, the owner's record), each of
// a record of the same size on the same disk. Between two of a mutation processes
// talk, and a disk that was left alone for a moment is slower than one that has just
// worked: so each of the yardstick comes after a status request, not counted.
func BenchmarkMutation(b *testing.B) {
	s := session(b, "/bin/sleep", "1000")
	ctx := context.Background()
	yardstick, err := os.Create(filepath.Join(b.TempDir(), "yardstick"))
	if err != nil {
		b.Fatal(err)
	}
	defer yardstick.Close()
	if _, err := yardstick.Write(make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	record := make([]byte, 300)
	var mutations, syncs []time.Duration
	var offset int64
	for b.Loop() {
		began := time.Now()
		if _, err := s.Signal(ctx, client.NewMutationID(), int(syscall.SIGWINCH), "target"); err != nil {
			b.Fatal(err)
		}
		mutations = append(mutations, time.Since(began))
		var sum time.Duration
		for range 3 {
			if _, err := s.Status(ctx); err != nil {
				b.Fatal(err)
			}
			began = time.Now()
			if _, err := yardstick.WriteAt(record, offset); err != nil {
				b.Fatal(err)
			}
			if err := unix.Fdatasync(int(yardstick.Fd())); err != nil {
				b.Fatal(err)
			}
			sum += time.Since(began)
			offset = (offset + int64(len(record))) % (1 << 19)
		}
		syncs = append(syncs, sum)
	}
	m, y := median(mutations), median(syncs)
	b.ReportMetric(float64(m.Microseconds()), "us/mutation")
	b.ReportMetric(float64(y.Microseconds()), "us/3-fdatasyncs")
	b.ReportMetric(float64(m)/float64(y), "x-fdatasyncs")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
