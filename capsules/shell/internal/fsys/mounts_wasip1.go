package fsys

import (
	"structs"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 fd_prestat_get
//go:noescape
func prestatGet(fd int32, stat *prestat) uint32

//go:wasmimport wasi_snapshot_preview1 fd_prestat_dir_name
//go:noescape
func prestatDirName(fd int32, name unsafe.Pointer, size uint32) uint32

// prestat is laid out as WASI preview 1 writes it: a tag, then the length of
// the directory's name.
type prestat struct {
	_      structs.HostLayout
	tag    uint8
	length uint32
}

const tagDirectory = 0

// Mounts returns the guest paths of the directories the host gave. Go's own
// list of them is private to package syscall.
func Mounts() []string {
	mounts := []string{}
	for fd := int32(3); ; fd++ {
		var stat prestat
		if prestatGet(fd, &stat) != 0 {
			break
		}
		if stat.tag != tagDirectory || stat.length == 0 {
			continue
		}
		name := make([]byte, stat.length)
		if prestatDirName(fd, unsafe.Pointer(&name[0]), stat.length) == 0 {
			mounts = append(mounts, string(name))
		}
	}
	return mounts
}
