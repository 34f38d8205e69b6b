package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// dropRetries bounds how often a reader looks again when segments are dropped
// between its looking and its opening.
const dropRetries = 100

// Reader reads the log by offset, in any process, also while it grows and loses
// its oldest segments. It is one goroutine's; everybody opens their own.
type Reader struct {
	dir   directory
	seg   *os.File
	start int64
}

// OpenReader opens the log in dir, which stays the caller's and may hold nothing
// yet.
func OpenReader(dir *os.File) (*Reader, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	return &Reader{dir: d}, nil
}

// Close gives the descriptors back.
func (r *Reader) Close() error {
	r.forget()
	return r.dir.f.Close()
}

func (r *Reader) forget() {
	if r.seg != nil {
		r.seg.Close()
		r.seg = nil
	}
}

// ReadAt reads from offset off on. Like read(2) it may give fewer bytes than
// asked for, and n > 0 comes without an error; then 0 and io.EOF at the log's
// present end, or 0 and a *GapError where bytes are missing. The bytes of a
// segment that is dropped meanwhile may still be given: they are right.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("cannot read output at %d: negative offset", off)
	}
	if off > maxOffset-int64(len(p)) {
		return 0, io.EOF
	}
	for n < len(p) {
		m, err := r.readOne(p[n:], off+int64(n))
		n += m
		if err != nil {
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
	}
	return n, nil
}

// readOne reads from one segment.
func (r *Reader) readOne(p []byte, off int64) (int, error) {
	if r.seg != nil && off >= r.start {
		n, err := r.seg.ReadAt(p, off-r.start+headBytes)
		if n > 0 {
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("cannot read output at %d: %w", off, err)
		}
	}
	for range dropRetries {
		size, err := r.seek(off)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if off >= r.start+size {
			return 0, io.EOF
		}
		n, err := r.seg.ReadAt(p, off-r.start+headBytes)
		if n > 0 {
			return n, nil
		}
		return 0, fmt.Errorf("cannot read output at %d: %w", off, err)
	}
	return 0, errors.New("cannot read output: it is dropped faster than it can be read")
}

// seek opens the segment that holds off, or the last one when off is at its end
// or beyond.
func (r *Reader) seek(off int64) (size int64, err error) {
	// In a row of reads the next segment begins right here.
	if r.seg != nil && off > r.start {
		if f, size, err := r.dir.openSegment(off, unix.O_RDONLY); err == nil {
			r.use(f, off)
			return size, nil
		}
	}
	starts, err := r.dir.segments()
	if err != nil {
		return 0, err
	}
	i := len(starts) - 1
	for i >= 0 && starts[i] > off {
		i--
	}
	if i < 0 {
		if len(starts) == 0 {
			return 0, io.EOF
		}
		return 0, &GapError{From: off, To: starts[0]}
	}
	f, size, err := r.dir.openSegment(starts[i], unix.O_RDONLY)
	if errors.Is(err, errTorn) {
		return 0, r.dir.after(starts, i, off)
	}
	if err != nil {
		return 0, err
	}
	if i+1 < len(starts) && off >= starts[i]+size {
		f.Close()
		return 0, r.dir.after(starts, i, off)
	}
	r.use(f, starts[i])
	return size, nil
}

// after says what follows when segment i holds no more: a gap, or the end when
// everything behind it is torn.
func (d directory) after(starts []int64, i int, off int64) error {
	for _, start := range starts[i+1:] {
		f, _, err := d.openSegment(start, unix.O_RDONLY)
		if err == nil {
			f.Close()
			return &GapError{From: off, To: start}
		}
		if !errors.Is(err, errTorn) {
			return err
		}
	}
	return io.EOF
}

func (r *Reader) use(f *os.File, start int64) {
	r.forget()
	r.seg, r.start = f, start
}

// Bounds tells the offsets of the oldest byte kept and of the end.
func (r *Reader) Bounds() (tail, end int64, err error) {
	for range dropRetries {
		starts, err := r.dir.segments()
		if err != nil {
			return 0, 0, err
		}
		if len(starts) == 0 {
			return 0, 0, nil
		}
		end, err := r.dir.last(starts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return starts[0], end, err
	}
	return 0, 0, errors.New("cannot find the bounds of the output: it is dropped faster than it can be read")
}

// last is where the last segment ends that is not torn.
func (d directory) last(starts []int64) (end int64, err error) {
	for i := len(starts) - 1; i >= 0; i-- {
		f, size, err := d.openSegment(starts[i], unix.O_RDONLY)
		if errors.Is(err, errTorn) {
			continue
		}
		if err != nil {
			return 0, err
		}
		f.Close()
		return starts[i] + size, nil
	}
	return starts[0], nil
}

// State gives the newest state that SetState stored for an offset of at most off,
// and that offset. Without one state is nil and start the oldest offset kept.
func (r *Reader) State(off int64) (start int64, state []byte, err error) {
	starts, err := r.dir.segments()
	if err != nil || len(starts) == 0 {
		return 0, nil, err
	}
	area := make([]byte, headBytes-stateAt)
	for i := len(starts) - 1; i >= 0; i-- {
		if starts[i] > off {
			continue
		}
		f, _, err := r.dir.openSegment(starts[i], unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTorn) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		_, err = f.ReadAt(area, stateAt)
		f.Close()
		if err != nil {
			return 0, nil, fmt.Errorf("cannot read a segment's state: %w", err)
		}
		if state, ok := decodeState(area); ok {
			return starts[i], state, nil
		}
	}
	return starts[0], nil, nil
}
