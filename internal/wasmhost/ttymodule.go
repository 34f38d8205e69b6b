package wasmhost

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// ttyModule is the name of the imports with which a guest controls its terminal, for which WASI has no words.
const ttyModule = "murmur_tty"

// murmurTTY builds that module. Without the grant the functions are there and refuse, so that a program that can do
// without them still starts.
func (h *host) murmurTTY(ctx context.Context, rt wazero.Runtime) error {
	i32 := api.ValueTypeI32
	b := rt.NewHostModuleBuilder(ttyModule)
	for _, f := range []struct {
		name   string
		fn     api.GoModuleFunc
		params []api.ValueType
	}{
		{"get_size", h.ttyGetSize, []api.ValueType{i32, i32}},
		{"set_raw", h.ttySetRaw, []api.ValueType{i32}},
		{"size_changes", h.ttySizeChanges, nil},
		{"streams", h.ttyStreams, nil},
	} {
		b.NewFunctionBuilder().
			WithGoModuleFunction(h.wrap(f.fn, false), f.params, []api.ValueType{i32}).
			Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

func (h *host) ttyGetSize(_ context.Context, mod api.Module, stack []uint64) {
	cols, rows := uint32(stack[0]), uint32(stack[1])
	if h.tty.grant == nil {
		stack[0] = errnoNotcapable
		return
	}
	size, errno := h.tty.look()
	if errno != errnoSuccess {
		stack[0] = uint64(errno)
		return
	}
	mem := mod.Memory()
	if mem == nil || !mem.WriteUint32Le(cols, uint32(size.Col)) || !mem.WriteUint32Le(rows, uint32(size.Row)) {
		stack[0] = errnoFault
		return
	}
	stack[0] = errnoSuccess
}

func (h *host) ttySetRaw(_ context.Context, _ api.Module, stack []uint64) {
	on := uint32(stack[0])
	switch {
	case h.tty.grant == nil || !h.tty.grant.Raw:
		stack[0] = errnoNotcapable
	case on > 1:
		stack[0] = errnoInval
	default:
		stack[0] = uint64(h.tty.setRaw(on == 1))
	}
}

func (h *host) ttySizeChanges(_ context.Context, _ api.Module, stack []uint64) {
	if h.tty.grant == nil {
		stack[0] = 0
		return
	}
	_, _ = h.tty.look()
	stack[0] = uint64(h.tty.changes.Load())
}

func (h *host) ttyStreams(_ context.Context, _ api.Module, stack []uint64) {
	stack[0] = 0
	if h.tty.grant != nil {
		stack[0] = uint64(h.tty.mask)
	}
}
