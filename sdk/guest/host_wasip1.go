package guest

import "unsafe"

//go:wasmimport murmur_tty get_size
//go:noescape
func importGetSize(cols, rows unsafe.Pointer) uint32

//go:wasmimport murmur_tty set_raw
func importSetRaw(on uint32) uint32

//go:wasmimport murmur_tty size_changes
func importSizeChanges() uint32

//go:wasmimport murmur_tty streams
func importStreams() uint32

func hostSize() (cols, rows, errno uint32) {
	errno = importGetSize(unsafe.Pointer(&cols), unsafe.Pointer(&rows))
	return cols, rows, errno
}

func hostSetRaw(on uint32) uint32 { return importSetRaw(on) }

func hostSizeChanges() uint32 { return importSizeChanges() }

func hostStreams() uint32 { return importStreams() }
