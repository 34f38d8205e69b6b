package output

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

const (
	indexName   = "index"
	recordBytes = 24
	// compactAfter is how many bytes of records below the log's tail are left
	// lying before the index is written anew.
	compactAfter = 64 << 10
)

// Record says that the output from Offset on came at Time or later and was
// written to a terminal of this Size. Offsets and times do not decrease.
type Record struct {
	Offset int64
	Time   time.Time
	Size   ptmx.Size
}

func encodeRecord(r Record) []byte {
	b := make([]byte, recordBytes)
	binary.BigEndian.PutUint64(b, uint64(r.Offset))
	binary.BigEndian.PutUint64(b[8:], uint64(r.Time.UnixNano()))
	binary.BigEndian.PutUint16(b[16:], r.Size.Cols)
	binary.BigEndian.PutUint16(b[18:], r.Size.Rows)
	binary.BigEndian.PutUint32(b[20:], castagnoli(b[:20]))
	return b
}

func decodeRecord(b []byte) (Record, bool) {
	if len(b) < recordBytes || castagnoli(b[:20]) != binary.BigEndian.Uint32(b[20:]) {
		return Record{}, false
	}
	r := Record{
		Offset: int64(binary.BigEndian.Uint64(b)),
		Time:   time.Unix(0, int64(binary.BigEndian.Uint64(b[8:]))),
		Size:   ptmx.Size{Cols: binary.BigEndian.Uint16(b[16:]), Rows: binary.BigEndian.Uint16(b[18:])},
	}
	return r, r.Offset >= 0
}

// ReadIndex reads the records that lie beside the log in dir, up to the first
// damaged one. A log without an index has no records.
func ReadIndex(dir *os.File) ([]Record, error) {
	f, err := openAt(dir, indexName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the output index: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read the output index: %w", err)
	}
	return decodeIndex(b), nil
}

func decodeIndex(b []byte) []Record {
	records := make([]Record, 0, len(b)/recordBytes)
	for ; len(b) >= recordBytes; b = b[recordBytes:] {
		r, ok := decodeRecord(b)
		if !ok {
			break
		}
		records = append(records, r)
	}
	return records
}

// index is the capturer's side. Its failures never hold up the bytes: a record
// that could not be written is overwritten by the next one.
type index struct {
	dir  directory
	f    *os.File
	end  int64
	last Record
}

// openIndex cuts what a crash left unfinished at the end, and what speaks of
// output after end that a crash took away.
func openIndex(dir directory, end int64) (*index, error) {
	f, err := dir.open(indexName, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, fmt.Errorf("cannot open the output index: %w", err)
	}
	x := &index{dir: dir, f: f}
	st, err := f.Stat()
	if err == nil {
		for x.end = st.Size() / recordBytes * recordBytes; x.end > 0; x.end -= recordBytes {
			var ok bool
			if x.last, ok = x.at(x.end/recordBytes - 1); ok && x.last.Offset <= end {
				break
			}
		}
		if x.end == 0 {
			x.last = Record{}
		}
		if x.end != st.Size() {
			err = f.Truncate(x.end)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot repair the output index: %w", err)
	}
	return x, nil
}

func (x *index) at(i int64) (Record, bool) {
	var b [recordBytes]byte
	if _, err := x.f.ReadAt(b[:], i*recordBytes); err != nil {
		return Record{}, false
	}
	return decodeRecord(b[:])
}

func (x *index) append(r Record) error {
	if _, err := x.f.WriteAt(encodeRecord(r), x.end); err != nil {
		return fmt.Errorf("cannot write the output index: %w", err)
	}
	x.end += recordBytes
	x.last = r
	return nil
}

// drop forgets the records below tail once they are many: one with the size and
// time in force at tail replaces them.
func (x *index) drop(tail int64) error {
	n := sort.Search(int(x.end/recordBytes), func(i int) bool {
		r, ok := x.at(int64(i))
		return ok && r.Offset >= tail
	})
	below := int64(n) * recordBytes
	if below < compactAfter || below < x.end/2 {
		return nil
	}
	first, ok := x.at(int64(n) - 1)
	if !ok {
		return errors.New("cannot compact the output index: a record is damaged")
	}
	first.Offset = tail
	rest := make([]byte, x.end-below)
	if _, err := x.f.ReadAt(rest, below); err != nil {
		return fmt.Errorf("cannot compact the output index: %w", err)
	}
	content := append(encodeRecord(first), rest...)
	f, err := x.dir.create(indexName, content)
	if err != nil {
		return fmt.Errorf("cannot compact the output index: %w", err)
	}
	x.f.Close()
	x.f, x.end = f, int64(len(content))
	return nil
}
