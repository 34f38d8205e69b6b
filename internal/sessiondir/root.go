package sessiondir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// minPrefix is how many digits of an id at least tell it.
const minPrefix = 4

// Root is an open state root. It may be used by several goroutines.
type Root struct {
	path     string
	dir      *os.File
	sessions *os.File
	names    *os.File
}

// OpenRoot opens the state root and makes what is missing of it, parents
// included. ErrUnsafe if it, or a directory in it, is a link or not ours alone.
func OpenRoot(path string) (*Root, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open state root: %w", err)
	}
	r := &Root{path: path}
	if err := r.open(); err != nil {
		r.Close()
		return nil, fmt.Errorf("cannot open state root %s: %w", path, err)
	}
	return r, nil
}

func (r *Root) open() error {
	if r.path == "/" {
		return ErrUnsafe
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return err
	}
	parent, err := openAbove(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	defer parent.Close()
	if r.dir, err = ensureDir(parent, filepath.Base(r.path)); err != nil {
		return err
	}
	if r.sessions, err = ensureDir(r.dir, sessionsDir); err != nil {
		return err
	}
	r.names, err = ensureDir(r.dir, namesDir)
	return err
}

// openAbove opens a directory above the state root, through links and without
// the right to read it.
func openAbove(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Path is the state root's absolute path.
func (r *Root) Path() string { return r.path }

// Close gives the descriptors back. Directories opened from it stay open.
func (r *Root) Close() error {
	var err error
	for _, f := range []*os.File{r.dir, r.sessions, r.names} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// List names every session, oldest first as far as their ids tell.
func (r *Root) List() ([]protocol.SessionID, error) {
	names, err := readNames(r.sessions)
	if err != nil {
		return nil, fmt.Errorf("cannot list sessions: %w", err)
	}
	var ids []protocol.SessionID
	for _, name := range names {
		if id, err := protocol.ParseSessionID(name); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Open opens a session's directory; ErrNotFound if there is none.
func (r *Root) Open(id protocol.SessionID) (*Dir, error) {
	if _, err := protocol.ParseSessionID(string(id)); err != nil {
		return nil, err
	}
	return openSession(r.sessions, filepath.Join(r.path, sessionsDir, string(id)))
}

// Resolve tells which session text means: its name, its id, or the beginning of
// its id (4 digits at least, with or without "ses_"). ErrNotFound if none,
// *AmbiguousError if several. A name goes before the beginning of an id.
func (r *Root) Resolve(text string) (protocol.SessionID, error) {
	missing := fmt.Errorf("cannot find session %q: %w", text, ErrNotFound)
	if CheckName(text) == nil {
		id, err := r.holderOf(text, false)
		if err != nil {
			return "", fmt.Errorf("cannot find session %q: %w", text, err)
		}
		if id != "" {
			return id, nil
		}
	}
	digits := strings.TrimPrefix(text, idPrefix)
	if len(digits) < minPrefix || len(digits) > idDigits || !isHex(digits) {
		return "", missing
	}
	ids, err := r.List()
	if err != nil {
		return "", err
	}
	var fit []protocol.SessionID
	for _, id := range ids {
		if strings.HasPrefix(string(id), idPrefix+digits) {
			fit = append(fit, id)
		}
	}
	switch len(fit) {
	case 0:
		return "", missing
	case 1:
		return fit[0], nil
	}
	return "", &AmbiguousError{Text: text, Candidates: fit}
}
