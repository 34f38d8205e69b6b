package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var testID = fileID{1, 2, 3, 4, 5, 6, 7, 8}

// image lays out a journal; bounds are the offsets where commits begin and the
// end of the last.
func image(t testing.TB, commits ...[][]byte) (data []byte, bounds []int64) {
	t.Helper()
	data = appendFileHeader(nil, testID, fileHeaderSize)
	for _, records := range commits {
		bounds = append(bounds, int64(len(data)))
		var err error
		if data, err = appendCommit(data, testID, int64(len(data)), records); err != nil {
			t.Fatal(err)
		}
	}
	return data, append(bounds, int64(len(data)))
}

// shape is drawn instead of the bytes, which would flood the log of a failure.
type shape struct {
	Size int
	Fill byte
}

func (s shape) record() []byte { return bytes.Repeat([]byte{s.Fill}, s.Size) }

func genShapes() *rapid.Generator[[]shape] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) shape {
		size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(4000, 9000)) // the latter cross pages
		return shape{size.Draw(t, "size"), rapid.Byte().Draw(t, "fill")}
	}), 1, 5)
}

func drawRecords(t *rapid.T) (records [][]byte) {
	for _, s := range genShapes().Draw(t, "records") {
		records = append(records, s.record())
	}
	return records
}

func drawCommits(t *rapid.T, least int) (commits [][][]byte) {
	for range rapid.IntRange(least, 6).Draw(t, "commits") {
		commits = append(commits, drawRecords(t))
	}
	return commits
}

// differ says where got is not want, in a few words.
func differ(want, got [][]byte) string {
	for i := range min(len(want), len(got)) {
		if !bytes.Equal(want[i], got[i]) {
			return fmt.Sprintf("record %d is %d bytes %.20q, want %d bytes %.20q", i, len(got[i]), got[i], len(want[i]), want[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d records, want %d", len(got), len(want))
	}
	return ""
}

func wantCorrupt(t interface {
	Helper()
	Fatalf(string, ...any)
}, err error,
) *CorruptError {
	t.Helper()
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		t.Fatalf("got %v, want a CorruptError", err)
	}
	return corrupt
}

func TestScanReturnsWhatWasAppended(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		commits := drawCommits(r, 0)
		data, bounds := image(t, commits...)
		end := int64(len(data))
		data = append(data, make([]byte, rapid.IntRange(0, 10_000).Draw(r, "zeros"))...)
		c, err := scan(data)
		if err != nil {
			r.Fatal(err)
		}
		if diff := differ(slices.Concat(commits...), c.records); diff != "" {
			r.Fatal(diff)
		}
		if c.end != end || c.dirty != end || len(commits) > 0 && c.last != bounds[len(commits)-1] {
			r.Fatalf("end %d, dirty %d, last %d of %v", c.end, c.dirty, c.last, bounds)
		}
	})
}

// The power fails during the last append: any of its bytes may be missing, the
// file may be shorter, other bytes may be there instead.
func TestAnyDamageToTheCommitUnderWayLeavesTheOnesBefore(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		commits := drawCommits(r, 1)
		data, bounds := image(t, commits...)
		whole := slices.Clone(data)
		last := bounds[len(commits)-1]
		switch rapid.SampledFrom([]string{"cut", "zeros", "flip", "stale"}).Draw(r, "damage") {
		case "cut":
			data = data[:rapid.Int64Range(last, int64(len(data))).Draw(r, "at")]
		case "zeros": // any sectors of it
			for off := last; off < int64(len(data)); off += 512 {
				if rapid.Bool().Draw(r, "lost") {
					clear(data[off:min(off+512, int64(len(data)))])
				}
			}
		case "flip":
			at := rapid.Int64Range(last, int64(len(data))-1).Draw(r, "at")
			data[at] ^= 1 << rapid.IntRange(0, 7).Draw(r, "bit")
		case "stale": // blocks of another journal, of the same layout
			other := appendFileHeader(nil, fileID{9}, fileHeaderSize)
			for _, records := range commits {
				other, _ = appendCommit(other, fileID{9}, int64(len(other)), records)
			}
			copy(data[last:], other[last:])
			data = append(data, other...)
			whole = nil
		}
		data = append(data, make([]byte, rapid.IntRange(0, 1000).Draw(r, "zeros behind"))...)
		want, end := commits[:len(commits)-1], last
		if bytes.Equal(bytes.TrimRight(data, "\x00"), bytes.TrimRight(whole, "\x00")) && len(data) >= len(whole) {
			want, end = commits, int64(len(whole)) // what was lost were zeros
		}
		c, err := scan(data)
		if err != nil {
			r.Fatal(err)
		}
		if diff := differ(slices.Concat(want...), c.records); diff != "" || c.end != end {
			r.Fatalf("end %d, want %d: %s", c.end, end, diff)
		}
		if tail := bytes.TrimRight(data[c.dirty:], "\x00"); len(tail) > 0 {
			r.Fatal("dirty bytes behind the dirty part")
		}
	})
}

func TestAnyDamageBeforeTheLastCommitIsRefused(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		commits := drawCommits(r, 2)
		data, bounds := image(t, commits...)
		last := bounds[len(commits)-1]
		at := rapid.Int64Range(0, last-1).Draw(r, "at")
		size := rapid.Int64Range(1, 9000).Draw(r, "size")
		damaged := data[at:min(at+size, last)]
		before := slices.Clone(damaged)
		if rapid.Bool().Draw(r, "zeros") {
			clear(damaged)
		} else {
			damaged[0] ^= 1 << rapid.IntRange(0, 7).Draw(r, "bit")
		}
		c, err := scan(data)
		if bytes.Equal(before, damaged) {
			return // zeros over zeros
		}
		for i := range damaged { // as much of it changes nothing
			if damaged[i] != before[i] {
				at += int64(i)
				break
			}
		}
		if corrupt := wantCorrupt(r, err); corrupt.Offset > at {
			r.Fatalf("damage at %d seen at %d", at, corrupt.Offset)
		}
		if all := slices.Concat(commits...); len(c.records) >= len(all) {
			r.Fatal("records from behind the damage")
		}
	})
}

func TestDamageThatNoCrashCanHaveDoneIsNamed(t *testing.T) {
	good, bounds := image(t, [][]byte{[]byte("one")}, [][]byte{[]byte("two")})
	withVersion := func(version uint32) []byte {
		data := slices.Clone(good)
		binary.BigEndian.PutUint32(data[len(magic):], version)
		return data
	}
	badBody := slices.Clone(good)
	body := badBody[bounds[1]:]
	body[commitHeadSize+recordHeadSize-1] = 200 // a record longer than its commit, all checksums right
	binary.BigEndian.PutUint32(body[4:], checksum(body[commitHeadSize:]))
	binary.BigEndian.PutUint32(body[8:], headChecksum(testID, bounds[1], body))
	tests := []struct {
		name   string
		data   []byte
		offset int64
		reason string
	}{
		{"empty", nil, 0, "shorter than a header"},
		{"half a header", good[:20], 0, "shorter than a header"},
		{"something else", bytes.Repeat([]byte("text"), 50), 0, "not a journal"},
		{"zeros", make([]byte, 100), 0, "not a journal"},
		{"newer", withVersion(2), 8, "unknown version 2"},
		{"header checksum", append(slices.Clone(good[:31]), good[31]^1), 0, "header damaged"},
		{"records", badBody, bounds[1], "records do not fill their commit"},
		{
			"too much", append(slices.Clone(good), bytes.Repeat([]byte{0xff}, maxCommit+commitHeadSize+1)...),
			bounds[2], "more than one commit damaged",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := scan(test.data)
			if diff := cmp.Diff(&CorruptError{test.offset, test.reason}, wantCorrupt(t, err)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestARecordThatLooksLikeACommitDoesNotHideATornOne(t *testing.T) {
	inner, bounds := image(t, [][]byte{[]byte("x")}, [][]byte{[]byte("y")})
	data, outer := image(t, [][]byte{[]byte("kept")}, [][]byte{inner[bounds[0]:], []byte("more")})
	c, err := scan(data[:len(data)-1])
	if err != nil || len(c.records) != 1 || c.end != outer[1] {
		t.Fatalf("%q, end %d, %v", c.records, c.end, err)
	}
}

func FuzzScan(f *testing.F) {
	empty, _ := image(f)
	good, bounds := image(f, [][]byte{[]byte("one"), []byte("two")}, [][]byte{[]byte("three")})
	f.Add([]byte(nil))
	f.Add(empty)
	f.Add(good)
	f.Add(append(slices.Clone(good), make([]byte, 50)...))
	f.Add(good[:bounds[1]+3])
	f.Add(append(slices.Clone(good), "garbage"...))
	flipped := slices.Clone(good)
	flipped[bounds[0]+2] ^= 4
	f.Add(flipped)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := scan(data)
		if err != nil {
			wantCorrupt(t, err)
			return
		}
		if c.last > c.end || c.end > c.dirty || c.dirty > int64(len(data)) || c.last < fileHeaderSize {
			t.Fatalf("last %d, end %d, dirty %d of %d", c.last, c.end, c.dirty, len(data))
		}
		cut, err := scan(data[:c.end])
		if err != nil || fmt.Sprint(cut.records) != fmt.Sprint(c.records) || cut.end != c.end {
			t.Fatalf("the good part alone: %v", err)
		}
		// A further commit is found behind the cut tail.
		next, err := appendCommit(slices.Clone(data[:c.end]), c.id, c.end, [][]byte{[]byte("next")})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := scan(next); err != nil || len(again.records) != len(c.records)+1 {
			t.Fatalf("with one more: %v", err)
		}
	})
}
