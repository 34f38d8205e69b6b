package wasmhost

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

const wasmPage = 64 << 10

// allocator gives guests their memory: the addresses of the whole limit are reserved and pages are made usable as the
// memory grows, so it never moves, is never copied, and costs what the guest has touched.
type allocator struct {
	limit   uint64 // a multiple of the page size
	refused bool   // the last growth was over the limit
}

// Allocate implements experimental.MemoryAllocator. The runtime has no way to hear that there is no address space
// left; Reallocate then refuses even the first page.
func (a *allocator) Allocate(_, most uint64) experimental.LinearMemory {
	m := &linearMemory{a: a}
	if size := min(most, a.limit); size > 0 {
		all, err := unix.Mmap(-1, 0, int(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err == nil {
			m.all = all
		}
	}
	return m
}

type linearMemory struct {
	a    *allocator
	all  []byte
	used uint64
}

// Reallocate implements experimental.LinearMemory.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.all)) {
		m.a.refused = true
		return nil
	}
	if size > m.used {
		if err := unix.Mprotect(m.all[m.used:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			m.a.refused = true
			return nil
		}
		m.used = size
	}
	m.a.refused = false
	return m.all[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() {
	if m.all != nil {
		_ = unix.Munmap(m.all)
		m.all = nil
	}
}

// declaredMemory reads from the binary how many bytes of memory a module starts with. The runtime tells it only for
// exported memories, and the allocator cannot refuse the first bytes without a panic.
func declaredMemory(module []byte) uint64 {
	const memorySection = 5
	rest := module[8:]
	for len(rest) > 0 {
		id := rest[0]
		size, body, ok := uleb(rest[1:])
		if !ok || size > uint64(len(body)) {
			return 0
		}
		if id != memorySection {
			rest = body[size:]
			continue
		}
		count, body, ok := uleb(body)
		if !ok || count == 0 || len(body) == 0 {
			return 0
		}
		pages, _, _ := uleb(body[1:]) // after the byte that says whether there is a maximum
		return pages * wasmPage
	}
	return 0
}

// uleb reads a number of the binary format.
func uleb(b []byte) (v uint64, rest []byte, ok bool) {
	for i := range min(len(b), 5) {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}
