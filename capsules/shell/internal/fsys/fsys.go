// Package fsys is the shell's view of its files: the directories the host
// gave, and above them as much of a tree as is needed to walk to them.
//
// A capsule usually has one directory, /work, and nothing at "/". The package
// makes "/" and every other parent of a given directory a directory that can
// be listed and entered but not changed, so that cd, ls and globbing behave as
// people expect. /dev/null always exists. The package owns no state beside the
// list of given directories, keeps no file open, and never follows a path out
// of a given directory by mistaking a longer name for it: with /work given,
// /workshop does not exist.
package fsys

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// nullPath is the one device the shell knows.
const nullPath = "/dev/null"

// FS is a view of the files. The zero value sees all that the system has.
type FS struct {
	mounts []string
}

// New returns the view of the given directories, absolute guest paths. With
// none the whole file system is seen.
func New(mounts []string) *FS {
	f := &FS{}
	for _, m := range mounts {
		f.mounts = append(f.mounts, path.Join("/", m))
	}
	return f
}

// Home is the directory a session starts in when nothing else is asked for:
// the first given one, or "/".
func (f *FS) Home() string {
	if len(f.mounts) > 0 {
		return f.mounts[0]
	}
	return "/"
}

// IsMount says whether name is a directory as the host gave it, which must not
// be removed as a whole.
func (f *FS) IsMount(name string) bool {
	name = path.Clean(name)
	return name == "/" || slices.Contains(f.mounts, name)
}

type place int

const (
	absent place = iota
	real
	parent // a directory above a given one
	null   // /dev/null
)

func (f *FS) place(name string) place {
	if name == nullPath {
		return null
	}
	if len(f.mounts) == 0 {
		return real
	}
	found := absent
	for _, m := range f.mounts {
		switch {
		case m == "/", name == m, strings.HasPrefix(name, m+"/"):
			return real
		case name == "/", strings.HasPrefix(m, name+"/"):
			found = parent
		}
	}
	return found
}

// denied is what a change of a path that is not in a given directory gets.
func (f *FS) denied(op, name string) error {
	err := error(fs.ErrNotExist)
	if f.place(name) != absent || f.place(path.Dir(name)) != absent {
		err = fs.ErrPermission
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Stat follows links. All paths the methods take are absolute and clean; all
// errors are *fs.PathError or *os.LinkError.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.stat(name, os.Stat) }

// Lstat does not follow the last link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) { return f.stat(name, os.Lstat) }

func (f *FS) stat(name string, real func(string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	switch f.place(name) {
	case parent:
		return info{name: path.Base(name), mode: fs.ModeDir | 0o555}, nil
	case null:
		return nullInfo, nil
	case absent:
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return real(name)
}

// ReadDir lists a directory, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	switch f.place(name) {
	case real:
		return os.ReadDir(name)
	case parent:
	default:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	prefix := strings.TrimSuffix(name, "/") + "/"
	seen := map[string]bool{}
	var list []fs.DirEntry
	for _, m := range f.mounts {
		rest, under := strings.CutPrefix(m, prefix)
		if !under {
			continue
		}
		first, _, _ := strings.Cut(rest, "/")
		if seen[first] {
			continue
		}
		seen[first] = true
		list = append(list, fs.FileInfoToDirEntry(info{name: first, mode: fs.ModeDir | 0o555}))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// File is an open file: one of the system's, or the null device.
type File interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	Close() error
	Stat() (fs.FileInfo, error)
}

// Open opens a file for reading.
func (f *FS) Open(name string) (File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile opens a file as os.OpenFile does.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	switch f.place(name) {
	case null:
		return nullFile{}, nil
	case real:
		file, err := os.OpenFile(name, flag, perm)
		if err != nil {
			return nil, err
		}
		return file, nil
	}
	if flag&os.O_CREATE == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return nil, f.denied("open", name)
}

// Mkdir makes one directory.
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	if place := f.place(name); place == parent {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	} else if place != real {
		return f.denied("mkdir", name)
	}
	return os.Mkdir(name, perm)
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error {
	if f.place(name) != real || f.IsMount(name) {
		return f.denied("remove", name)
	}
	return os.Remove(name)
}

// Rename moves a file or directory.
func (f *FS) Rename(from, to string) error {
	for _, name := range []string{from, to} {
		if f.place(name) != real || f.IsMount(name) {
			return f.denied("rename", name)
		}
	}
	return os.Rename(from, to)
}

// Chtimes sets the time a file was last changed and read.
func (f *FS) Chtimes(name string, when time.Time) error {
	if f.place(name) != real {
		return f.denied("chtimes", name)
	}
	return os.Chtimes(name, when, when)
}

// Readlink returns where a link points.
func (f *FS) Readlink(name string) (string, error) {
	if f.place(name) != real {
		return "", f.denied("readlink", name)
	}
	return os.Readlink(name)
}
