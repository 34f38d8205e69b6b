package wasmhost

import (
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

const (
	maxLinks = 40   // as many links as the kernel follows in one path
	maxPath  = 4096 // PATH_MAX
)

// place is where a guest path leads: a name in a directory that is held open, so that what is done there cannot be
// moved by a rename or a link put on the way afterwards.
type place struct {
	dir     int    // an O_PATH descriptor
	owned   bool   // dir is not the mount's own root
	name    string // one name, never a path; "." is the directory itself
	canon   []string
	frozen  bool // a directory on the way is read-only, found by its identity
	mustDir bool // the path ended in a slash
}

func (p *place) close() {
	if p.owned {
		_ = unix.Close(p.dir)
		p.owned = false
	}
}

// walker follows one path. The kernel is only ever given single names with O_NOFOLLOW, so neither `..` nor a link is
// resolved by it; a link's text is read and walked here, and an absolute one or a `..` above the root is refused. This
// is what os.Root does too, but a read-only subtree needs the names that were really walked, and changing a directory
// needs its descriptor.
type walker struct {
	m     *mount
	at    place
	rest  []string
	links int
}

// walk resolves a path. With follow, a link at its end is followed too.
func (m *mount) walk(path string, follow bool) (place, sys.Errno) {
	if len(path) > maxPath {
		return place{}, sys.ENAMETOOLONG
	}
	w := &walker{m: m, at: place{dir: m.root, name: "."}, rest: names(path)}
	w.at.mustDir = strings.HasSuffix(path, "/")
	if errno := w.run(follow); errno != 0 {
		w.at.close()
		return place{}, errno
	}
	return w.at, 0
}

// names splits a path into its steps.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

func (w *walker) run(follow bool) sys.Errno {
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		var errno sys.Errno
		switch last := len(w.rest) == 0; {
		case name == "..":
			errno = w.up()
		case last && !follow && !w.at.mustDir:
			w.arrive(name)
		case last:
			errno = w.end(name)
		default:
			errno = w.descend(name)
		}
		if errno != 0 {
			return errno
		}
	}
	return 0
}

func (w *walker) arrive(name string) {
	w.at.name = name
	w.at.canon = append(w.at.canon, name)
}

// end is the last step: a link there is followed, anything else, or nothing, is the place.
func (w *walker) end(name string) sys.Errno {
	target, err := readlinkat(w.at.dir, name)
	switch err {
	case nil:
		return w.expand(target)
	case unix.EINVAL, unix.ENOENT:
		w.arrive(name)
		return 0
	default:
		return w.m.errs.of(err)
	}
}

func (w *walker) descend(name string) sys.Errno {
	fd, err := openat(w.at.dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch err {
	case nil:
		return w.enter(fd, name)
	case unix.ENOTDIR, unix.ELOOP:
		// Either a plain file or a link: O_DIRECTORY with O_NOFOLLOW says ENOTDIR for both.
		target, err := readlinkat(w.at.dir, name)
		if err == unix.EINVAL {
			return sys.ENOTDIR
		} else if err != nil {
			return w.m.errs.of(err)
		}
		return w.expand(target)
	default:
		return w.m.errs.of(err)
	}
}

// enter makes fd the directory that the next name is looked up in.
func (w *walker) enter(fd int, name string) sys.Errno {
	w.at.close()
	w.at.dir, w.at.owned = fd, true
	w.at.canon = append(w.at.canon, name)
	if len(w.m.frozenIDs) > 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return w.m.errs.of(err)
		}
		if _, ok := w.m.frozenIDs[idOf(&st)]; ok {
			w.at.frozen = true
		}
	}
	return 0
}

// expand puts the text of a link in front of what is left of the path.
func (w *walker) expand(target string) sys.Errno {
	if w.links++; w.links > maxLinks {
		return sys.ELOOP
	}
	if strings.HasPrefix(target, "/") {
		return sys.EPERM
	}
	if len(w.rest) == 0 && strings.HasSuffix(target, "/") {
		w.at.mustDir = true
	}
	w.rest = append(names(target), w.rest...)
	if len(w.rest) > maxPath/2 {
		return sys.ENAMETOOLONG
	}
	return 0
}

// up leaves the directory for its parent by walking there again from the root. The kernel's own `..` would follow a
// directory that was moved out of the mount.
func (w *walker) up() sys.Errno {
	if len(w.at.canon) == 0 {
		return sys.EPERM
	}
	back := w.at.canon[:len(w.at.canon)-1]
	w.at.close()
	w.at = place{dir: w.m.root, name: ".", mustDir: w.at.mustDir}
	for _, name := range back {
		fd, err := openat(w.at.dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return w.m.errs.of(err)
		}
		if errno := w.enter(fd, name); errno != 0 {
			return errno
		}
	}
	return 0
}

func openat(dir int, name string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, perm)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// statAt is lstat of a place.
func (p *place) statAt() (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}
