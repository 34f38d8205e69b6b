package receipts

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// samples has a record of each kind.
func samples(t testing.TB) []Record {
	t.Helper()
	b := NewBook()
	id := protocol.MutationID{0: 1, 15: 2}
	admit, err := b.Admit(id, "term", Fingerprint{0: 3}, time.Unix(1, 7))
	if err != nil {
		t.Fatal(err)
	}
	complete, err := b.Complete(id, "ok", []byte("answer"), time.Unix(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	settled := b.Records()[0]
	b.Shrink(0)
	return []Record{admit, complete, settled, b.Records()[0]}
}

func TestRecordsKeepTheirBytes(t *testing.T) {
	const (
		id = "025001000000000000000000000000000002"
		op = "03647465726d"
		fp = "0458200300000000000000000000000000000000000000000000000000000000000000"
	)
	want := []string{
		"a5" + "0101" + id + op + fp + "051a3b9aca07",
		"a5" + "0102" + id + "061a77359400" + "07626f6b" + "0846616e73776572",
		"a8" + "0103" + id + op + fp + "051a3b9aca07" + "061a77359400" + "07626f6b" + "0846616e73776572",
		"a7" + "0103" + id + op + fp + "07626f6b" + "0846616e73776572" + "09f5",
	}
	for i, r := range samples(t) {
		data, err := r.Encode()
		if err != nil || hex.EncodeToString(data) != want[i] {
			t.Errorf("%s: %x, %v", r.Kind, data, err)
		}
		back, err := DecodeRecord(data)
		if diff := cmp.Diff(r, back); err != nil || diff != "" {
			t.Errorf("%s: %v %s", r.Kind, err, diff)
		}
	}
}

func TestOnlyTheOneFormIsDecoded(t *testing.T) {
	const (
		id   = "025001000000000000000000000000000002"
		done = "061a77359400"
		good = "a3" + "0102" + id + done
	)
	for name, text := range map[string]string{
		"nothing":            "",
		"trailing byte":      good + "00",
		"duplicate key":      "a4" + "0102" + id + done + done,
		"indefinite map":     "bf" + "0102" + id + done + "ff",
		"indefinite bytes":   "a3" + "0102" + "025f5001000000000000000000000000000002ff" + done,
		"out of order":       "a3" + id + "0102" + done,
		"long integer":       "a3" + "011802" + id + done,
		"written-out zero":   "a4" + "0102" + id + done + "0760",
		"unknown key":        "a4" + "0102" + id + done + "0a01",
		"text key":           "a4" + "0102" + id + done + "616101",
		"array":              "83" + "02" + id[2:] + "1a77359400",
		"tagged":             "c1" + good,
		"short id":           "a3" + "0102" + "024101" + done,
		"nil id":             "a3" + "0102" + "025000000000000000000000000000000000" + done,
		"id as text":         "a3" + "0102" + "027030303030303030303030303030303030" + done,
		"no kind":            "a2" + id + done,
		"unknown kind":       "a3" + "0104" + id + done,
		"admit with outcome": "a3" + "0101" + id + done,
		"settled without op": "a3" + "0103" + id + done,
		"shrunk with time":   "a4" + "0102" + id + done + "09f5",
		"op not UTF-8":       "a4" + "0102" + id + done + "0761ff",
		"float time":         "a3" + "0102" + id + "06fa3f800000",
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(name, err)
		}
		if r, err := DecodeRecord(data); err == nil {
			t.Errorf("%s: decoded as %+v", name, r)
		}
	}
	data, _ := hex.DecodeString(good)
	if _, err := DecodeRecord(data); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range samples(f) {
		data, err := r.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x became %x, %v", data, again, err)
		}
		b := NewBook()
		if err := b.Apply(r); (err == nil) != (r.Kind != KindComplete) {
			t.Fatal(err)
		}
	})
}

// shelf is a book with the records that were committed from it.
type shelf struct {
	book *Book
	log  [][]byte
	now  time.Time
}

// step commits what was staged, or undoes it in a random order as after a
// failed commit, when the book must be as before.
func (s *shelf) step(r *rapid.T, stage func() []Record) {
	before := s.book.List()
	staged := stage()
	if rapid.IntRange(0, 3).Draw(r, "fails") == 0 {
		for _, record := range rapid.Permutation(staged).Draw(r, "undone") {
			s.book.Undo(record)
		}
		same(r, before, s.book.List())
		return
	}
	s.commit(r, staged)
}

func same(r *rapid.T, want, got []Receipt) {
	if !slices.EqualFunc(want, got, Receipt.equal) {
		r.Fatal(cmp.Diff(want, got))
	}
}

func (s *shelf) commit(r *rapid.T, records []Record) {
	for _, record := range records {
		data, err := record.Encode()
		if err != nil {
			r.Fatal(err)
		}
		s.log = append(s.log, data)
	}
}

func (s *shelf) replayed(r *rapid.T) *Book {
	b := NewBook()
	for _, data := range s.log {
		record, err := DecodeRecord(data)
		if err != nil {
			r.Fatal(err)
		}
		if err := b.Apply(record); err != nil {
			r.Fatal(err)
		}
	}
	return b
}

func TestAReplayedBookIsTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := &shelf{book: NewBook(), now: noon()}
		ops := rapid.SampledFrom([]string{"start", "term", "sweep", "signal", "retire", "spawn"})
		code := rapid.SampledFrom([]string{"", "ok", "not_delivered"})
		admit := func(r *rapid.T) (Record, bool) {
			id := protocol.MutationID{rapid.Uint8Range(1, 30).Draw(r, "id")}
			op, fp := ops.Draw(r, "op"), Fingerprint{rapid.Uint8Range(1, 2).Draw(r, "content")}
			known, ok := s.book.Get(id)
			verdict, _ := s.book.Check(id, op, fp)
			record, err := s.book.Admit(id, op, fp, s.now)
			want := Fresh
			switch {
			case ok && (known.Op != op || known.Fingerprint != fp):
				want = Conflict
			case ok && known.Done:
				want = Replay
			case ok:
				want = Pending
			}
			if verdict != want || (err == nil) != (want == Fresh) {
				r.Fatalf("%s, want %s; %v", verdict, want, err)
			}
			return record, err == nil
		}
		complete := func(r *rapid.T, id protocol.MutationID) Record {
			length := rapid.SampledFrom([]int{0, 1, shortResponse, shortResponse + 1}).Draw(r, "length")
			response := rapid.SliceOfN(rapid.Byte(), length, length).Draw(r, "response")
			record, err := s.book.Complete(id, code.Draw(r, "code"), response, s.now)
			if err != nil {
				r.Fatal(err)
			}
			return record
		}
		r.Repeat(map[string]func(*rapid.T){
			"": func(r *rapid.T) {
				same(r, s.book.List(), s.replayed(r).List())
				pending := slices.DeleteFunc(s.book.List(), func(r Receipt) bool { return r.Done })
				if !slices.EqualFunc(pending, s.book.Pending(), Receipt.equal) {
					r.Fatal("pending receipts are not those of the list")
				}
			},
			"admit": func(r *rapid.T) {
				s.step(r, func() []Record {
					if record, ok := admit(r); ok {
						return []Record{record}
					}
					return nil
				})
			},
			"complete": func(r *rapid.T) {
				pending := s.book.Pending()
				if len(pending) == 0 {
					r.Skip("nothing pending")
				}
				id := rapid.SampledFrom(pending).Draw(r, "which").ID
				s.step(r, func() []Record { return []Record{complete(r, id)} })
			},
			"both at once": func(r *rapid.T) {
				s.step(r, func() []Record {
					record, ok := admit(r)
					if !ok {
						return nil
					}
					return []Record{record, complete(r, record.ID)}
				})
			},
			"time": func(r *rapid.T) { s.now = s.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(r, "hours")) * time.Hour) },
			"compact": func(r *rapid.T) {
				s.book.Shrink(rapid.IntRange(0, 5).Draw(r, "keep"))
				s.log = nil
				s.commit(r, s.book.Records())
			},
			"restart": func(r *rapid.T) { s.book = s.replayed(r) },
		})
	})
}
