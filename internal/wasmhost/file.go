package wasmhost

import (
	"encoding/binary"
	"io"
	"io/fs"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental/sys"
	wsys "github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// file is an open plain file or directory of a mount.
type file struct {
	m       *mount
	fd      int // -1 once closed
	id      fileID
	dir     bool
	own     bool // the mount's own directory, which is not counted
	mutable bool // the place it was opened at may be changed
	append  bool
	noblock bool // kept only to be told back: a plain file never blocks

	dirents []byte // of a directory: entries read and not yet given out
}

const writeFlags = sys.O_RDWR | sys.O_WRONLY | sys.O_CREAT | sys.O_TRUNC | sys.O_APPEND

// OpenFile implements sys.FS. Only plain files and directories open: a fifo could block for ever and a device or
// socket is a door of its own.
func (m *mount) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	// The runtime opens a mount's own directory with mode zero when it is first needed, and panics on every error but
	// one. No guest asks with that mode.
	own := perm == 0 && path == "."
	f, errno := m.open(path, flag, perm, own)
	switch {
	case errno == 0:
		return f, 0
	case own:
		return nil, sys.ENOENT
	default:
		return nil, errno
	}
}

func (m *mount) open(path string, flag sys.Oflag, perm fs.FileMode, own bool) (*file, sys.Errno) {
	p, errno := m.walk(path, flag&sys.O_NOFOLLOW == 0 && flag&sys.O_EXCL == 0)
	if errno != 0 {
		return nil, errno
	}
	defer p.close()
	if flag&sys.O_DIRECTORY != 0 || p.mustDir {
		// Guests ask for all rights on a directory they only list; writing to one fails where it is tried.
		flag = flag&^(sys.O_RDWR|sys.O_WRONLY|sys.O_TRUNC|sys.O_APPEND) | sys.O_DIRECTORY
	}
	mayChange := m.mayChange(&p)
	if flag&writeFlags != 0 && mayChange != 0 {
		return nil, mayChange
	}
	if errno := m.openable(&p, flag); errno != 0 {
		return nil, errno
	}
	if m.files.count >= m.files.limit && !own {
		return nil, m.errs.report(errnoMfile)
	}
	fd, err := openat(p.dir, p.name, openFlagsOf(flag), uint32(perm.Perm()))
	if err != nil {
		return nil, m.errs.of(err)
	}
	f := &file{m: m, fd: fd, own: own, mutable: mayChange == 0, append: flag&sys.O_APPEND != 0}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, m.errs.of(err)
	}
	f.id, f.dir = idOf(&st), st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !f.dir && st.Mode&unix.S_IFMT != unix.S_IFREG { // put there since it was looked at
		_ = unix.Close(fd)
		return nil, sys.EACCES
	}
	if !own {
		m.files.count++
	}
	return f, 0
}

// openable looks at what is there before it is opened, since opening a device can already do something.
func (m *mount) openable(p *place, flag sys.Oflag) sys.Errno {
	st, err := p.statAt()
	if err == unix.ENOENT && flag&sys.O_CREAT != 0 {
		return 0
	}
	if err != nil {
		return m.errs.of(err)
	}
	if flag&sys.O_CREAT != 0 && flag&sys.O_EXCL != 0 {
		return sys.EEXIST
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		if flag&writeFlags != 0 {
			return sys.EISDIR
		}
		return 0
	case unix.S_IFLNK:
		return sys.ELOOP
	default:
		return sys.EACCES
	}
}

// openFlagsOf never follows a link at the end, which has been walked already, and never waits for a fifo's other end.
func openFlagsOf(flag sys.Oflag) int {
	out := unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	switch {
	case flag&sys.O_RDWR != 0:
		out |= unix.O_RDWR
	case flag&sys.O_WRONLY != 0:
		out |= unix.O_WRONLY
	}
	for _, f := range []struct {
		guest sys.Oflag
		host  int
	}{
		{sys.O_APPEND, unix.O_APPEND},
		{sys.O_CREAT, unix.O_CREAT},
		{sys.O_DIRECTORY, unix.O_DIRECTORY},
		{sys.O_DSYNC, unix.O_DSYNC},
		{sys.O_EXCL, unix.O_EXCL},
		{sys.O_RSYNC, unix.O_RSYNC},
		{sys.O_SYNC, unix.O_SYNC},
		{sys.O_TRUNC, unix.O_TRUNC},
	} {
		if flag&f.guest != 0 {
			out |= f.host
		}
	}
	return out
}

// onFile turns the outcome of a system call on an open file into the runtime's.
func (f *file) onFile(err error) sys.Errno {
	switch {
	case err == nil:
		return 0
	case f.fd < 0:
		return sys.EBADF
	case f.dir && (err == unix.EBADF || err == unix.EINVAL):
		return sys.EISDIR
	}
	return f.m.errs.of(err)
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Dev implements sys.File.
func (f *file) Dev() (uint64, sys.Errno) { return f.id.dev, 0 }

// Ino implements sys.File.
func (f *file) Ino() (wsys.Inode, sys.Errno) { return f.id.ino, 0 }

// IsDir implements sys.File.
func (f *file) IsDir() (bool, sys.Errno) { return f.dir, 0 }

// IsAppend implements sys.File.
func (f *file) IsAppend() bool { return f.append }

// SetAppend implements sys.File. The open file description is the guest's alone.
func (f *file) SetAppend(enable bool) sys.Errno {
	flags, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0)
	if err != nil {
		return f.onFile(err)
	}
	flags &^= unix.O_APPEND
	if enable {
		flags |= unix.O_APPEND
	}
	if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, flags); err != nil {
		return f.onFile(err)
	}
	f.append = enable
	return 0
}

// IsNonblock implements sys.PollableFile.
func (f *file) IsNonblock() bool { return f.noblock }

// SetNonblock implements sys.PollableFile.
func (f *file) SetNonblock(enable bool) sys.Errno {
	f.noblock = enable
	return 0
}

// Poll implements sys.PollableFile.
func (f *file) Poll(sys.Pflag, int32) (bool, sys.Errno) { return true, 0 }

// Stat implements sys.File.
func (f *file) Stat() (wsys.Stat_t, sys.Errno) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return wsys.Stat_t{}, f.onFile(err)
	}
	return statOf(&st), 0
}

// Read implements sys.File.
func (f *file) Read(buf []byte) (int, sys.Errno) {
	n, err := retry(func() (int, error) { return unix.Read(f.fd, buf) })
	return n, f.onFile(err)
}

// Pread implements sys.File.
func (f *file) Pread(buf []byte, off int64) (int, sys.Errno) {
	n, err := retry(func() (int, error) { return unix.Pread(f.fd, buf, off) })
	return n, f.onFile(err)
}

// Write implements sys.File. A short write is continued, since the runtime would go on with its next buffer.
func (f *file) Write(buf []byte) (int, sys.Errno) {
	return f.writeAll(buf, func(b []byte, _ int) (int, error) { return unix.Write(f.fd, b) })
}

// Pwrite implements sys.File.
func (f *file) Pwrite(buf []byte, off int64) (int, sys.Errno) {
	return f.writeAll(buf, func(b []byte, done int) (int, error) { return unix.Pwrite(f.fd, b, off+int64(done)) })
}

func (f *file) writeAll(buf []byte, write func(b []byte, done int) (int, error)) (int, sys.Errno) {
	done := 0
	for done < len(buf) {
		n, err := retry(func() (int, error) { return write(buf[done:], done) })
		done += n
		if err != nil {
			if done > 0 {
				return done, 0
			}
			return 0, f.onFile(err)
		}
	}
	return done, 0
}

// position is int64 under a name of its own: vet takes every Seek(int64, int) for io.Seeker's.
type position = int64

// Seek implements sys.File. A directory only goes back to its start.
func (f *file) Seek(offset position, whence int) (int64, sys.Errno) {
	switch {
	case whence < io.SeekStart || whence > io.SeekEnd:
		return 0, sys.EINVAL
	case f.dir && (offset != 0 || whence != io.SeekStart):
		return 0, sys.EISDIR
	}
	n, err := unix.Seek(f.fd, offset, whence)
	if err != nil {
		return 0, f.m.errs.of(err)
	}
	f.dirents = nil
	return n, 0
}

// Truncate implements sys.File.
func (f *file) Truncate(size int64) sys.Errno {
	_, err := retry(func() (int, error) { return 0, unix.Ftruncate(f.fd, size) })
	return f.onFile(err)
}

// Sync implements sys.File.
func (f *file) Sync() sys.Errno {
	_, err := retry(func() (int, error) { return 0, unix.Fsync(f.fd) })
	return f.onFile(err)
}

// Datasync implements sys.File.
func (f *file) Datasync() sys.Errno {
	_, err := retry(func() (int, error) { return 0, unix.Fdatasync(f.fd) })
	return f.onFile(err)
}

// Utimens implements sys.File. It never says EPERM or ENOSYS: the runtime would try the path next, which is the guest's
// and not one of the mount's.
func (f *file) Utimens(atim, mtim int64) sys.Errno {
	if !f.mutable {
		return sys.EROFS
	}
	ts := [2]unix.Timespec{timespec(atim), timespec(mtim)}
	// utimensat(fd, NULL, ...) is futimens, which the unix package has no name for.
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(f.fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	switch errno {
	case 0:
		return 0
	case unix.EPERM, unix.ENOSYS:
		return sys.EACCES
	default:
		return f.onFile(errno)
	}
}

// Close implements sys.File.
func (f *file) Close() sys.Errno {
	if f.fd < 0 {
		return sys.EBADF
	}
	fd := f.fd
	f.fd = -1
	if !f.own {
		f.m.files.count--
	}
	return f.m.errs.of(unix.Close(fd))
}

// Readdir implements sys.File.
func (f *file) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	if !f.dir {
		return nil, sys.ENOTDIR
	}
	var out []sys.Dirent
	for n <= 0 || len(out) < n {
		if len(f.dirents) == 0 {
			buf := make([]byte, 16<<10)
			got, err := retry(func() (int, error) { return unix.Getdents(f.fd, buf) })
			if err != nil {
				return nil, f.onFile(err)
			}
			if got == 0 {
				break
			}
			f.dirents = buf[:got]
		}
		if d, ok := f.nextDirent(); ok {
			out = append(out, d)
		}
	}
	return out, 0
}

// nextDirent takes one record off the buffer, laid out as getdents64(2) says. The dot entries are the runtime's.
func (f *file) nextDirent() (sys.Dirent, bool) {
	const header = 19
	size := int(binary.NativeEndian.Uint16(f.dirents[16:]))
	rec := f.dirents[:size]
	f.dirents = f.dirents[size:]
	name := unix.ByteSliceToString(rec[header:])
	if name == "." || name == ".." {
		return sys.Dirent{}, false
	}
	d := sys.Dirent{Ino: binary.NativeEndian.Uint64(rec), Name: name}
	if rec[18] != unix.DT_UNKNOWN {
		d.Type = modeOf(uint32(rec[18]) << 12).Type()
		return d, true
	}
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return sys.Dirent{}, false
	}
	d.Type = modeOf(st.Mode).Type()
	return d, true
}
