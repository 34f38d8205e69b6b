package output

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// putSegment writes a segment as a capture would have.
func putSegment(t *testing.T, g *rig, start int64, content string) string {
	t.Helper()
	path := filepath.Join(g.path, segmentName(start))
	if err := os.WriteFile(path, append(encodeHead(start), content...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReaderReportsHolesAndTheBeginning(t *testing.T) {
	g := newRig(t)
	putSegment(t, g, 100, "abc")
	putSegment(t, g, 103, "defg")
	putSegment(t, g, 200, "xyz")
	r := g.reader(t)
	if tail, end, err := r.Bounds(); tail != 100 || end != 203 || err != nil {
		t.Errorf("bounds %d, %d, %v", tail, end, err)
	}
	for _, v := range []struct {
		off      int64
		want     string
		from, to int64
	}{
		{off: 0, from: 0, to: 100},
		{off: 100, want: "abcdefg"},
		{off: 104, want: "efg"},
		{off: 107, from: 107, to: 200},
		{off: 150, from: 150, to: 200},
		{off: 201, want: "yz"},
	} {
		p := make([]byte, 50)
		n, err := r.ReadAt(p, v.off)
		if string(p[:n]) != v.want {
			t.Errorf("at %d: read %q, want %q", v.off, p[:n], v.want)
		}
		var gap *GapError
		if v.want == "" && (!errors.As(err, &gap) || *gap != GapError{From: v.from, To: v.to}) {
			t.Errorf("at %d: error %v", v.off, err)
		}
	}
	for _, off := range []int64{203, 204, math.MaxInt64} {
		if n, err := r.ReadAt(make([]byte, 1), off); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("at %d: read %d, %v", off, n, err)
		}
	}
	if _, err := r.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("a negative offset is accepted")
	}
}

func TestWhatAPowerLossTearsIsPassedOver(t *testing.T) {
	for name, tear := range map[string]func(path string) error{
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"short": func(path string) error { return os.Truncate(path, 20) },
		"zeros": func(path string) error { return os.WriteFile(path, make([]byte, 5000), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			putSegment(t, g, 0, "abc")
			middle, last := putSegment(t, g, 3, "def"), putSegment(t, g, 6, "ghi")
			r := g.reader(t)
			if err := tear(last); err != nil {
				t.Fatal(err)
			}
			if tail, end, err := r.Bounds(); tail != 0 || end != 6 || err != nil {
				t.Errorf("bounds %d to %d, %v", tail, end, err)
			}
			if got := read(t, r, 0, 100); got != "abcdef" {
				t.Errorf("read %q", got)
			}
			if n, err := r.ReadAt(make([]byte, 1), 6); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("at its end: %d, %v", n, err)
			}
			putSegment(t, g, 6, "ghi")
			if err := tear(middle); err != nil {
				t.Fatal(err)
			}
			var gap *GapError
			if _, err := g.reader(t).ReadAt(make([]byte, 1), 3); !errors.As(err, &gap) || *gap != (GapError{From: 3, To: 6}) {
				t.Errorf("in the middle: %v", err)
			}
			if err := tear(putSegment(t, g, 6, "ghi")); err != nil {
				t.Fatal(err)
			}
			if c, err := NewCapture(g.dir, g.master, g.pipeR, g.pipeW, Options{}); err == nil {
				c.Stop()
				t.Error("capturing went on after it")
			}
		})
	}
}

func TestDamagedAndForeignFilesAreNotRead(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"other version": func(path string) error { return overwrite(path, 11, 9) },
		"other name":    func(path string) error { return os.WriteFile(path, encodeHead(1), 0o600) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"fifo": func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			if err := spoil(putSegment(t, g, 0, "abc")); err != nil {
				t.Fatal(err)
			}
			if n, err := g.reader(t).ReadAt(make([]byte, 3), 0); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("read %d, %v", n, err)
			}
			if c, err := NewCapture(g.dir, g.master, g.pipeR, g.pipeW, Options{}); err == nil {
				c.Stop()
				t.Error("capturing went on after it")
			}
		})
	}
}

func overwrite(path string, at int64, b byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{b}, at)
	return errors.Join(err, f.Close())
}

func TestStatesAreFoundAgain(t *testing.T) {
	g := newRig(t)
	c, stop := g.capture(t, Options{History: 1 << 20, segment: 100})
	write(t, g, strings.Repeat("x", 350))
	g.drained(t, c)
	r := g.reader(t)
	expect := func(off, start int64, want string) {
		t.Helper()
		at, state, err := r.State(off)
		if err != nil || at != start || string(state) != want {
			t.Errorf("for %d: %q at %d, %v, want %q at %d", off, state, at, err, want, start)
		}
	}
	expect(350, 0, "")
	for _, start := range []int64{100, 300} {
		if err := c.SetState(start, bytes.Repeat([]byte{byte(start)}, MaxState)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetState(100, []byte("new")); err != nil {
		t.Fatal(err)
	}
	expect(299, 100, "new")
	expect(350, 300, strings.Repeat(string([]byte{300 & 0xff}), MaxState))
	// A kill in the middle of a write leaves a wrong checksum.
	if err := overwrite(filepath.Join(g.path, segmentName(300)), stateAt+9, 'x'); err != nil {
		t.Fatal(err)
	}
	expect(350, 100, "new")
	expect(99, 0, "")
	if err := c.SetState(5000, []byte("of a dropped segment")); err != nil {
		t.Error(err)
	}
	for _, n := range []int{0, MaxState + 1} {
		if err := c.SetState(100, make([]byte, n)); err == nil {
			t.Errorf("a state of %d bytes was taken", n)
		}
	}
	stop()
	if got := read(t, r, 0, 1000); got != strings.Repeat("x", 350) {
		t.Error("the states have changed the output")
	}
}

func TestIndexRecordsSizesAtTheirOffsets(t *testing.T) {
	g := newRig(t)
	c, stop := g.capture(t, Options{})
	note := func(cols, rows uint16) {
		t.Helper()
		c.NoteSize(ptmx.Size{Cols: cols, Rows: rows})
		if _, err := c.Flush(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	note(80, 24)
	note(80, 24)
	write(t, g, "seven..")
	g.drained(t, c)
	note(0, 0)
	stop()
	next, _ := g.capture(t, Options{})
	next.NoteSize(ptmx.Size{Cols: 10, Rows: 5})
	if _, err := next.Flush(bounded(t)); err != nil {
		t.Fatal(err)
	}
	records, err := ReadIndex(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []Record
	for _, r := range records {
		if len(sizes) == 0 || sizes[len(sizes)-1].Size != r.Size {
			sizes = append(sizes, r)
		}
		if age := time.Since(r.Time); age < 0 || age > time.Hour {
			t.Errorf("record %v has an odd time", r)
		}
	}
	want := []Record{
		{Offset: 0, Size: ptmx.Size{Cols: 80, Rows: 24}},
		{Offset: 7},
		{Offset: 7, Size: ptmx.Size{Cols: 10, Rows: 5}},
	}
	if len(sizes) != len(want) {
		t.Fatalf("got %v", records)
	}
	for i := range want {
		if sizes[i].Offset != want[i].Offset || sizes[i].Size != want[i].Size {
			t.Errorf("record %d is %v, want %v", i, sizes[i], want[i])
		}
	}
}

func TestIndexCutsItsTornTailAndWhatIsBeyondTheLog(t *testing.T) {
	g := newRig(t)
	at := time.Unix(1, 0)
	var content []byte
	for off := range int64(5) {
		content = append(content, encodeRecord(Record{Offset: off * 10, Time: at})...)
	}
	content = append(content, make([]byte, recordBytes)...)
	content = append(content, "torn"...)
	if err := os.WriteFile(filepath.Join(g.path, indexName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDirectory(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.f.Close()
	x, err := openIndex(d, 35)
	if err != nil {
		t.Fatal(err)
	}
	defer x.f.Close()
	if err := x.append(Record{Offset: 35, Time: at}); err != nil {
		t.Fatal(err)
	}
	records, err := ReadIndex(g.dir)
	if err != nil || len(records) != 5 || records[3].Offset != 30 || records[4].Offset != 35 {
		t.Errorf("got %v, %v", records, err)
	}
}

func TestIndexIsCompactedWhenTheLogIsDropped(t *testing.T) {
	g := newRig(t)
	d, err := openDirectory(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.f.Close()
	x, err := openIndex(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { x.f.Close() }()
	for i := range int64(5000) {
		r := Record{Offset: i * 10, Time: time.Unix(i, 0), Size: ptmx.Size{Cols: uint16(i)}}
		if err := x.append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.drop(100); err != nil {
		t.Fatal(err)
	}
	if n := x.end / recordBytes; n != 5000 {
		t.Errorf("%d records after a small drop", n)
	}
	if err := x.drop(45_005); err != nil {
		t.Fatal(err)
	}
	if err := x.append(Record{Offset: 50_000, Time: time.Unix(6000, 0)}); err != nil {
		t.Fatal(err)
	}
	records, err := ReadIndex(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	first, last := records[0], records[len(records)-1]
	if len(records) != 501 || first.Offset != 45_005 || first.Size.Cols != 4500 || records[1].Offset != 45_010 || last.Offset != 50_000 {
		t.Errorf("%d records, first %v, %v, last %v", len(records), first, records[1], last)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add(append(encodeRecord(Record{Offset: 7, Time: time.Unix(1, 2), Size: ptmx.Size{Cols: 80, Rows: 24}}), "torn"...))
	f.Add(make([]byte, 3*recordBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, r := range decodeIndex(b) {
			if !bytes.Equal(encodeRecord(r), b[i*recordBytes:(i+1)*recordBytes]) {
				t.Errorf("record %d changes when written again", i)
			}
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(encodeState([]byte("state")))
	f.Add(make([]byte, headBytes-stateAt))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if state, ok := decodeState(b); ok && !bytes.HasPrefix(b, encodeState(state)) {
			t.Error("the state changes when written again")
		}
	})
}

func FuzzCheckHead(f *testing.F) {
	f.Add(encodeHead(5)[:headFixed], int64(5))
	f.Add([]byte(headMagic), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, start int64) {
		if checkHead(b, start) == nil && !bytes.Equal(b[16:headFixed], encodeHead(start)[16:headFixed]) && b[12]|b[13]|b[14]|b[15] == 0 {
			t.Error("a head that is not ours is accepted")
		}
	})
}

func FuzzParseName(f *testing.F) {
	f.Add(segmentName(255))
	f.Add("ffffffffffffffff.seg")
	f.Add("+00000000000000f.seg")
	f.Fuzz(func(t *testing.T, name string) {
		if start, ok := parseName(name); ok && segmentName(start) != name {
			t.Errorf("%q is taken for the segment at %d", name, start)
		}
	})
}
