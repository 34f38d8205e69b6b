package wasmhost

import (
	"context"
	"encoding/binary"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"
)

// host is the world one guest calls. Guests have one thread, so what only host calls touch needs no lock.
type host struct {
	stop    *stopper
	errs    *errnos
	clocks  *clocks
	random  capsule.RandomMode
	streams [3]*stream
	tty     *terminal
	pacer   *pacer

	originals map[string]api.GoModuleFunction
}

// stdio gives the stream behind a guest's descriptor, or nil. Once the guest has closed one its number is any file's.
func (h *host) stdio(fd uint32) *stream {
	if fd < uint32(len(h.streams)) && !h.streams[fd].closed {
		return h.streams[fd]
	}
	return nil
}

func (h *host) original(name string) api.GoModuleFunction { return h.originals[name] }

// enter begins a host call.
func (h *host) enter() {
	h.stop.calls.Add(1)
	h.stop.checkHard()
	h.errs.exact = 0
	for _, s := range h.streams {
		s.moved = false
	}
}

// leave ends one. Here no guest code runs, so this is where garbage can be collected.
func (h *host) leave() {
	h.pacer.pace()
	h.stop.calls.Add(1)
}

// wasi builds the module that guests import: the runtime's functions, each wrapped so that it can be stopped and
// reports exact errors, with ours in the place of some.
func (h *host) wasi(ctx context.Context, rt wazero.Runtime) error {
	// Compiling the set under another name is the way to get at the functions themselves.
	shelf := rt.NewHostModuleBuilder("wasi_originals")
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(shelf)
	compiled, err := shelf.Compile(ctx)
	if err != nil {
		return err
	}
	h.originals = make(map[string]api.GoModuleFunction)
	ours := h.replacements()
	builder := rt.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	for name, def := range compiled.ExportedFunctions() {
		fn, ok := def.GoFunction().(api.GoModuleFunction)
		if !ok {
			continue
		}
		h.originals[name] = fn
		if our := ours[name]; our != nil {
			fn = our
		}
		builder.NewFunctionBuilder().
			WithGoModuleFunction(h.wrap(fn, len(def.ResultTypes()) == 1), def.ParamTypes(), def.ResultTypes()).
			WithParameterNames(def.ParamNames()...).
			Export(name)
	}
	_, err = builder.Instantiate(ctx)
	return err
}

func (h *host) wrap(fn api.GoModuleFunction, hasErrno bool) api.GoModuleFunction {
	return api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
		h.enter()
		fn.Call(ctx, mod, stack)
		if hasErrno && h.errs.exact != 0 && stack[0] == errnoIO {
			stack[0] = uint64(h.errs.exact)
		}
		h.leave()
	})
}

// replacements are the functions whose own behaviour is not enough.
func (h *host) replacements() map[string]api.GoModuleFunc {
	ours := map[string]api.GoModuleFunc{
		"poll_oneoff":          h.pollOneoff,
		"fd_close":             h.fdClose,
		"fd_fdstat_get":        h.fdFdstatGet,
		"fd_fdstat_set_flags":  h.fdFdstatSetFlags,
		"fd_filestat_get":      h.fdFilestatGet,
		"fd_filestat_set_size": h.notOnStreams("fd_filestat_set_size", errnoInval),
		// The runtime has no file system behind a stream and would call one.
		"fd_filestat_set_times": h.notOnStreams("fd_filestat_set_times", errnoInval),
		"fd_allocate":           h.notOnStreams("fd_allocate", errnoSpipe),
		"fd_seek":               h.notOnStreams("fd_seek", errnoSpipe),
		"fd_tell":               h.notOnStreams("fd_tell", errnoSpipe),
		"fd_pread":              h.notOnStreams("fd_pread", errnoSpipe),
		"fd_pwrite":             h.notOnStreams("fd_pwrite", errnoSpipe),
		"path_rename":           h.acrossMounts("path_rename"),
		"path_link":             h.acrossMounts("path_link"),
	}
	if h.clocks.grant == capsule.ClockNone {
		ours["clock_time_get"], ours["clock_res_get"] = notGranted, notGranted
	}
	if h.random == capsule.RandomNone {
		ours["random_get"] = notGranted
	}
	return ours
}

func notGranted(_ context.Context, _ api.Module, stack []uint64) { stack[0] = errnoNotcapable }

// notOnStreams answers for the streams what the kernel would for a pipe or terminal.
func (h *host) notOnStreams(name string, errno uint64) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		if h.stdio(uint32(stack[0])) != nil {
			stack[0] = errno
			return
		}
		h.original(name).Call(ctx, mod, stack)
	}
}

// acrossMounts says EXDEV where the runtime says it lacks the function, so that guests copy instead.
func (h *host) acrossMounts(name string) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		h.original(name).Call(ctx, mod, stack)
		if stack[0] == errnoNosys {
			stack[0] = errnoXdev
		}
	}
}

func (h *host) fdClose(ctx context.Context, mod api.Module, stack []uint64) {
	s := h.stdio(uint32(stack[0]))
	h.original("fd_close").Call(ctx, mod, stack)
	if s != nil && stack[0] == errnoSuccess {
		s.closed = true
	}
}

// The types of files in WASI.
const (
	typeBlockDevice     = 1
	typeCharacterDevice = 2
	typeSocketStream    = 6

	rightSeek = 1 << 2
	rightTell = 1 << 5

	fdflagAppend   = 1 << 0
	fdflagNonblock = 1 << 2
)

// wasiType is what a stream says it is. A character device must be a terminal and nothing else, since that is all some
// guests look at.
func (s *stream) wasiType() byte {
	switch {
	case s.tty:
		return typeCharacterDevice
	case s.fd < 0:
		return typeBlockDevice
	}
	switch s.kind {
	case unix.S_IFREG:
		return typeRegular
	case unix.S_IFDIR:
		return typeDirectory
	case unix.S_IFIFO, unix.S_IFSOCK:
		return typeSocketStream
	default:
		return typeBlockDevice
	}
}

// fdFdstatGet makes isatty true exactly on a terminal: wasi-libc looks for a character device that cannot seek.
func (h *host) fdFdstatGet(ctx context.Context, mod api.Module, stack []uint64) {
	s, at := h.stdio(uint32(stack[0])), uint32(stack[1])
	h.original("fd_fdstat_get").Call(ctx, mod, stack)
	if s == nil || stack[0] != errnoSuccess {
		return
	}
	buf, ok := mod.Memory().Read(at, 24)
	if !ok {
		return
	}
	buf[0] = s.wasiType()
	flags := binary.LittleEndian.Uint16(buf[2:]) &^ fdflagNonblock
	if s.nonblock {
		flags |= fdflagNonblock
	}
	binary.LittleEndian.PutUint16(buf[2:], flags)
	if s.tty {
		rights := binary.LittleEndian.Uint64(buf[8:])
		binary.LittleEndian.PutUint64(buf[8:], rights&^(rightSeek|rightTell))
	}
}

func (h *host) fdFdstatSetFlags(ctx context.Context, mod api.Module, stack []uint64) {
	s, flags := h.stdio(uint32(stack[0])), uint16(stack[1]) // a slot above its i32 holds anything
	if s == nil {
		h.original("fd_fdstat_set_flags").Call(ctx, mod, stack)
		return
	}
	if flags&^(fdflagAppend|fdflagNonblock) != 0 {
		stack[0] = errnoInval
		return
	}
	s.nonblock = flags&fdflagNonblock != 0
	stack[0] = errnoSuccess
}

func (h *host) fdFilestatGet(ctx context.Context, mod api.Module, stack []uint64) {
	s, at := h.stdio(uint32(stack[0])), uint32(stack[1])
	h.original("fd_filestat_get").Call(ctx, mod, stack)
	if s == nil || stack[0] != errnoSuccess {
		return
	}
	if buf, ok := mod.Memory().Read(at, 64); ok {
		buf[16] = s.wasiType()
	}
}
