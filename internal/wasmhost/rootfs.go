package wasmhost

import (
	"cmp"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
	wsys "github.com/tetratelabs/wazero/sys"
)

// rootFS is the guest's "/": nothing but the directories that lead to the mounts, so that a listing shows what there
// is. It cannot be changed. What lies in a mount is the mount's.
type rootFS struct {
	sys.UnimplementedFS

	errs   *errnos
	mounts []guestMount
}

// guestMount is a mount with its place in the guest, as the names of its path.
type guestMount struct {
	steps []string
	fs    *mount
}

// find gives the mount a path lies in and the path there, or whether it is one of our own directories.
func (r *rootFS) find(path string) (m *mount, below string, own bool) {
	steps := names(path)
	deepest := -1
	for i, g := range r.mounts {
		if len(g.steps) <= len(steps) && slices.Equal(steps[:len(g.steps)], g.steps) {
			if deepest < 0 || len(g.steps) > len(r.mounts[deepest].steps) {
				deepest = i
			}
		}
	}
	if deepest >= 0 {
		g := r.mounts[deepest]
		below := strings.Join(steps[len(g.steps):], "/")
		if below == "" {
			below = "."
		}
		if strings.HasSuffix(path, "/") {
			below += "/"
		}
		return g.fs, below, false
	}
	return nil, "", len(steps) == 0 || len(r.children(steps)) > 0
}

// children are the names that lead on from one of our directories to a mount.
func (r *rootFS) children(steps []string) []sys.Dirent {
	var out []sys.Dirent
	for _, g := range r.mounts {
		if len(g.steps) > len(steps) && slices.Equal(g.steps[:len(steps)], steps) {
			here := g.steps[:len(steps)+1]
			out = append(out, sys.Dirent{Name: here[len(steps)], Ino: inodeOf(here), Type: fs.ModeDir})
		}
	}
	slices.SortFunc(out, func(a, b sys.Dirent) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b sys.Dirent) bool { return a.Name == b.Name })
}

// inodeOf makes up a number that is the same each time and never zero, which some guests take for a deleted file.
func inodeOf(steps []string) uint64 {
	h := fnv.New64a()
	for _, s := range steps {
		_, _ = h.Write([]byte("/" + s))
	}
	return h.Sum64() | 1
}

func ownStat(steps []string) wsys.Stat_t {
	return wsys.Stat_t{Ino: inodeOf(steps), Mode: fs.ModeDir | 0o555, Nlink: 2}
}

// OpenFile implements sys.FS.
func (r *rootFS) OpenFile(path string, flag sys.Oflag, perm fs.FileMode) (sys.File, sys.Errno) {
	m, below, own := r.find(path)
	switch {
	case m != nil:
		return m.OpenFile(below, flag, perm)
	case own && flag&sys.O_DIRECTORY == 0 && flag&writeFlags != 0:
		return nil, sys.EISDIR
	case own:
		return &rootDir{fs: r, steps: names(path)}, 0
	case flag&sys.O_CREAT != 0:
		return nil, sys.EROFS
	}
	return nil, sys.ENOENT
}

// Lstat implements sys.FS.
func (r *rootFS) Lstat(path string) (wsys.Stat_t, sys.Errno) {
	return r.stat(path, (*mount).Lstat)
}

// Stat implements sys.FS.
func (r *rootFS) Stat(path string) (wsys.Stat_t, sys.Errno) {
	return r.stat(path, (*mount).Stat)
}

func (r *rootFS) stat(path string, in func(*mount, string) (wsys.Stat_t, sys.Errno)) (wsys.Stat_t, sys.Errno) {
	switch m, below, own := r.find(path); {
	case m != nil:
		return in(m, below)
	case own:
		return ownStat(names(path)), 0
	}
	return wsys.Stat_t{}, sys.ENOENT
}

// change runs a change in the mount the path lies in; the mounts' own places cannot be changed from above.
func (r *rootFS) change(path string, in func(m *mount, below string) sys.Errno) sys.Errno {
	switch m, below, _ := r.find(path); {
	case m == nil:
		return sys.EROFS
	case len(names(below)) == 0:
		return r.errs.report(errnoBusy)
	default:
		return in(m, below)
	}
}

// Mkdir implements sys.FS.
func (r *rootFS) Mkdir(path string, perm fs.FileMode) sys.Errno {
	if _, errno := r.Lstat(path); errno == 0 {
		return sys.EEXIST
	}
	return r.change(path, func(m *mount, below string) sys.Errno { return m.Mkdir(below, perm) })
}

// Rmdir implements sys.FS.
func (r *rootFS) Rmdir(path string) sys.Errno { return r.change(path, (*mount).Rmdir) }

// Unlink implements sys.FS.
func (r *rootFS) Unlink(path string) sys.Errno { return r.change(path, (*mount).Unlink) }

// Utimens implements sys.FS.
func (r *rootFS) Utimens(path string, atim, mtim int64) sys.Errno {
	return r.change(path, func(m *mount, below string) sys.Errno { return m.Utimens(below, atim, mtim) })
}

// Symlink implements sys.FS.
func (r *rootFS) Symlink(target, link string) sys.Errno {
	return r.change(link, func(m *mount, below string) sys.Errno { return m.Symlink(target, below) })
}

// Readlink implements sys.FS.
func (r *rootFS) Readlink(path string) (string, sys.Errno) {
	switch m, below, own := r.find(path); {
	case m != nil:
		return m.Readlink(below)
	case own:
		return "", sys.EINVAL
	}
	return "", sys.ENOENT
}

// Rename implements sys.FS.
func (r *rootFS) Rename(from, to string) sys.Errno { return r.two(from, to, (*mount).Rename) }

// Link implements sys.FS.
func (r *rootFS) Link(from, to string) sys.Errno { return r.two(from, to, (*mount).Link) }

func (r *rootFS) two(from, to string, in func(m *mount, from, to string) sys.Errno) sys.Errno {
	return r.change(from, func(m *mount, below string) sys.Errno {
		return r.change(to, func(dest *mount, destBelow string) sys.Errno {
			if m != dest {
				return r.errs.report(errnoXdev)
			}
			return in(m, below, destBelow)
		})
	})
}

// rootDir is one of our directories, open.
type rootDir struct {
	sys.DirFile

	fs    *rootFS
	steps []string
	given int
}

// Dev implements sys.File.
func (d *rootDir) Dev() (uint64, sys.Errno) { return 0, 0 }

// Ino implements sys.File.
func (d *rootDir) Ino() (wsys.Inode, sys.Errno) { return inodeOf(d.steps), 0 }

// Stat implements sys.File.
func (d *rootDir) Stat() (wsys.Stat_t, sys.Errno) { return ownStat(d.steps), 0 }

// Seek implements sys.File.
func (d *rootDir) Seek(offset position, whence int) (int64, sys.Errno) {
	if offset != 0 || whence != 0 {
		return 0, sys.EISDIR
	}
	d.given = 0
	return 0, 0
}

// Readdir implements sys.File.
func (d *rootDir) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	left := d.fs.children(d.steps)[d.given:]
	if n > 0 && n < len(left) {
		left = left[:n]
	}
	d.given += len(left)
	return left, 0
}

// Sync implements sys.File.
func (d *rootDir) Sync() sys.Errno { return 0 }

// Datasync implements sys.File.
func (d *rootDir) Datasync() sys.Errno { return 0 }

// Utimens implements sys.File.
func (d *rootDir) Utimens(int64, int64) sys.Errno { return sys.EROFS }

// Close implements sys.File.
func (d *rootDir) Close() sys.Errno { return 0 }
