package guardian

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// detach makes the process independent of whoever started it: no terminal, no
// descriptor but those to be kept, no ignored signal, no directory in use.
func detach(kept []int) error {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return errors.New("standard input, output or error is a terminal; start it through mur")
		}
	}
	if err := procs.ResetSignals(); err != nil {
		return err
	}
	if err := procs.SetName("mur-guardian"); err != nil {
		return err
	}
	if err := procs.Undumpable(); err != nil {
		return err
	}
	unix.Umask(0o077)
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getpid() {
		if _, err := unix.Setsid(); err != nil {
			return fmt.Errorf("cannot leave the starter's session: %w", err)
		}
	}
	if err := closeInherited(kept); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", os.DevNull, err)
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("cannot redirect descriptor %d: %w", fd, err)
		}
	}
	return unix.Close(null)
}

// closeInherited closes every descriptor that the starter left open, or a pipe
// of a shell that has long gone would be held for as long as the session lives.
// The runtime's own (its poller, and the cgroup files that it reads the CPU limit
// from) are told by what they are.
func closeInherited(kept []int) error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return procs.CloseOnExecFrom(3)
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 || slices.Contains(kept, fd) {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		unix.Close(fd)
	}
	return procs.CloseOnExecFrom(3)
}

// maxLog bounds guardian.log, in bytes; the half before is kept once beside it.
const maxLog = 1 << 20

// openLog opens the guardian's log of JSON lines.
func openLog(dir *sessiondir.Dir) *slog.Logger {
	w := &boundedLog{dir: dir}
	_ = w.open() // tried again with each line
	return slog.New(slog.NewJSONHandler(w, nil)).With("pid", os.Getpid())
}

// boundedLog appends to guardian.log and begins anew when it is full.
type boundedLog struct {
	dir *sessiondir.Dir

	mu   sync.Mutex // guards the fields below and serialises the lines
	f    *os.File
	size int64
}

func (w *boundedLog) open() error {
	var fd int
	err := atDir(w.dir, func(dir int) (err error) {
		fd, err = unix.Openat(dir, sessiondir.GuardianLog,
			unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", sessiondir.GuardianLog, err)
	}
	f := os.NewFile(uintptr(fd), sessiondir.GuardianLog)
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	w.f, w.size = f, info.Size()
	return nil
}

// Write appends one line. A line that cannot be written is lost: the log is for
// people, and a full disk must not stop the session.
func (w *boundedLog) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f != nil && w.size+int64(len(line)) > maxLog {
		atDir(w.dir, func(dir int) error {
			return unix.Renameat(dir, sessiondir.GuardianLog, dir, sessiondir.GuardianLog+".old")
		})
		w.f.Close()
		w.f = nil
	}
	if w.f == nil {
		if err := w.open(); err != nil {
			return 0, err
		}
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	return n, err
}
