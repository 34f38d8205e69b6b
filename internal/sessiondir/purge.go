package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Purge removes a retired session for good, its name included: from then on
// there is no such session. ErrNotRetired for any other.
func (r *Root) Purge(id protocol.SessionID) error {
	d, err := r.Open(id)
	if err != nil {
		return err
	}
	defer d.Close()
	view, err := d.Read()
	if err != nil {
		return err
	}
	if view.Snapshot.State != lifecycle.Retired {
		return fmt.Errorf("cannot purge session %s: %w: it is %s", id, ErrNotRetired, view.Snapshot.State)
	}
	gone := gonePrefix + string(id) + "." + randomText()
	if err := r.unpublish(d, gone); err != nil {
		return fmt.Errorf("cannot purge session %s: %w", id, err)
	}
	return removeTree(r.sessions, gone)
}

// unpublish takes the session's final name away, which is what counts, and then
// gives its name back. A kill between the two leaves a name without a session,
// which is free; a kill after it leaves a directory for clearLeftovers.
func (r *Root) unpublish(d *Dir, gone string) error {
	if d.boot.Name != "" {
		lock, err := r.lockNames()
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	err := renameNew(r.sessions, string(d.boot.Session), gone)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err == nil {
		err = durable.SyncDir(r.sessions)
	}
	if err != nil || d.boot.Name == "" {
		return err
	}
	return r.release(d.boot.Name, d.boot.Session)
}

// removeTree removes name in dir and everything in it, following no link. What
// somebody else removes at the same time is removed.
func removeTree(dir *os.File, name string) error {
	fd := int(dir.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	for range 10 {
		err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		// ENOTEMPTY again: a process that has not noticed yet made another file.
		if err != unix.ENOTEMPTY && err != unix.EEXIST {
			break
		}
		if err := emptyDir(dir, name); err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot remove %s: %w", name, err)
}

func emptyDir(dir *os.File, name string) error {
	sub, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := readNames(sub)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else has cleared it meanwhile
	}
	for _, n := range names {
		err = errors.Join(err, removeTree(sub, n))
	}
	return err
}
