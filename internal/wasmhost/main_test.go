package wasmhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"go.uber.org/goleak"
)

const bound = 60 * time.Second // every wait of the tests ends by then

// runnerEnv makes the test binary a small program around Run, for what must be seen from outside: a terminal of its
// own, signals, and a guest that never returns.
const runnerEnv = "WASMHOST_TEST_RUNNER"

type runnerJob struct {
	Module   string
	Manifest *capsule.Manifest
	Args     []string
	WorkDir  string
	CacheDir string
	Deadline time.Duration
}

func TestMain(m *testing.M) {
	if job := os.Getenv(runnerEnv); job != "" {
		os.Exit(runner(job))
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func runner(text string) int {
	var job runnerJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		panic(err)
	}
	module, err := os.ReadFile(job.Module)
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	result, err := Run(context.Background(), Config{
		Capsule: testCapsule(job.Manifest, module), Args: job.Args, WorkDir: job.WorkDir, CacheDir: job.CacheDir,
		Deadline: job.Deadline, Signals: signals, Term: "xterm",
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	report := os.NewFile(3, "report")
	_ = json.NewEncoder(report).Encode(result)
	return result.ExitCode
}

// shared is the guest that all tests use, built and compiled once.
var shared struct {
	once  sync.Once
	dir   string
	probe []byte
	err   error
}

func probe(t *testing.T) (module []byte, path, cacheDir string) {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "wasmhost-test-"); shared.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(shared.dir, "probe.wasm"), ".")
		cmd.Dir = "testdata/probe"
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			shared.err = fmt.Errorf("%w: %s", err, out)
			return
		}
		shared.probe, shared.err = os.ReadFile(filepath.Join(shared.dir, "probe.wasm"))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.probe, filepath.Join(shared.dir, "probe.wasm"), filepath.Join(shared.dir, "cache")
}

func testCapsule(m *capsule.Manifest, module []byte) *capsule.Capsule {
	c := &capsule.Capsule{Manifest: m, Module: module, Path: "probe.wasm"}
	c.Digest = fmt.Sprintf("%x", len(module)) // the tests' modules differ in length
	return c
}

// manifest is the default one with changes.
func manifest(change ...func(*capsule.Manifest)) *capsule.Manifest {
	m := capsule.Default()
	m.Name = "test/probe"
	for _, f := range change {
		f(m)
	}
	return m
}

// guest is one run in this process.
type guest struct {
	cfg    Config
	stdin  *os.File // the test's end, nil for an empty input
	out    *lines
	err    *lines
	cancel context.CancelFunc
	done   chan struct{}
	result Result
	fault  error
}

// lines collects what a guest writes and lets a test wait for a part of it.
type lines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

func collect(r *os.File) *lines {
	l := &lines{more: make(chan struct{}, 1)}
	go func() {
		defer r.Close()
		b := make([]byte, 32<<10)
		for {
			n, err := r.Read(b)
			l.mu.Lock()
			l.buf.Write(b[:n])
			l.mu.Unlock()
			select {
			case l.more <- struct{}{}:
			default:
			}
			if err != nil {
				close(l.more)
				return
			}
		}
	}()
	return l
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(bound)
	for !strings.Contains(l.text(), part) {
		select {
		case _, open := <-l.more:
			if !open && !strings.Contains(l.text(), part) {
				t.Fatalf("the guest ended without %q, it wrote %q", part, l.text())
			}
		case <-limit:
			t.Fatalf("no %q within %v, the guest wrote %q", part, bound, l.text())
		}
	}
}

// end waits until everything is read.
func (l *lines) end(t *testing.T) string {
	t.Helper()
	limit := time.After(bound)
	for {
		select {
		case _, open := <-l.more:
			if !open {
				return l.text()
			}
		case <-limit:
			t.Fatal("the output does not end")
		}
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// start runs the probe with the arguments in another goroutine.
func start(t *testing.T, m *capsule.Manifest, change func(*Config), args ...string) *guest {
	t.Helper()
	module, _, cacheDir := probe(t)
	g := &guest{done: make(chan struct{})}
	g.cfg = Config{Capsule: testCapsule(m, module), Args: args, CacheDir: cacheDir}
	if m.Capabilities.Filesystem != nil {
		g.cfg.WorkDir = t.TempDir()
	}
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	g.cfg.Stdin, g.stdin = pipe(t)
	g.cfg.Stdout, g.cfg.Stderr = outW, errW
	g.out, g.err = collect(outR), collect(errR)
	if change != nil {
		change(&g.cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() {
		defer close(g.done)
		g.result, g.fault = Run(ctx, g.cfg)
		outW.Close()
		errW.Close()
	}()
	t.Cleanup(func() { cancel(); <-g.done })
	return g
}

// wait gives the result and what the guest wrote.
func (g *guest) wait(t *testing.T) (Result, string) {
	t.Helper()
	select {
	case <-g.done:
	case <-time.After(bound):
		t.Fatalf("the run does not end, the guest wrote %q", g.out.text())
	}
	if g.fault != nil {
		t.Fatal(g.fault)
	}
	out := g.out.end(t)
	if e := g.err.end(t); e != "" {
		t.Logf("stderr: %s", e)
	}
	return g.result, out
}

// call runs the probe to its end.
func call(t *testing.T, m *capsule.Manifest, change func(*Config), args ...string) (Result, string) {
	t.Helper()
	g := start(t, m, change, args...)
	g.stdin.Close()
	return g.wait(t)
}

// process is a run in a process of its own.
type process struct {
	cmd    *exec.Cmd
	report *os.File
}

func runnerCmd(t *testing.T, job runnerJob) *process {
	t.Helper()
	module, path, cacheDir := probe(t)
	if job.Module == "" {
		job.Module = path
		// Fill the cache here, so that the timing of a test is not the compiler's.
		p, err := compileCached(context.Background(), module, openCache(cacheDir, testCapsule(nil, module).Digest), func() {})
		if err != nil {
			t.Fatal(err)
		}
		p.close()
	}
	job.CacheDir = cacheDir
	if job.Manifest.Capabilities.Filesystem != nil && job.WorkDir == "" {
		job.WorkDir = t.TempDir()
	}
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), runnerEnv+"="+string(text))
	cmd.ExtraFiles = []*os.File{w}
	return &process{cmd: cmd, report: r}
}

// end waits for the process and gives its exit code and the result it reported.
func (p *process) end(t *testing.T) (int, Result) {
	t.Helper()
	for _, f := range p.cmd.ExtraFiles {
		f.Close()
	}
	waited := make(chan error, 1)
	go func() { waited <- p.cmd.Wait() }()
	select {
	case err := <-waited:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
	case <-time.After(bound):
		_ = p.cmd.Process.Kill()
		<-waited
		t.Fatal("the process does not end")
	}
	var result Result
	if err := json.NewDecoder(p.report).Decode(&result); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), result
}
