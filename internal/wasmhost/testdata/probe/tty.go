package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport murmur_tty get_size
func ttyGetSize(cols, rows unsafe.Pointer) uint32

//go:wasmimport murmur_tty set_raw
func ttySetRaw(on uint32) uint32

//go:wasmimport murmur_tty size_changes
func ttySizeChanges() uint32

//go:wasmimport murmur_tty streams
func ttyStreams() uint32

//go:wasmimport wasi_snapshot_preview1 fd_fdstat_get
func fdstat(fd uint32, out unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_fdstat_set_flags
func fdSetFlags(fd, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 poll_oneoff
func pollOneoff(in, out unsafe.Pointer, n uint32, result unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 clock_time_get
func clockGet(id uint32, precision uint64, out unsafe.Pointer) uint32

// isatty is wasi-libc's: a character device that can neither seek nor tell.
func isatty(fd uint32) bool {
	var st [3]uint64
	return fdstat(fd, unsafe.Pointer(&st)) == 0 && st[0]&0xff == 2 && st[1]&(1<<2|1<<5) == 0
}

func tty(args []string) {
	for _, a := range args {
		switch a {
		case "isatty":
			fmt.Println("isatty", isatty(0), isatty(1), isatty(2), "streams", ttyStreams())
		case "size":
			var cols, rows uint32
			errno := ttyGetSize(unsafe.Pointer(&cols), unsafe.Pointer(&rows))
			fmt.Println("size", errno, cols, rows)
		case "badsize":
			fmt.Println("badsize", ttyGetSize(unsafe.Pointer(uintptr(0xfffffff0)), nil))
		case "changes":
			fmt.Println("changes", ttySizeChanges())
		case "await-change":
			fmt.Println("waiting")
			for ttySizeChanges() == 0 {
				time.Sleep(2 * time.Millisecond)
			}
			fmt.Println("changed")
		case "raw":
			fmt.Println("raw", ttySetRaw(1))
		case "cooked":
			fmt.Println("cooked", ttySetRaw(0))
		case "raw7":
			fmt.Println("raw7", ttySetRaw(7))
		case "panic":
			panic("on purpose")
		case "read":
			fmt.Println("reading")
			b := make([]byte, 64)
			n, err := os.Stdin.Read(b)
			fmt.Printf("read %q %v\n", b[:n], err)
		case "all":
			b, err := io.ReadAll(os.Stdin)
			fmt.Printf("all %q %v\n", b, err)
		case "eagain":
			fdSetFlags(0, 4)
			b := make([]byte, 4)
			iov := vec(unsafe.Pointer(&b[0]), 4)
			var n uint32
			fmt.Println("eagain", fdRead(0, unsafe.Pointer(&iov), 1, unsafe.Pointer(&n)))
		}
	}
}

// sub and event are the records of poll_oneoff.
type sub struct {
	userdata uint64
	kind     uint64
	a        uint64 // fd or clock id
	timeout  uint64
	prec     uint64
	flags    uint64
}

type event struct {
	userdata uint64
	errKind  uint64
	nbytes   uint64
	flags    uint64
}

func poll(subs ...sub) string {
	events := make([]event, len(subs))
	var n uint32
	errno := pollOneoff(unsafe.Pointer(&subs[0]), unsafe.Pointer(&events[0]), uint32(len(subs)), unsafe.Pointer(&n))
	out := []string{fmt.Sprint(errno)}
	for _, e := range events[:n] {
		out = append(out, fmt.Sprintf("%d/%d/%d", e.userdata, e.errKind&0xffff, e.errKind>>16&0xff))
	}
	return strings.Join(out, " ")
}

func now(id uint32) (t uint64) {
	clockGet(id, 0, unsafe.Pointer(&t))
	return t
}

// polls expects an empty pipe as standard input.
func polls() {
	const ms = uint64(time.Millisecond)
	fdSetFlags(0, 0)
	start := now(1)
	say("relative", poll(sub{1, 0, 1, 20 * ms, 0, 0}), now(1)-start >= 20*ms)
	start = now(1)
	say("absolute", poll(sub{2, 0, 1, start + 20*ms, 0, 1}), now(1)-start >= 20*ms)
	wall := now(0)
	say("wall", poll(sub{3, 0, 0, wall + 20*ms, 0, 1}), now(0)-wall >= 20*ms)
	say("past", poll(sub{4, 0, 1, 1, 0, 1}))
	say("both", poll(sub{5, 0, 1, 10 * ms, 0, 0}, sub{6, 1, 0, 0, 0, 0}))
	say("stdout", poll(sub{7, 0, 1, 3600e3 * ms, 0, 0}, sub{8, 2, 1, 0, 0, 0}))
	say("badfd", poll(sub{9, 1, 77, 0, 0, 0}))
	say("badclock", poll(sub{10, 0, 9, 0, 0, 0}))
	fd, errno := open("/work/file", follow, create, true)
	say("open", errno)
	say("file", poll(sub{11, 1, uint64(fd), 0, 0, 0}, sub{12, 2, uint64(fd), 0, 0, 0}))
	var n uint32
	say("none", pollOneoff(nil, nil, 0, unsafe.Pointer(&n)))
	var off uint64
	say("seek", fdSeek(0, 0, 1, unsafe.Pointer(&off)), "times", fdTimes(1, 0, 0, 5))
	// A file that takes the place of a closed stream is a file.
	say("close", fdClose(0), "renumber", fdRenumber(fd, 0), "seek", fdSeek(0, 0, 1, unsafe.Pointer(&off)))
	say("gone", poll(sub{13, 1, 0, 0, 0, 0}))
}
