// Package durable puts small files into a directory so that a crash or a power
// loss leaves either the old state or the new one, never something between.
//
// It owns nothing but the temporary names it makes (see [IsTemp]); everything
// is done relative to an open directory with the *at calls, so neither the
// length of the path nor a link planted on the way matters. The directory must
// be opened for reading (O_PATH does not do: it cannot be synced).
//
// What survives: when a call returns nil, bytes and name are on the disk. When
// it is killed anywhere, the name shows the old or the new content, and at most
// one temporary stays behind for [ClearTemps]. When a call fails after the name
// was made (the sync of the directory failed) the new content may be there or
// not after a power loss, and the caller is told so by the error.
//
// A temporary is locked (open-file-description lock) while its maker lives, so
// ClearTemps may be called at any time by anyone: it takes only what is stale.
//
// It never follows a link, never writes in place, never waits for a lock.
package durable

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const tempPrefix = ".tmp-"

// IsTemp tells whether name is one that this package gives to unfinished files;
// no other file may be given such a name.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// WriteFile makes data the content of name, replacing what was there.
func WriteFile(dir *os.File, name string, data []byte) error {
	f, err := Replace(dir, name, writing(data))
	if err != nil {
		return err
	}
	return f.Close()
}

// CreateFile makes name with data. The first writer wins: for every other the
// error is fs.ErrExist and nothing has changed.
func CreateFile(dir *os.File, name string, data []byte) error {
	f, err := Create(dir, name, writing(data))
	if err != nil {
		return err
	}
	return f.Close()
}

func writing(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(data)
		return err
	}
}

// Replace is WriteFile for a file that fill writes and that stays open (for
// reading and writing). fill need not sync.
func Replace(dir *os.File, name string, fill func(*os.File) error) (*os.File, error) {
	return publish(dir, name, fill, func(dirfd int, temp string) error {
		return retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) })
	})
}

// Create is CreateFile for a file that fill writes and that stays open (for
// reading and writing). fill need not sync.
func Create(dir *os.File, name string, fill func(*os.File) error) (*os.File, error) {
	return publish(dir, name, fill, func(dirfd int, temp string) error {
		// link(2) never replaces, on any file system that has links; a crash
		// before the unlink leaves a second, clearable name.
		err := retry(func() error { return unix.Linkat(dirfd, temp, dirfd, name, 0) })
		if err == nil {
			_ = unix.Unlinkat(dirfd, temp, 0)
		}
		return err
	})
}

// publish makes a complete, synced temporary, lets place give it its name, and
// syncs the directory.
func publish(dir *os.File, name string, fill func(*os.File) error, place func(dirfd int, temp string) error) (*os.File, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || IsTemp(name) {
		return nil, fmt.Errorf("cannot write %q: not a plain file name", name)
	}
	f, temp, err := makeTemp(dir, name)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = place(int(dir.Fd()), temp)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
		_ = f.Close()
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	if err = SyncDir(dir); err == nil {
		err = setLock(f, unix.F_UNLCK)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot write %s for good: %w", name, err)
	}
	return f, nil
}

// SyncDir makes the names in dir durable.
func SyncDir(dir *os.File) error {
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("cannot sync directory: %w", err)
	}
	return nil
}

// makeTemp makes a locked temporary. Between the open and the lock ClearTemps
// may take it for a stale one: then the lock is taken or the name is gone, and
// another one is made. In its errors the file bears the name that it will have.
func makeTemp(dir *os.File, name string) (*os.File, string, error) {
	for {
		var random [12]byte
		_, _ = rand.Read(random[:]) // never fails, see crypto/rand
		temp := tempPrefix + hex.EncodeToString(random[:])
		f, err := openAt(dir, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		err = setLock(f, unix.F_WRLCK)
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(int(f.Fd()), &st)
		}
		if err == nil && st.Nlink > 0 {
			return f, temp, nil
		}
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return nil, "", err
		}
	}
}

// ClearTemps removes the temporaries whose makers are gone.
func ClearTemps(dir *os.File) error {
	// A descriptor of its own, as reading moves the position in the directory.
	list, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, "directory")
	if err != nil {
		return fmt.Errorf("cannot clear temporary files: %w", err)
	}
	names, err := list.Readdirnames(-1)
	_ = list.Close()
	for _, name := range names {
		if IsTemp(name) {
			err = errors.Join(err, clearTemp(dir, name))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot clear temporary files: %w", err)
	}
	return nil
}

func clearTemp(dir *os.File, name string) error {
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // gone, or nothing that this package made
	}
	f, err := openAt(dir, name, unix.O_RDWR|unix.O_NONBLOCK, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = setLock(f, unix.F_WRLCK)
	if err == nil {
		err = unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, fs.ErrNotExist) {
		return nil // its maker lives, or has just finished
	}
	return err
}

func openAt(dir *os.File, name string, flags int, label string) (*os.File, error) {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), label), nil
}

func setLock(f *os.File, kind int16) error {
	return retry(func() error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind})
	})
}

// retry goes on after signals: network file systems return EINTR from calls
// that never do so elsewhere.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
