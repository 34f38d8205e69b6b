package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Dir is an open session directory. It stays open, and usable to finish what was
// begun, when the session is purged. It may be used by several goroutines.
type Dir struct {
	dir  *os.File
	path string
	boot Bootstrap
}

// Open opens a session's directory by its path and checks it: ours, private, no
// link, its bootstrap bounded and of a known format. In a state root, that is
// below a directory named sessions, the two directories above are checked as well.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open session directory: %w", err)
	}
	d, err := openPath(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open session directory %s: %w", path, err)
	}
	return d, nil
}

func openPath(path string) (*Dir, error) {
	above, steps := filepath.Dir(path), []string(nil)
	if filepath.Base(above) == sessionsDir {
		root := filepath.Dir(above)
		above, steps = filepath.Dir(root), []string{filepath.Base(root), sessionsDir}
		if root == "/" {
			return nil, ErrUnsafe
		}
	}
	at, err := openAbove(above)
	if err != nil {
		return nil, err
	}
	defer func() { at.Close() }()
	for _, step := range steps {
		next, err := openDir(at, step)
		if err != nil {
			return nil, err
		}
		at.Close()
		at = next
	}
	return openSession(at, path)
}

// openSession opens the session that is the last component of path, in parent.
func openSession(parent *os.File, path string) (*Dir, error) {
	id, err := protocol.ParseSessionID(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	dir, err := openDir(parent, string(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot open session %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	d := &Dir{dir: dir, path: path}
	if d.boot, err = readBootstrap(dir, id); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = d.missing(id, BootstrapFile)
		}
		dir.Close()
		return nil, err
	}
	return d, nil
}

// File is the open directory. It stays the Dir's.
func (d *Dir) File() *os.File { return d.dir }

// Path is the absolute path that the directory was opened by.
func (d *Dir) Path() string { return d.path }

// ID is the session's id.
func (d *Dir) ID() protocol.SessionID { return d.boot.Session }

// Bootstrap is what the session was created with.
func (d *Dir) Bootstrap() Bootstrap { return d.boot }

// Close gives the descriptor back.
func (d *Dir) Close() error { return d.dir.Close() }

// Output opens the directory of the captured output.
func (d *Dir) Output() (*os.File, error) { return openDir(d.dir, OutputDir) }

// missing says why a file that every session has is not there: a purge gives the
// session's final name away before it takes the files.
func (d *Dir) missing(id protocol.SessionID, file string) error {
	if !d.present(id) {
		return fmt.Errorf("cannot open session %s: %w", id, ErrNotFound)
	}
	return &CorruptError{Session: id, File: file, Err: fs.ErrNotExist}
}

// checkPresent is ErrNotFound when the session was purged since it was opened.
func (d *Dir) checkPresent() error {
	if d.present(d.boot.Session) {
		return nil
	}
	return fmt.Errorf("cannot read session %s: %w", d.boot.Session, ErrNotFound)
}

func (d *Dir) present(id protocol.SessionID) bool {
	parent, err := unix.Openat(int(d.dir.Fd()), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(parent), "..")
	defer f.Close()
	return sameDir(f, string(id), d.dir)
}
