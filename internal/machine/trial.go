package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// ErrNoTerminal is returned when something could not be tried for want of a
// terminal.
var ErrNoTerminal = errors.New("no terminal to try it with")

// Trial is a private directory in which it is tried what its file system can do.
type Trial struct {
	path string
	dir  *os.File
}

// NewTrial makes the directory in parent.
func NewTrial(parent string) (*Trial, error) {
	path, err := os.MkdirTemp(parent, ".doctor-")
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return &Trial{path: path, dir: dir}, nil
}

// Remove takes the directory away with all that was tried in it.
func (t *Trial) Remove() error {
	t.dir.Close()
	return os.RemoveAll(t.path)
}

// Names tries what a session's directory is made of: a socket that answers, a
// second name for a file, and a rename that replaces nothing.
func (t *Trial) Names(ctx context.Context) error {
	if err := t.socket(ctx); err != nil {
		return fmt.Errorf("sockets: %w", err)
	}
	a, b, c := filepath.Join(t.path, "a"), filepath.Join(t.path, "b"), filepath.Join(t.path, "c")
	if err := os.WriteFile(a, []byte("a"), 0o600); err != nil {
		return err
	}
	if err := os.Link(a, b); err != nil {
		return fmt.Errorf("hard links: %w", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, c, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("renaming without replacing: %w", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, b, unix.AT_FDCWD, c, unix.RENAME_NOREPLACE); err != unix.EEXIST {
		return fmt.Errorf("renaming without replacing: it replaced (%v)", err)
	}
	return nil
}

func (t *Trial) socket(ctx context.Context) error {
	l, err := peersock.Listen(t.dir, "socket")
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := peersock.Dial(ctx, t.dir, "socket")
	if err != nil {
		return err
	}
	return conn.Close()
}

// Locks tries locks that belong to an open file: held against others, and seen
// by those who only ask.
func (t *Trial) Locks() error {
	path := filepath.Join(t.path, "lock")
	holder, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer holder.Close()
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer other.Close()
	mine, err1 := procs.Lock(holder)
	theirs, err2 := procs.Lock(other)
	seen, err3 := procs.Locked(other)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if !mine || theirs || !seen {
		return errors.New("they do not exclude each other")
	}
	return nil
}

// trialBytes are few enough for a terminal to hold them all, so that writing them
// never waits for a reader.
const trialBytes = 4096

// Splice captures a terminal's output as a guardian does and compares it. copying:
// it works, but not by splice.
func (t *Trial) Splice(ctx context.Context) (copying bool, err error) {
	path := filepath.Join(t.path, "output")
	if err := os.Mkdir(path, 0o700); err != nil {
		return false, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 80, Rows: 24})
	if err != nil {
		return false, ErrNoTerminal // Terminals says why
	}
	defer master.Close()
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	defer w.Close()
	c, err := output.NewCapture(dir, master, r, w, output.Options{})
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run() }()
	want := allBytes(trialBytes)
	err = writeRaw(slave, want)
	if err == nil {
		_, err = c.Flush(ctx)
	}
	copying = c.State().Copying
	c.Stop()
	if err = errors.Join(err, <-ended); err != nil {
		return copying, err
	}
	return copying, compareOutput(dir, want)
}

// allBytes has every value, and no period that a lost piece could hide in.
func allBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + i/251)
	}
	return b
}

// writeRaw writes bytes that the terminal is not to translate.
func writeRaw(slave *os.File, b []byte) error {
	err := ptmx.Control(slave, func(fd int) error {
		settings, err := ptmx.GetTermios(fd)
		if err != nil {
			return err
		}
		settings.Oflag &^= unix.OPOST
		return ptmx.SetTermios(fd, settings)
	})
	if err != nil {
		return err
	}
	_, err = slave.Write(b)
	return err
}

func compareOutput(dir *os.File, want []byte) error {
	log, err := output.OpenReader(dir)
	if err != nil {
		return err
	}
	defer log.Close()
	got, err := io.ReadAll(io.NewSectionReader(log, 0, int64(len(want))+1))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("of %d bytes %d arrived, or others", len(want), len(got))
	}
	return nil
}

// dnDelete is the kernel's DN_DELETE (linux/fcntl.h).
const dnDelete = 0x8

// noticeTime bounds the wait for a signal that is sent at once or never.
const noticeTime = 2 * time.Second

// Notices tries the notice of fcntl(2), F_NOTIFY, that a name was taken out of a
// directory. It comes as a SIGIO to this process.
func (t *Trial) Notices(ctx context.Context) error {
	path := filepath.Join(t.path, "watched")
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	name := filepath.Join(path, "name")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGIO) // first: it could end the process
	defer signal.Stop(c)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, dnDelete); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid()); err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return errors.New("the kernel takes it and says nothing")
	}
}
