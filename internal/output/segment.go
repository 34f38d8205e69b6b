package output

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	headBytes  = 4096
	headMagic  = "mur-log\n"
	version    = 1
	headFixed  = 28 // magic, version, reserved, start, checksum
	stateAt    = 32 // length, checksum, bytes
	segSuffix  = ".seg"
	tempPrefix = ".new-"

	// maxOffset keeps positions within a segment's file representable.
	maxOffset = math.MaxInt64 - headBytes

	// MaxState is how many bytes SetState takes.
	MaxState = headBytes - stateAt - 8
)

// castagnoli is CRC32C; the table is the hash package's own and made once there.
func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func encodeHead(start int64) []byte {
	b := make([]byte, headBytes)
	copy(b, headMagic)
	binary.BigEndian.PutUint32(b[8:], version)
	binary.BigEndian.PutUint64(b[16:], uint64(start))
	binary.BigEndian.PutUint32(b[24:], castagnoli(b[:24]))
	return b
}

// errTorn is a segment whose name came through a power loss and whose head did
// not: nothing of it can be told, and what is before it is whole. A segment is not
// synced before it gets its name, as that would stop the capture at each.
var errTorn = fmt.Errorf("%w: it was torn by a power loss", ErrDamaged)

func checkHead(b []byte, start int64) error {
	switch {
	case len(b) < headFixed || len(bytes.Trim(b, "\x00")) == 0:
		return errTorn
	case string(b[:8]) != headMagic:
		return fmt.Errorf("%w: it does not begin like one", ErrDamaged)
	case binary.BigEndian.Uint32(b[24:]) != castagnoli(b[:24]):
		return fmt.Errorf("%w: wrong checksum", ErrDamaged)
	case binary.BigEndian.Uint32(b[8:]) != version:
		return fmt.Errorf("%w: version %d is unknown", ErrDamaged, binary.BigEndian.Uint32(b[8:]))
	case binary.BigEndian.Uint64(b[16:]) != uint64(start):
		return fmt.Errorf("%w: its name is another's", ErrDamaged)
	}
	return nil
}

func encodeState(state []byte) []byte {
	b := make([]byte, 8, 8+len(state))
	binary.BigEndian.PutUint32(b, uint32(len(state)))
	binary.BigEndian.PutUint32(b[4:], castagnoli(state))
	return append(b, state...)
}

// decodeState gives no state for an area that was never or not wholly written.
func decodeState(area []byte) (state []byte, ok bool) {
	if len(area) < 8 {
		return nil, false
	}
	n := binary.BigEndian.Uint32(area)
	if n == 0 || uint64(n) > uint64(len(area)-8) {
		return nil, false
	}
	state = area[8 : 8+n]
	return state, castagnoli(state) == binary.BigEndian.Uint32(area[4:])
}

func segmentName(start int64) string { return fmt.Sprintf("%016x%s", start, segSuffix) }

func parseName(name string) (start int64, ok bool) {
	digits, ok := strings.CutSuffix(name, segSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || n > maxOffset || segmentName(int64(n)) != name {
		return 0, false
	}
	return int64(n), true
}

// directory is an open file description of its own, so that listings do not
// share a position with anybody.
type directory struct{ f *os.File }

func openDirectory(dir *os.File) (directory, error) {
	f, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return directory{}, fmt.Errorf("cannot open the output directory: %w", err)
	}
	return directory{f}, nil
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	var fd int
	if flags&unix.O_DIRECTORY == 0 {
		flags |= unix.O_NONBLOCK // a planted fifo must not block us
	}
	raw, err := dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Control(func(at uintptr) {
		fd, inner = ignoringEINTR(func() (int, error) {
			return unix.Openat(int(at), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		})
		if inner == nil && flags&unix.O_DIRECTORY == 0 {
			inner = plainFile(fd)
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// plainFile closes what is none. A nonblocking file would be taken by os for one
// that can be polled.
func plainFile(fd int) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("not a plain file")
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
	}
	return err
}

func ignoringEINTR(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (d directory) open(name string, flags int) (*os.File, error) { return openAt(d.f, name, flags) }

func (d directory) names() ([]string, error) {
	f, err := openAt(d.f, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// segments lists the offsets at which segments begin, in order.
func (d directory) segments() ([]int64, error) {
	names, err := d.names()
	if err != nil {
		return nil, fmt.Errorf("cannot list the output directory: %w", err)
	}
	var starts []int64
	for _, name := range names {
		if start, ok := parseName(name); ok {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}

func (d directory) remove(name string) error {
	err := unix.Unlinkat(int(d.f.Fd()), name, 0)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func (d directory) rename(from, to string) error {
	fd := int(d.f.Fd())
	return unix.Renameat(fd, from, fd, to)
}

// create writes a whole file under a temporary name and then gives it its own, so
// that no other process ever sees a part of it. Only the lock's holder calls it.
func (d directory) create(name string, content []byte) (*os.File, error) {
	temp := tempPrefix + name
	f, err := d.open(temp, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = d.rename(temp, name)
	}
	if err != nil {
		f.Close()
		d.remove(temp)
		return nil, err
	}
	return f, nil
}

// openSegment opens a segment and tells how many bytes of output it holds now.
func (d directory) openSegment(start int64, flags int) (f *os.File, size int64, err error) {
	f, err = d.open(segmentName(start), flags)
	if err != nil {
		return nil, 0, err
	}
	head := make([]byte, headFixed)
	n, err := f.ReadAt(head, 0)
	if err == nil || errors.Is(err, io.EOF) {
		err = checkHead(head[:n], start)
	}
	if err == nil {
		size, err = segmentSize(f)
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("cannot open segment %s: %w", segmentName(start), err)
	}
	return f, size, nil
}

func segmentSize(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return max(0, st.Size()-headBytes), nil
}
