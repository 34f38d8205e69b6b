package tracer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	bootFile = "/proc/sys/kernel/random/boot_id"
	maxData  = 4 << 20
	// argCWD is AT_FDCWD as a register has it.
	argCWD = 0xffffff9c
)

// decoder makes a Call of a system call that is about to be executed.
type decoder struct{ root, stdout string }

func (d decoder) below(path string) bool {
	return path == d.root || strings.HasPrefix(path, d.root+"/")
}

// decode returns nil for calls that are of no interest. Its cases are in the order
// of the names in Call.
func (d decoder) decode(tid int, r *unix.PtraceRegs) *Call {
	switch r.Orig_rax {
	case unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_OPENAT, unix.SYS_OPENAT2:
		return d.open(tid, r)
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2:
		return d.write(tid, r)
	case unix.SYS_SPLICE:
		c := d.onFD("splice", tid, r.Rdx)
		if c != nil {
			c.Off = position(tid, r.Rdx)
			if r.R10 != 0 {
				c.Off = int64(word(tid, r.R10))
			}
		}
		return c
	case unix.SYS_FSYNC:
		return d.sync("fsync", tid, r.Rdi)
	case unix.SYS_FDATASYNC:
		return d.sync("fdatasync", tid, r.Rdi)
	case unix.SYS_FTRUNCATE:
		c := d.onFD("ftruncate", tid, r.Rdi)
		if c != nil {
			c.Len = int64(r.Rsi)
		}
		return c
	case unix.SYS_FALLOCATE:
		c := d.onFD("fallocate", tid, r.Rdi)
		if c != nil {
			c.Flags, c.Off, c.Len = int(r.Rsi), int64(r.Rdx), int64(r.R10)
		}
		return c
	case unix.SYS_FCHMOD:
		return d.onFD("chmod", tid, r.Rdi)
	case unix.SYS_BIND:
		return d.bind(tid, r)
	case unix.SYS_FCNTL:
		return d.lock(tid, r)
	}
	if c := d.names(tid, r); c != nil {
		return c
	}
	return d.processes(tid, r)
}

func (d decoder) open(tid int, r *unix.PtraceRegs) *Call {
	dir, name, flags := r.Rdi, r.Rsi, r.Rdx
	switch r.Orig_rax {
	case unix.SYS_OPEN:
		dir, name, flags = argCWD, r.Rdi, r.Rsi
	case unix.SYS_CREAT:
		dir, name, flags = argCWD, r.Rdi, unix.O_CREAT|unix.O_TRUNC
	case unix.SYS_OPENAT2:
		flags = word(tid, r.Rdx) // the first member of struct open_how
	}
	if flags&(unix.O_CREAT|unix.O_TRUNC) == 0 && flags&unix.O_TMPFILE != unix.O_TMPFILE {
		return nil
	}
	c := d.onName("open", tid, dir, name)
	if c != nil {
		c.Flags = int(flags)
	}
	return c
}

func (d decoder) write(tid int, r *unix.PtraceRegs) *Call {
	path := fdPath(tid, r.Rdi)
	c := &Call{Site: Site{Name: "write"}, Path: path, fd: int(int32(r.Rdi))}
	switch {
	case path == d.stdout:
		c.Name, c.Path = "say", ""
	case strings.HasPrefix(path, "socket:"):
		return &Call{Site: Site{Name: "send"}}
	case !d.below(path):
		return nil
	default:
		c.Inode = inode(tid, r.Rdi)
	}
	switch r.Orig_rax {
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		c.Data = memory(tid, r.Rsi, int(min(r.Rdx, maxData)))
	default:
		vectors := memory(tid, r.Rsi, int(min(r.Rdx, 1024))*16)
		for i := 0; i+16 <= len(vectors); i += 16 {
			at, n := binary.LittleEndian.Uint64(vectors[i:]), binary.LittleEndian.Uint64(vectors[i+8:])
			c.Data = append(c.Data, memory(tid, at, int(min(n, maxData)))...)
		}
	}
	c.Off = int64(r.R10)
	if r.Orig_rax == unix.SYS_WRITE || r.Orig_rax == unix.SYS_WRITEV {
		c.Off = position(tid, r.Rdi)
	}
	return c
}

func (d decoder) sync(name string, tid int, fd uint64) *Call {
	c := d.onFD(name, tid, fd)
	if c != nil {
		st, err := os.Stat(c.Path)
		c.Dir = err == nil && st.IsDir()
	}
	return c
}

// bind puts a socket's name into a directory.
func (d decoder) bind(tid int, r *unix.PtraceRegs) *Call {
	address := memory(tid, r.Rsi, int(min(r.Rdx, 110)))
	if len(address) < 4 || binary.LittleEndian.Uint16(address) != unix.AF_UNIX || address[2] == 0 {
		return nil
	}
	name, _, _ := bytes.Cut(address[2:], []byte{0})
	path := resolve(tid, argCWD, string(name))
	if !d.below(path) {
		return nil
	}
	return &Call{Site: Site{Name: "bind"}, Path: path}
}

func (d decoder) lock(tid int, r *unix.PtraceRegs) *Call {
	if r.Rsi != unix.F_OFD_SETLK && r.Rsi != unix.F_OFD_SETLKW && r.Rsi != unix.F_SETLK {
		return nil
	}
	name := "lock"
	if kind := memory(tid, r.Rdx, 2); len(kind) == 2 && binary.LittleEndian.Uint16(kind) == unix.F_UNLCK {
		name = "unlock"
	}
	return d.onFD(name, tid, r.Rdi)
}

// names are the calls that change a directory.
func (d decoder) names(tid int, r *unix.PtraceRegs) *Call {
	switch r.Orig_rax {
	case unix.SYS_RENAME:
		return d.onNames("rename", tid, argCWD, r.Rdi, argCWD, r.Rsi)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		return d.onNames("rename", tid, r.Rdi, r.Rsi, r.Rdx, r.R10)
	case unix.SYS_LINK:
		return d.onNames("link", tid, argCWD, r.Rdi, argCWD, r.Rsi)
	case unix.SYS_LINKAT:
		return d.onNames("link", tid, r.Rdi, r.Rsi, r.Rdx, r.R10)
	case unix.SYS_UNLINK, unix.SYS_RMDIR:
		return d.onName("unlink", tid, argCWD, r.Rdi)
	case unix.SYS_UNLINKAT:
		return d.onName("unlink", tid, r.Rdi, r.Rsi)
	case unix.SYS_MKDIR:
		return d.onName("mkdir", tid, argCWD, r.Rdi)
	case unix.SYS_MKDIRAT:
		return d.onName("mkdir", tid, r.Rdi, r.Rsi)
	case unix.SYS_CHMOD:
		return d.onName("chmod", tid, argCWD, r.Rdi)
	case unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2:
		return d.onName("chmod", tid, r.Rdi, r.Rsi)
	}
	return nil
}

// processes are the calls that another process feels.
func (d decoder) processes(tid int, r *unix.PtraceRegs) *Call {
	switch r.Orig_rax {
	case unix.SYS_FORK, unix.SYS_VFORK:
		return &Call{Site: Site{Name: "fork"}}
	case unix.SYS_CLONE, unix.SYS_CLONE3:
		flags := r.Rdi
		if r.Orig_rax == unix.SYS_CLONE3 {
			flags = word(tid, r.Rdi) // the first member of struct clone_args
		}
		if flags&unix.CLONE_THREAD == 0 {
			return &Call{Site: Site{Name: "fork"}}
		}
	case unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL:
		if r.Rsi != 0 { // 0 only asks
			return &Call{Site: Site{Name: "signal"}}
		}
	case unix.SYS_SENDMSG, unix.SYS_SENDTO:
		return &Call{Site: Site{Name: "send"}}
	}
	return nil
}

func (d decoder) onFD(name string, tid int, fd uint64) *Call {
	path := fdPath(tid, fd)
	if !d.below(path) {
		return nil
	}
	return &Call{Site: Site{Name: name}, Path: path, Inode: inode(tid, fd), fd: int(int32(fd))}
}

func (d decoder) onName(name string, tid int, dir, path uint64) *Call {
	c := &Call{Site: Site{Name: name}, Path: resolve(tid, dir, text(tid, path))}
	if !d.below(c.Path) {
		return nil
	}
	return c
}

func (d decoder) onNames(name string, tid int, dir1, path1, dir2, path2 uint64) *Call {
	c := &Call{
		Site: Site{Name: name}, Path: resolve(tid, dir1, text(tid, path1)),
		Path2: resolve(tid, dir2, text(tid, path2)),
	}
	if !d.below(c.Path) && !d.below(c.Path2) {
		return nil
	}
	return c
}

// resolve makes a path absolute, as the process would.
func resolve(tid int, dir uint64, path string) string {
	if rest, ok := strings.CutPrefix(path, "/proc/self/"); ok {
		path = fmt.Sprintf("/proc/%d/%s", tid, rest)
	}
	if !filepath.IsAbs(path) {
		base := ""
		if int32(dir) == unix.AT_FDCWD {
			base, _ = os.Readlink(fmt.Sprintf("/proc/%d/cwd", tid))
		} else {
			base = fdPath(tid, dir)
		}
		path = filepath.Join(base, path)
	}
	// The directory may be reached through links (/proc/PID/fd/N), the name itself
	// is what changes.
	if above, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(above, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// memory reads from a process, less than asked for at the end of a mapping.
func memory(tid int, at uint64, n int) []byte {
	if n <= 0 {
		return nil
	}
	b := make([]byte, n)
	k, err := unix.ProcessVMReadv(tid, []unix.Iovec{{Base: &b[0], Len: uint64(n)}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: n}}, 0)
	if err != nil {
		return nil
	}
	return b[:k]
}

func word(tid int, at uint64) uint64 {
	if b := memory(tid, at, 8); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads up to the NUL. Reading stops at the end of each page, as the next
// one may not be there.
func text(tid int, at uint64) string {
	const page = 4096
	var out []byte
	for len(out) < unix.PathMax {
		b := memory(tid, at, page-int(at%page))
		end := bytes.IndexByte(b, 0)
		if end >= 0 || len(b) == 0 {
			return string(append(out, b[:max(end, 0)]...))
		}
		out, at = append(out, b...), at+uint64(len(b))
	}
	return string(out)
}

func fdPath(tid int, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	return strings.TrimSuffix(path, " (deleted)")
}

func inode(tid int, fd uint64) uint64 {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)), &st) != nil {
		return 0
	}
	return st.Ino
}

// position is where a descriptor writes next, -1 for one that appends.
func position(tid int, fd uint64) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, int32(fd)))
	var pos, flags int64
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "pos:\t%d", &pos)
		_, _ = fmt.Sscanf(line, "flags:\t%o", &flags)
	}
	if flags&unix.O_APPEND != 0 {
		return -1
	}
	return pos
}
