package wasmhost

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	randv2 "math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	wsys "github.com/tetratelabs/wazero/sys"
)

// run is one run of a capsule.
type run struct {
	cfg      Config
	manifest *capsule.Manifest
	limits   capsule.Limits
	stop     *stopper
	host     *host
	files    *openFiles
	mounts   []guestMount
	memory   *allocator
}

// Run runs a capsule to its end. An error is a *Refused when the guest never began, and anything else a fault of the
// host. A Result that is Abandoned leaves a spinning guest behind: the caller must leave the process.
func Run(ctx context.Context, cfg Config) (Result, error) {
	r := &run{cfg: cfg, manifest: cfg.Capsule.Manifest, limits: lowered(cfg)}
	stop, err := newStopper()
	if err != nil {
		return Result{}, fmt.Errorf("cannot prepare the run: %w", err)
	}
	r.stop = stop
	result, err := r.run(ctx)
	if !result.Abandoned {
		for _, m := range r.mounts {
			m.fs.close()
		}
		stop.close()
	}
	return result, err
}

// lowered are the manifest's limits under the operator's.
func lowered(cfg Config) capsule.Limits {
	l := cfg.Capsule.Manifest.Capabilities.Limits
	if cfg.Memory > 0 {
		l.Memory = min(l.Memory, cfg.Memory)
	}
	if cfg.Deadline > 0 && (l.Deadline == 0 || cfg.Deadline < l.Deadline) {
		l.Deadline = cfg.Deadline
	}
	return l
}

func (r *run) run(ctx context.Context) (Result, error) {
	if err := r.admit(); err != nil {
		return Result{}, err
	}
	if err := r.prepare(); err != nil {
		return Result{}, err
	}
	watch := r.startWatch(ctx)
	defer watch.end()
	p, err := compile(context.WithoutCancel(ctx), r.cfg.Capsule, r.cfg.CacheDir, r.cfg.Compiling, r.stop.stopped)
	if err != nil {
		return Result{}, &Refused{"compile", CodeModule, err.Error()}
	}
	if p == nil {
		return r.ended(nil), nil
	}
	if err := r.link(ctx, p); err != nil {
		p.close()
		return Result{}, err
	}
	return r.execute(ctx, p, watch)
}

// admit refuses what this version cannot keep its word about.
func (r *run) admit() error {
	if c := r.manifest.Containment; c != capsule.Advisory {
		return &Refused{"containment", CodeContainment, fmt.Sprintf("it asks for %s containment, this version offers %s", c, capsule.Advisory)}
	}
	if r.limits.Memory < wasmPage {
		return &Refused{"grants", CodeGrant, fmt.Sprintf("the memory limit %s is less than one page of %s", r.limits.Memory, capsule.Size(wasmPage))}
	}
	if need := declaredMemory(r.cfg.Capsule.Module); need > uint64(r.limits.Memory) {
		return &Refused{"grants", CodeGrant, fmt.Sprintf("the module needs %s of memory, the limit is %s", capsule.Size(need), r.limits.Memory)}
	}
	return nil
}

// prepare opens everything the guest is given.
func (r *run) prepare() error {
	errs := &errnos{}
	r.files = &openFiles{errs: errs, limit: r.limits.OpenFiles}
	if err := r.openMounts(); err != nil {
		return err
	}
	budget := int64(math.MaxInt64)
	if r.limits.Output > 0 {
		budget = int64(r.limits.Output)
	}
	caps := r.manifest.Capabilities
	r.host = &host{stop: r.stop, errs: errs, random: caps.Random.Mode, clocks: &clocks{grant: caps.Clock, start: time.Now()}}
	for i, f := range []*os.File{r.cfg.Stdin, r.cfg.Stdout, r.cfg.Stderr} {
		s, err := newStream(f, r.stop, &budget)
		if err != nil {
			return fmt.Errorf("cannot use standard stream %d: %w", i, err)
		}
		r.host.streams[i] = s
	}
	tty, err := openTerminal(r.host.streams, caps.Terminal)
	if err != nil {
		return fmt.Errorf("cannot read the terminal's modes: %w", err)
	}
	r.host.tty = tty
	r.memory = &allocator{limit: uint64(r.limits.Memory) / wasmPage * wasmPage}
	return nil
}

// link makes the modules that the guest imports, after checking that it imports nothing else.
func (r *run) link(ctx context.Context, p *program) error {
	known := map[string]bool{"wasi_snapshot_preview1": true, ttyModule: true}
	for _, f := range p.compiled.ImportedFunctions() {
		if module, name, _ := f.Import(); !known[module] {
			return &Refused{"link", CodeModule, fmt.Sprintf("it imports %q from %q, which this version does not have", name, module)}
		}
	}
	if p.compiled.ExportedFunctions()["_start"] == nil {
		return &Refused{"link", CodeModule, "it has no _start: it is not a program for WASI preview 1"}
	}
	if err := r.host.wasi(ctx, p.rt); err != nil {
		return fmt.Errorf("cannot build the WASI module: %w", err)
	}
	if err := r.host.murmurTTY(ctx, p.rt); err != nil {
		return fmt.Errorf("cannot build the terminal module: %w", err)
	}
	return nil
}

// moduleConfig is what the runtime is told about the guest's world.
func (r *run) moduleConfig() wazero.ModuleConfig {
	h := r.host
	cfg := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithArgs(slices.Concat([]string{path.Base(r.manifest.Name)}, r.manifest.Entry.Args, r.cfg.Args)...).
		WithFSConfig(r.fsConfig()).
		WithRandSource(randomSource(r.manifest.Capabilities.Random)).
		WithWalltime(func() (int64, int32) {
			ns := h.clocks.wall()
			return ns / int64(time.Second), int32(ns % int64(time.Second))
		}, wsys.ClockResolution(clockStep)).
		WithNanotime(h.clocks.monotonic, wsys.ClockResolution(clockStep))
	for _, pair := range r.environment() {
		name, value, _ := strings.Cut(pair, "=")
		cfg = cfg.WithEnv(name, value)
	}
	if s := h.streams[0]; s.fd >= 0 {
		cfg = cfg.WithStdin(s)
	}
	if s := h.streams[1]; s.fd >= 0 {
		cfg = cfg.WithStdout(s)
	}
	if s := h.streams[2]; s.fd >= 0 {
		cfg = cfg.WithStderr(s)
	}
	return cfg
}

func randomSource(grant capsule.Random) io.Reader {
	if grant.Mode != capsule.RandomSeed {
		return rand.Reader
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], grant.Seed)
	return randv2.NewChaCha8(seed)
}

func (r *run) fsConfig() wazero.FSConfig {
	cfg := wazero.NewFSConfig()
	hasRoot := false
	for _, m := range r.mounts {
		cfg = cfg.(sysfs.FSConfig).WithSysFSMount(m.fs, "/"+strings.Join(m.steps, "/"))
		hasRoot = hasRoot || len(m.steps) == 0
	}
	if !hasRoot {
		cfg = cfg.(sysfs.FSConfig).WithSysFSMount(&rootFS{errs: r.files.errs, mounts: r.mounts}, "/")
	}
	return cfg
}

// finished is how the guest's goroutine ended.
type finished struct {
	err    error
	linked bool // the module was instantiated, so the guest began
}

// execute runs the guest in a goroutine of its own, so that one that cannot be unwound can be left behind.
func (r *run) execute(ctx context.Context, p *program, watch *watch) (Result, error) {
	r.host.tty.start()
	defer r.host.tty.end()
	r.host.clocks.start = time.Now()
	r.host.pacer = startPacer()
	if r.cfg.Begin != nil {
		r.cfg.Begin()
	}
	watch.began()
	done := make(chan finished, 1)
	go func() { done <- r.guest(context.WithoutCancel(ctx), p) }()
	select {
	case f := <-done:
		r.host.pacer.end()
		p.close()
		if !f.linked && r.stop.first.Load() == nil {
			return Result{}, &Refused{"link", CodeModule, firstLine(f.err.Error())}
		}
		if f.err != nil && strings.Contains(f.err.Error(), "recovered by wazero") {
			return Result{}, fmt.Errorf("cannot go on: a fault of the host: %w", f.err)
		}
		return r.ended(f.err), nil
	case <-watch.abandoned:
		result := r.ended(nil)
		result.Abandoned = true
		return result, nil
	}
}

func (r *run) guest(ctx context.Context, p *program) finished {
	ctx = experimental.WithMemoryAllocator(ctx, r.memory)
	mod, err := p.rt.InstantiateModule(ctx, p.compiled, r.moduleConfig())
	if err != nil {
		return finished{err: err}
	}
	_, err = mod.ExportedFunction("_start").Call(ctx)
	return finished{err: err, linked: true}
}

// ended turns how the guest's function returned into a result.
func (r *run) ended(err error) Result {
	if e := r.stop.first.Load(); e != nil {
		return Result{ExitCode: e.code, Reason: e.reason, Detail: e.detail}
	}
	var exit *wsys.ExitError
	switch {
	case err == nil:
		return Result{Reason: Exited}
	case errors.As(err, &exit):
		res := Result{ExitCode: int(exit.ExitCode() & 0xff), Reason: Exited} // as the kernel cuts a status
		if res.ExitCode != 0 && r.memory.refused {
			res.Reason, res.Detail = OutOfMemory, r.memoryDetail()
		}
		return res
	}
	text, trace, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimPrefix(text, "wasm error: ")
	res := Result{ExitCode: 1, Reason: Trapped, Detail: "the guest trapped: " + text, Trace: trace}
	switch {
	case strings.Contains(text, "stack overflow"):
		res.Reason, res.Detail = StackOverflow, "the guest's calls went too deep"
	case r.memory.refused:
		res.Reason, res.Detail = OutOfMemory, r.memoryDetail()
	}
	return res
}

func (r *run) memoryDetail() string {
	return fmt.Sprintf("the memory limit of %s was reached", capsule.Size(r.memory.limit))
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
