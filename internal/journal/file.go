package journal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
)

// File is a journal open for writing, used by one goroutine.
type File struct {
	f         *os.File
	name      string
	id        fileID
	base      int64
	end       int64 // where the next commit goes
	allocated int64 // up to where the file is written, with zeros from end on
	cause     error // of the poisoning
	buf       []byte
}

// Create makes an empty journal; fs.ErrExist if name is taken.
func Create(dir *os.File, name string) (*File, error) {
	return build(name, nil, func(fill func(*os.File) error) (*os.File, error) {
		return durable.Create(dir, name, fill)
	})
}

// Rewrite puts a journal with these records in the place of name, whatever is
// there: to compact it, or to begin anew after a failure. The caller closes the
// old File. When Rewrite fails the old File stays in use if it still takes
// records: if its name was already given away, it refuses with ErrPoisoned.
func Rewrite(dir *os.File, name string, records [][]byte) (*File, error) {
	return build(name, records, func(fill func(*os.File) error) (*os.File, error) {
		return durable.Replace(dir, name, fill)
	})
}

func build(name string, records [][]byte, publish func(fill func(*os.File) error) (*os.File, error)) (*File, error) {
	j := &File{name: name}
	_, _ = rand.Read(j.id[:]) // never fails, see crypto/rand
	buf := make([]byte, fileHeaderSize)
	for len(records) > 0 {
		n, err := 0, error(nil)
		for size := 0; n < len(records) && (n == 0 || size+len(records[n]) < step); n++ {
			size += len(records[n])
		}
		if buf, err = appendCommit(buf, j.id, int64(len(buf)), records[:n]); err != nil {
			return nil, fmt.Errorf("cannot rewrite %s: %w", name, err)
		}
		records = records[n:]
	}
	j.end, j.base = int64(len(buf)), int64(len(buf))
	appendFileHeader(buf[:0], j.id, j.base)
	f, err := publish(func(f *os.File) error {
		j.f = f
		if _, err := f.WriteAt(buf, 0); err != nil {
			return fullOr(err)
		}
		j.allocated = j.end
		if full, err := j.room(0, reserve); err != nil || full != nil {
			return errors.Join(full, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	j.f = f
	return j, nil
}

// Open opens a journal for writing and returns its records. A torn commit at
// the end is cut. The records are durable, also when the process that wrote
// them died before it had synced them.
func Open(dir *os.File, name string) (*File, [][]byte, error) {
	f, err := openAt(dir, name, unix.O_RDWR)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open %s: %w", name, err)
	}
	j := &File{f: f, name: name}
	records, err := j.load(dir)
	if err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("cannot open %s: %w", name, err)
	}
	return j, records, nil
}

func (j *File) load(dir *os.File) ([][]byte, error) {
	data, err := readAll(j.f)
	if err != nil {
		return nil, err
	}
	c, err := scan(data)
	if err != nil {
		return nil, err
	}
	j.id, j.base, j.end, j.allocated = c.id, c.base, c.end, int64(len(data))
	// A sync that failed in a process that died is reported to nobody else, and
	// its pages count as clean. Only the last commit can be such a one: written
	// again, it is dirty again. The torn one is zeroed rather than truncated
	// away, as on a full disk that would give the reserve to others.
	clear(data[c.end:c.dirty])
	if _, err := j.f.WriteAt(data[c.last:c.dirty], c.last); err != nil {
		return nil, err
	}
	if _, err := j.room(0, reserve); err != nil {
		return nil, err
	}
	if err := fdatasync(j.f); err != nil {
		return nil, err
	}
	return c.records, durable.SyncDir(dir)
}

// Read returns the records of a journal that another process may be writing. A
// commit that is not complete yet is not there yet. Records are returned as they
// are written, which may be a moment before they are durable.
func Read(dir *os.File, name string) ([][]byte, error) {
	f, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	var (
		c      contents
		before []byte
	)
	for range 8 {
		data, err := readAll(f)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		if c, err = scan(data); err == nil {
			break
		}
		// A read beside a write may see its later pages and not its earlier
		// ones, and then the next commit behind a hole. Damage stays as it is.
		if bytes.Equal(data, before) {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		before = data
	}
	return c.records, nil
}

// openAt opens a regular file in dir and nothing else: no link is followed, and
// a FIFO does not block.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &CorruptError{0, "not a regular file"}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, &CorruptError{maxFile, "longer than a journal gets"}
	}
	data := make([]byte, info.Size())
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data[:n], nil
}

func fdatasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
