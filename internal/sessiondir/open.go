package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openat2 has no room for surprises: no component may be a link of any kind,
// and the walk does not leave the directory that it began in.
const resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH

// openBelow opens rel, which may have several components, below dir without
// following a link. A FIFO in the place of a file does not block it.
func openBelow(dir *os.File, rel string, flags int) (*os.File, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if flags&unix.O_DIRECTORY == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := &unix.OpenHow{Flags: uint64(flags), Resolve: resolve}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	fd, err := unix.Openat2(int(dir.Fd()), rel, how)
	// EAGAIN: something was renamed meanwhile and the kernel could not be sure.
	for try := 0; try < 100 && (err == unix.EAGAIN || err == unix.EINTR); try++ {
		fd, err = unix.Openat2(int(dir.Fd()), rel, how)
	}
	if err == unix.ENOSYS || err == unix.EPERM || err == unix.EAGAIN {
		// Kernels before 5.6, and filters that know no openat2.
		fd, err = walkBelow(int(dir.Fd()), rel, flags)
	}
	return opened(fd, rel, flags, err)
}

// walkBelow does it step by step.
func walkBelow(dir int, rel string, flags int) (int, error) {
	at := dir
	steps := strings.Split(rel, "/")
	for i, step := range steps {
		how := unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if i == len(steps)-1 {
			how = flags
		}
		fd, err := -1, unix.EXDEV // as openat2 says of a way out
		if step != ".." && step != "" {
			fd, err = openStep(at, step, how)
		}
		if at != dir {
			unix.Close(at)
		}
		if err != 0 {
			return -1, err
		}
		at = fd
	}
	return at, nil
}

func openStep(at int, step string, flags int) (int, unix.Errno) {
	for {
		fd, err := unix.Openat(at, step, flags, 0o600)
		errno, _ := err.(unix.Errno)
		if errno != unix.EINTR {
			return fd, errno
		}
	}
}

// opened turns the kernel's words for a link in the way into ours.
func opened(fd int, rel string, flags int, err error) (*os.File, error) {
	switch err {
	case nil:
		if flags&unix.O_NONBLOCK != 0 {
			// It was for the open alone; inherited descriptors share it.
			_ = unix.SetNonblock(fd, false)
		}
		return os.NewFile(uintptr(fd), filepath.Base(rel)), nil
	case unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.ENXIO, unix.EISDIR:
		return nil, fmt.Errorf("cannot open %s: %w: it is a link or not the file that belongs there", rel, ErrUnsafe)
	}
	return nil, fmt.Errorf("cannot open %s: %w", rel, err)
}

// openDir opens a directory below dir and checks that it is ours alone.
func openDir(dir *os.File, rel string) (*os.File, error) {
	f, err := openBelow(dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := checkDir(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openFile opens a regular file in dir and checks that it is ours alone.
func openFile(dir *os.File, name string, flags int) (*os.File, error) {
	f, err := openBelow(dir, name, flags)
	if err != nil {
		return nil, err
	}
	if flags&unix.O_CREAT != 0 {
		err = widen(f, 0o600)
	}
	if err == nil {
		err = checkFile(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// widen gives back to a new file or directory what a strict umask took from its
// owner; it never opens anything to others.
func widen(f *os.File, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", f.Name(), err)
	}
	if st.Mode&0o777 == mode || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", f.Name(), err)
	}
	return nil
}

func checkDir(f *os.File) error { return checkOurs(f, unix.S_IFDIR) }

// checkFile checks a file that is never made by linking a temporary, so that a
// second name can only be somebody's trick.
func checkFile(f *os.File) error {
	if err := checkOurs(f, unix.S_IFREG); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", f.Name(), err)
	}
	if st.Nlink > 1 {
		return fmt.Errorf("cannot use %s: %w: it has a second name", f.Name(), ErrUnsafe)
	}
	return nil
}

// checkOurs judges the open descriptor: a name could show something else by now.
func checkOurs(f *os.File, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", f.Name(), err)
	}
	reason := ""
	switch {
	case st.Mode&unix.S_IFMT != kind:
		reason = "it is not the kind of file that belongs there"
	case int(st.Uid) != os.Geteuid():
		reason = fmt.Sprintf("it belongs to user %d", st.Uid)
	case st.Mode&0o077 != 0:
		reason = fmt.Sprintf("its mode is %#o", st.Mode&0o7777)
	default:
		return nil
	}
	return fmt.Errorf("cannot use %s: %w: %s", f.Name(), ErrUnsafe, reason)
}

// makeDir makes a private directory; fs.ErrExist if the name is taken.
func makeDir(dir *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", name, err)
	}
	return openMade(dir, name)
}

// ensureDir opens a private directory and makes it where it is missing.
func ensureDir(dir *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(dir.Fd()), name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return openMade(dir, name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", name, err)
	}
	f, err := openMade(dir, name)
	if err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot sync %s: %w", dir.Name(), err)
	}
	return f, nil
}

// syncDir makes the entries of dir durable, which may be an O_PATH descriptor
// (those cannot be synced). A directory that we may write and not read is left
// to the kernel.
func syncDir(dir *os.File) error {
	f, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// openMade opens a directory that mkdir has made, or that it made once and was
// killed before the mode was right: under a umask such as 0777 it cannot be
// opened yet.
func openMade(dir *os.File, name string) (*os.File, error) {
	f, err := openDir(dir, name)
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrUnsafe) {
		if err == nil {
			err = widen(f, 0o700)
		}
		if err != nil && f != nil {
			f.Close()
			f = nil
		}
		return f, err
	}
	handle, err := openBelow(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	if err := checkDir(handle); err != nil {
		return nil, err
	}
	// fchmod refuses an O_PATH descriptor; its link in /proc leads to this very
	// directory, whatever the name shows.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(handle.Fd())), 0o700); err != nil {
		return nil, fmt.Errorf("cannot set the mode of %s: %w", name, err)
	}
	return openDir(dir, name)
}

// readNames lists dir through a descriptor of its own: the position in an open
// directory is shared.
func readNames(dir *os.File) ([]string, error) {
	list, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir.Name(), err)
	}
	return names, nil
}
