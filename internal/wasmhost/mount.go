package wasmhost

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
	wsys "github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// openFiles is what all mounts of a run share: the count of open files and the errors of the current call.
type openFiles struct {
	errs  *errnos
	count int
	limit int
}

// fileID names a file of the host whatever its path is.
type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID { return fileID{st.Dev, st.Ino} }

// mount is one granted directory as the runtime's file system. It is used by one guest and so by one goroutine.
type mount struct {
	sys.UnimplementedFS

	errs     *errnos
	files    *openFiles
	root     int
	self     unix.Stat_t
	writable bool

	frozen    [][]string          // names of the read-only subtrees
	frozenIDs map[fileID]struct{} // the same, against a second name for one of them
	aboveIDs  map[fileID]struct{} // the directories that hold one
}

// openMount opens a directory of the host. Linked is whether the last name of host may be a link.
func openMount(host string, linked, writable bool, files *openFiles) (*mount, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !linked {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(host, flags, 0)
	if err != nil {
		return nil, err
	}
	m := &mount{
		errs: files.errs, files: files, root: fd, writable: writable,
		frozenIDs: map[fileID]struct{}{}, aboveIDs: map[fileID]struct{}{},
	}
	// One that cannot be read would only fail when the guest first uses it.
	readable, err := openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		_ = unix.Close(readable)
		err = unix.Fstat(fd, &m.self)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *mount) close() { _ = unix.Close(m.root) }

// freeze makes what is at a path below the mount read-only, whether it exists yet or not: under the names given, under
// the names they lead to over links, and, as far as it exists, under whatever name the host has for it.
func (m *mount) freeze(below string) {
	steps := names(below)
	if len(steps) == 0 {
		m.writable = false
		return
	}
	m.frozen = append(m.frozen, steps)
	for i := range steps[:len(steps)-1] {
		m.identify(path.Join(steps[:i+1]...), true, m.aboveIDs)
	}
	for _, follow := range []bool{false, true} {
		if canon := m.identify(path.Join(steps...), follow, m.frozenIDs); canon != nil {
			m.frozen = append(m.frozen, canon)
		}
	}
}

// identify notes the identity of what is at a path, and gives the names it was found under.
func (m *mount) identify(path string, follow bool, ids map[fileID]struct{}) []string {
	p, errno := m.walk(path, follow)
	if errno != 0 {
		return nil
	}
	defer p.close()
	if st, err := p.statAt(); err == nil {
		ids[idOf(&st)] = struct{}{}
	}
	if len(p.canon) == 0 {
		return nil // a link to the mount itself
	}
	return p.canon
}

// mayChange says whether what is at a place may be made, written or removed.
func (m *mount) mayChange(p *place) sys.Errno {
	if !m.writable || p.frozen {
		return sys.EROFS
	}
	for _, f := range m.frozen {
		if len(p.canon) >= len(f) && slices.Equal(p.canon[:len(f)], f) {
			return sys.EROFS
		}
	}
	return m.notAmong(p, m.frozenIDs)
}

// mayMove says whether a place may also be renamed, removed or become a link. What a read-only subtree lies below may
// not: the subtree would no longer be where it is protected, or another would be in its place.
func (m *mount) mayMove(p *place) sys.Errno {
	if errno := m.mayChange(p); errno != 0 {
		return errno
	}
	for _, f := range m.frozen {
		if len(p.canon) < len(f) && slices.Equal(f[:len(p.canon)], p.canon) {
			return sys.EROFS
		}
	}
	return m.notAmong(p, m.aboveIDs)
}

func (m *mount) notAmong(p *place, ids map[fileID]struct{}) sys.Errno {
	if len(ids) == 0 {
		return 0
	}
	st, err := p.statAt()
	if err != nil {
		return 0 // what does not exist has no identity
	}
	if _, ok := ids[idOf(&st)]; ok {
		return sys.EROFS
	}
	return 0
}

// at resolves a path, asks for permission, and acts on the place.
func (m *mount) at(path string, follow bool, may func(*place) sys.Errno, act func(*place) error) sys.Errno {
	p, errno := m.walk(path, follow)
	if errno != 0 {
		return errno
	}
	defer p.close()
	if may != nil {
		if errno := may(&p); errno != 0 {
			return errno
		}
	}
	return m.errs.of(act(&p))
}

func (m *mount) stat(path string, follow bool) (wsys.Stat_t, sys.Errno) {
	var out wsys.Stat_t
	errno := m.at(path, follow, nil, func(p *place) error {
		st, err := p.statAt()
		if err != nil {
			return err
		}
		if p.mustDir && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return unix.ENOTDIR
		}
		out = statOf(&st)
		return nil
	})
	return out, errno
}

// Lstat implements sys.FS.
func (m *mount) Lstat(path string) (wsys.Stat_t, sys.Errno) { return m.stat(path, false) }

// Stat implements sys.FS.
func (m *mount) Stat(path string) (wsys.Stat_t, sys.Errno) { return m.stat(path, true) }

// Mkdir implements sys.FS.
func (m *mount) Mkdir(path string, perm fs.FileMode) sys.Errno {
	return m.at(strings.TrimRight(path, "/"), false, m.mayChange, func(p *place) error {
		return unix.Mkdirat(p.dir, p.name, uint32(perm.Perm()))
	})
}

// Rmdir implements sys.FS.
func (m *mount) Rmdir(path string) sys.Errno {
	return m.at(strings.TrimRight(path, "/"), false, m.mayMove, func(p *place) error {
		return unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR)
	})
}

// Unlink implements sys.FS.
func (m *mount) Unlink(path string) sys.Errno {
	return m.at(strings.TrimRight(path, "/"), false, m.mayMove, func(p *place) error {
		if strings.HasSuffix(path, "/") {
			if st, err := p.statAt(); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return unix.ENOTDIR
			}
		}
		return unix.Unlinkat(p.dir, p.name, 0)
	})
}

// Rename implements sys.FS.
func (m *mount) Rename(from, to string) sys.Errno {
	return m.two(from, to, func(old, dest *place) error {
		if strings.HasSuffix(from, "/") || strings.HasSuffix(to, "/") {
			if st, err := old.statAt(); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return unix.ENOTDIR
			}
		}
		return unix.Renameat(old.dir, old.name, dest.dir, dest.name)
	})
}

// Link implements sys.FS. A second name for a file is as good as a rename: both places must be changeable.
func (m *mount) Link(oldPath, newPath string) sys.Errno {
	return m.two(oldPath, newPath, func(old, dest *place) error {
		if old.mustDir || dest.mustDir {
			return unix.ENOENT
		}
		return unix.Linkat(old.dir, old.name, dest.dir, dest.name, 0)
	})
}

func (m *mount) two(from, to string, act func(old, dest *place) error) sys.Errno {
	return m.at(strings.TrimRight(from, "/"), false, m.mayMove, func(old *place) error {
		if text, err := readlinkat(old.dir, old.name); err == nil && climbs(text) {
			return unix.EPERM // made by the host; elsewhere it may lead out
		}
		old.mustDir = strings.HasSuffix(from, "/")
		errno := m.at(strings.TrimRight(to, "/"), false, m.mayMove, func(dest *place) error {
			dest.mustDir = strings.HasSuffix(to, "/")
			return act(old, dest)
		})
		if errno == 0 {
			return nil
		}
		return passed(errno)
	})
}

// passed carries an errno that is already translated through a function that returns an error.
type passed sys.Errno

func (e passed) Error() string { return sys.Errno(e).Error() }

// Symlink implements sys.FS. The guest could not follow a link that leads out, but a person could.
func (m *mount) Symlink(target, link string) sys.Errno {
	target = strings.Clone(target) // it lies in guest memory
	return m.at(link, false, m.mayMove, func(p *place) error {
		switch {
		case p.mustDir:
			return unix.ENOENT
		case climbs(target):
			return unix.EPERM
		}
		return unix.Symlinkat(target, p.dir, p.name)
	})
}

// Readlink implements sys.FS. The text of a link that leads out would show the guest a path of the host.
func (m *mount) Readlink(path string) (string, sys.Errno) {
	var text string
	errno := m.at(path, false, nil, func(p *place) (err error) {
		if text, err = readlinkat(p.dir, p.name); err == nil && leadsOut(p.canon, text) {
			return unix.EPERM
		}
		return err
	})
	if errno != 0 {
		return "", errno
	}
	return text, 0
}

// climbs says whether a link with this text may point above where it stands. The
// guest may make none: wherever such a link is moved or linked to, and whatever
// other links are on its way, one that only goes down stays inside.
func climbs(target string) bool {
	return strings.HasPrefix(target, "/") || slices.Contains(names(target), "..")
}

// leadsOut says whether a link with this text, at the place with these names, points above the mount.
func leadsOut(canon []string, target string) bool {
	if strings.HasPrefix(target, "/") {
		return true
	}
	depth := len(canon) - 1
	for _, step := range names(target) {
		if step != ".." {
			depth++
		} else if depth--; depth < 0 {
			return true
		}
	}
	return false
}

// Utimens implements sys.FS.
func (m *mount) Utimens(path string, atim, mtim int64) sys.Errno {
	return m.at(path, true, m.mayChange, func(p *place) error {
		return unix.UtimesNanoAt(p.dir, p.name, []unix.Timespec{timespec(atim), timespec(mtim)}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func timespec(ns int64) unix.Timespec {
	if ns == sys.UTIME_OMIT {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return unix.NsecToTimespec(ns)
}

func statOf(st *unix.Stat_t) wsys.Stat_t {
	return wsys.Stat_t{
		Dev: st.Dev, Ino: st.Ino, Mode: modeOf(st.Mode), Nlink: st.Nlink, Size: st.Size,
		Atim: st.Atim.Nano(), Mtim: st.Mtim.Nano(), Ctim: st.Ctim.Nano(),
	}
}

func modeOf(mode uint32) fs.FileMode {
	out := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		out |= fs.ModeDir
	case unix.S_IFLNK:
		out |= fs.ModeSymlink
	case unix.S_IFIFO:
		out |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		out |= fs.ModeSocket
	case unix.S_IFCHR:
		out |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		out |= fs.ModeDevice
	}
	return out
}
