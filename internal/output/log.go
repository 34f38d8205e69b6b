package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// DefaultHistory is how many bytes are kept if nothing else is asked for.
	DefaultHistory = 16 << 20
	minSegment     = 64 << 10
	maxSegment     = 1 << 20
)

// log is the writing side of the segments. It belongs to the capturing thread.
type log struct {
	dir      directory
	history  int64
	segment  int64 // bytes after which the next segment begins
	lossless bool
	mark     int64 // a lossless log may drop what lies below
	starts   []int64
	cur      *os.File
	end      int64
}

// openLog finds the end of what was written and removes what a crash left under
// temporary names.
func openLog(dir directory, opts Options) (*log, error) {
	l := &log{dir: dir, history: opts.History, lossless: opts.Lossless, segment: opts.segment}
	if l.history <= 0 {
		l.history = DefaultHistory
	}
	if l.segment == 0 {
		l.segment = min(max(l.history/16, minSegment), maxSegment)
	}
	if err := l.clear(); err != nil {
		return nil, err
	}
	var err error
	if l.starts, err = dir.segments(); err != nil {
		return nil, err
	}
	if len(l.starts) == 0 {
		return l, nil // the first byte makes the first segment
	}
	l.mark = l.starts[0]
	last := l.starts[len(l.starts)-1]
	f, size, err := dir.openSegment(last, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	l.cur, l.end = f, last+size
	return l, nil
}

func (l *log) clear() error {
	names, err := l.dir.names()
	if err != nil {
		return fmt.Errorf("cannot list the output directory: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		if err := l.dir.remove(name); err != nil {
			return fmt.Errorf("cannot remove %s: %w", name, err)
		}
	}
	return nil
}

// tail is the oldest offset kept.
func (l *log) tail() int64 {
	if len(l.starts) == 0 {
		return l.end
	}
	return l.starts[0]
}

// room gives the file to write to, the position in it, and how many bytes may be
// written there before the next call.
func (l *log) room() (f *os.File, at, n int64, err error) {
	left := int64(0)
	if l.cur != nil {
		left = l.starts[len(l.starts)-1] + l.segment - l.end
	}
	if l.lossless {
		free := l.mark + l.history - l.end
		if free <= 0 {
			return nil, 0, 0, ErrFull
		}
		left = min(left, free)
	}
	if left <= 0 {
		if err := l.next(); err != nil {
			return nil, 0, 0, err
		}
		return l.room()
	}
	return l.cur, l.end - l.starts[len(l.starts)-1] + headBytes, left, nil
}

// next begins a segment. What is beyond the history goes first: on a full disk
// that makes the room.
func (l *log) next() error {
	if err := l.drop(); err != nil {
		return err
	}
	f, err := l.dir.create(segmentName(l.end), encodeHead(l.end))
	if err != nil {
		return fmt.Errorf("cannot begin an output segment: %w", err)
	}
	if l.cur != nil {
		l.cur.Close()
	}
	l.cur = f
	l.starts = append(l.starts, l.end)
	return nil
}

// drop removes the oldest segments, oldest first, so that a crash leaves no hole.
// The newest always stays, as does at least the history's length.
func (l *log) drop() error {
	limit := l.end - l.history
	if l.lossless {
		limit = l.mark
	}
	for len(l.starts) > 1 && l.starts[1] <= limit {
		if err := l.dir.remove(segmentName(l.starts[0])); err != nil {
			return fmt.Errorf("cannot drop the oldest output: %w", err)
		}
		l.starts = l.starts[1:]
	}
	return nil
}

// trim moves the mark of a lossless log.
func (l *log) trim(to int64) error {
	l.mark = max(l.mark, min(to, l.end))
	return l.drop()
}

// setState stores a state in the head of the segment that begins at start. A
// crash in the middle leaves no state there: the checksum tells.
func setState(dir directory, start int64, state []byte) error {
	if len(state) == 0 || len(state) > MaxState {
		return fmt.Errorf("cannot store a state of %d bytes: want 1 to %d", len(state), MaxState)
	}
	f, _, err := dir.openSegment(start, unix.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(encodeState(state), stateAt); err != nil {
		return fmt.Errorf("cannot store a segment's state: %w", err)
	}
	return nil
}

// syncFrom makes everything from offset from on durable, names included. It works
// on descriptors of its own, so that a slow disk holds up its caller and not the
// capture.
func syncFrom(dir directory, from int64) error {
	starts, err := dir.segments()
	if err != nil {
		return err
	}
	first, found := slices.BinarySearch(starts, from)
	if !found && first > 0 {
		first--
	}
	names := []string{indexName}
	for _, start := range starts[first:] {
		names = append(names, segmentName(start))
	}
	for _, name := range names {
		if err := syncFile(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot make the output durable: %w", err)
		}
	}
	if err := unix.Fsync(int(dir.f.Fd())); err != nil {
		return fmt.Errorf("cannot make the output directory durable: %w", err)
	}
	return nil
}

func syncFile(dir directory, name string) error {
	f, err := dir.open(name, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fdatasync(int(f.Fd()))
}
