package main

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 path_open
func pathOpen(fd, dirflags uint32, p unsafe.Pointer, n, oflags uint32, rights, inherit uint64, fdflags uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_symlink
func pathSymlink(target unsafe.Pointer, tn, fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_link
func pathLink(ofd, flags uint32, o unsafe.Pointer, on, fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_rename
func pathRename(ofd uint32, o unsafe.Pointer, on, fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_create_directory
func pathMkdir(fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_remove_directory
func pathRmdir(fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_unlink_file
func pathUnlink(fd uint32, p unsafe.Pointer, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_readlink
func pathReadlink(fd uint32, p unsafe.Pointer, n uint32, buf unsafe.Pointer, bn uint32, used unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_get
func pathStat(fd, flags uint32, p unsafe.Pointer, n uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_set_times
func pathTimes(fd, flags uint32, p unsafe.Pointer, n uint32, a, m uint64, f uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_times
func fdTimes(fd uint32, a, m uint64, f uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_size
func fdSize(fd uint32, n uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_write
func fdWrite(fd uint32, iov unsafe.Pointer, n uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
func fdRead(fd uint32, iov unsafe.Pointer, n uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_close
func fdClose(fd uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_renumber
func fdRenumber(from, to uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_seek
func fdSeek(fd uint32, off uint64, whence uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_prestat_get
func fdPrestat(fd uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_prestat_dir_name
func fdPrestatName(fd uint32, p unsafe.Pointer, n uint32) uint32

// iovec holds a pointer of 32 bits, where Go's are 64 wide.
type iovec struct {
	p, n uint32
}

func vec(p unsafe.Pointer, n uint32) iovec { return iovec{uint32(uintptr(p)), n} }

func ptr(s string) (unsafe.Pointer, uint32) {
	if s == "" {
		return nil, 0
	}
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

// preopen finds the descriptor and rest of a guest path, as libraries do.
func preopen(path string) (uint32, string) {
	best, bestLen := uint32(99), -1
	for fd := uint32(3); ; fd++ {
		var stat [2]uint32
		if fdPrestat(fd, unsafe.Pointer(&stat)) != 0 {
			break
		}
		name := make([]byte, stat[1])
		fdPrestatName(fd, unsafe.Pointer(&name[0]), stat[1])
		prefix := strings.TrimSuffix(string(name), "/")
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > bestLen {
			best, bestLen = fd, len(prefix)
		}
	}
	if bestLen < 0 {
		return best, path
	}
	rest := strings.TrimPrefix(path[bestLen:], "/")
	if rest == "" {
		rest = "."
	}
	return best, rest
}

func open(path string, dirflags, oflags uint32, write bool) (fd, errno uint32) {
	dir, rest := preopen(path)
	rights := uint64(2)
	if write {
		rights |= 1 << 6
	}
	p, n := ptr(rest)
	errno = pathOpen(dir, dirflags, p, n, oflags, rights, 0, 0, unsafe.Pointer(&fd))
	return fd, errno
}

const (
	follow = 1
	create = 1
	excl   = 4
	trunc  = 8
)

// do runs one operation by raw WASI calls and prints its error number.
func do(words []string) {
	op, a := words[0], words[1]
	b := ""
	if len(words) > 2 {
		b = words[2]
	}
	errno, note := uint32(0), ""
	dir, rest := preopen(a)
	p, n := ptr(rest)
	switch op {
	case "read":
		errno, note = readFile(a)
	case "write":
		errno = writeFile(a, b, create|trunc)
	case "overwrite":
		errno = writeFile(a, b, 0)
	case "exclusive":
		errno = writeFile(a, b, create|excl)
	case "touch":
		errno = pathTimes(dir, follow, p, n, 0, 1e9, 5)
	case "fdtouch":
		errno = onOpen(a, func(fd uint32) uint32 { return fdTimes(fd, 0, 1e9, 5) })
	case "fdsize":
		errno = onOpen(a, func(fd uint32) uint32 { return fdSize(fd, 0) })
	case "mkdir":
		errno = pathMkdir(dir, p, n)
	case "rmdir":
		errno = pathRmdir(dir, p, n)
	case "unlink":
		errno = pathUnlink(dir, p, n)
	case "stat":
		var st [8]uint64
		errno = pathStat(dir, follow, p, n, unsafe.Pointer(&st))
		note = fmt.Sprint(st[2] & 0xff)
	case "lstat":
		var st [8]uint64
		errno = pathStat(dir, 0, p, n, unsafe.Pointer(&st))
		note = fmt.Sprint(st[2] & 0xff)
	case "symlink":
		t, tn := ptr(b)
		errno = pathSymlink(t, tn, dir, p, n)
	case "readlink":
		buf, used := make([]byte, 4096), uint32(0)
		errno = pathReadlink(dir, p, n, unsafe.Pointer(&buf[0]), 4096, unsafe.Pointer(&used))
		note = string(buf[:used])
	case "rename", "link":
		to, toRest := preopen(b)
		q, qn := ptr(toRest)
		if op == "rename" {
			errno = pathRename(dir, p, n, to, q, qn)
		} else {
			errno = pathLink(dir, 0, p, n, to, q, qn)
		}
	case "many":
		for errno == 0 && note != "xxxxxxxx" {
			note += "x"
			_, errno = open(a, follow, 0, false)
		}
	default:
		fmt.Fprintln(os.Stderr, "unknown", op)
		os.Exit(9)
	}
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %d %s", op, errno, note)))
}

func onOpen(path string, f func(fd uint32) uint32) uint32 {
	fd, errno := open(path, follow, 0, false)
	if errno != 0 {
		return errno
	}
	defer fdClose(fd)
	return f(fd)
}

func readFile(path string) (uint32, string) {
	buf := make([]byte, 256)
	got := uint32(0)
	errno := onOpen(path, func(fd uint32) uint32 {
		iov := vec(unsafe.Pointer(&buf[0]), 256)
		return fdRead(fd, unsafe.Pointer(&iov), 1, unsafe.Pointer(&got))
	})
	return errno, string(buf[:got])
}

func writeFile(path, text string, oflags uint32) uint32 {
	fd, errno := open(path, follow, oflags, true)
	if errno != 0 || text == "" {
		return errno
	}
	defer fdClose(fd)
	p, n := ptr(text)
	iov := vec(p, n)
	var done uint32
	return fdWrite(fd, unsafe.Pointer(&iov), 1, unsafe.Pointer(&done))
}

// race keeps reading a path that the host swaps, and says whether it ever saw the secret.
func race(path string) {
	fmt.Println("ready")
	for range 3000 {
		if _, text := readFile(path); strings.Contains(text, "secret") {
			fmt.Println("escaped")
			return
		}
		writeFile(path, "guest", 0)
	}
	fmt.Println("held")
}
