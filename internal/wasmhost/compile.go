package wasmhost

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

const compilingNotice = 300 * time.Millisecond

// program is a compiled module with the runtime it lives in.
type program struct {
	rt       wazero.Runtime
	code     wazero.CompilationCache // nil without a cache directory
	compiled wazero.CompiledModule
}

// close frees the machine code. It must not be called while guest code may still run.
func (p *program) close() {
	ctx := context.Background()
	_ = p.rt.Close(ctx)
	if p.code != nil {
		_ = p.code.Close(ctx)
	}
}

// Prepare compiles a capsule into the cache in dir, so that a run begins without a wait. compiling is as in Config and
// may be nil. A module that is in the cache already costs a look.
func Prepare(ctx context.Context, c *capsule.Capsule, dir string, compiling func(active bool)) error {
	if cache := openCache(dir, c.Digest); cache != nil {
		if _, ok := cache.lookup(); ok {
			return nil
		}
	}
	p, err := compile(context.WithoutCancel(ctx), c, dir, compiling, ctx.Done())
	switch {
	case err != nil:
		return &Refused{"compile", CodeModule, err.Error()}
	case p == nil:
		return ctx.Err()
	}
	p.close()
	return nil
}

// compile turns a module into machine code, from the cache when it can. It gives nothing and no error when it was
// stopped meanwhile.
func compile(ctx context.Context, c *capsule.Capsule, dir string, compiling func(bool), stopped <-chan struct{}) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		p   *program
		err error
	}
	done, missed := make(chan outcome, 1), make(chan struct{})
	go func() {
		p, err := compileCached(ctx, c.Module, openCache(dir, c.Digest), sync.OnceFunc(func() { close(missed) }))
		done <- outcome{p, err}
	}()
	var notice <-chan time.Time
	shown := false
	defer func() {
		if shown {
			compiling(false)
		}
	}()
	for {
		select {
		case o := <-done:
			if shown {
				// Compiling leaves several times the module's size behind, and nothing is collected from here on
				// unless the guest makes it necessary.
				debug.FreeOSMemory()
			}
			return o.p, o.err
		case <-missed:
			missed, notice = nil, time.After(compilingNotice)
		case <-notice:
			if compiling != nil {
				shown = true
				compiling(true)
			}
		case <-stopped:
			cancel()
			select {
			case o := <-done:
				if o.p != nil {
					o.p.close()
				}
			case <-time.After(abandonAfter):
			}
			return nil, nil
		}
	}
}

// compileCached compiles with the cache, and without it when that goes wrong in any way. missed is called when the
// machine code is not there yet; what follows takes its time.
func compileCached(ctx context.Context, module []byte, c *cache, missed func()) (*program, error) {
	if c != nil {
		if dir, ok := c.lookup(); ok {
			if p, err := compileIn(ctx, module, dir); err == nil {
				return p, nil
			}
			c.discard()
		}
		missed()
		if scratch, err := c.scratch(); err == nil {
			p, err := compileIn(ctx, module, scratch)
			if err == nil {
				c.publish(scratch)
				return p, nil
			}
			_ = os.RemoveAll(scratch)
		}
	}
	missed()
	return compileIn(ctx, module, "")
}

// compileIn compiles with one directory for the machine code, or none.
func compileIn(ctx context.Context, module []byte, dir string) (*program, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg := wazero.NewRuntimeConfigCompiler()
	p := &program{}
	if dir != "" {
		code, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return nil, err
		}
		p.code = code
		cfg = cfg.WithCompilationCache(code)
	}
	p.rt = wazero.NewRuntimeWithConfig(ctx, cfg)
	// With one worker the compiler does not look at the context.
	ctx = experimental.WithCompilationWorkers(ctx, max(runtime.GOMAXPROCS(0), 2))
	compiled, err := p.rt.CompileModule(ctx, module)
	if err != nil {
		p.close()
		return nil, fmt.Errorf("the module is not valid: %w", err)
	}
	p.compiled = compiled
	return p, nil
}
