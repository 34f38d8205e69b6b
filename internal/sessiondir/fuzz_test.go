package sessiondir

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

func sampleEntry(t testing.TB) Entry {
	t.Helper()
	code := 7
	record, err := receipts.NewBook().Admit(protocol.MutationID{1}, "start", receipts.Fingerprint{2}, time.Unix(3, 4))
	must(t, err)
	return Entry{Receipt: &record, Life: &lifecycle.Durable{
		Version: 1, Session: "s", State: lifecycle.Ended, Revision: 3, ExitCode: &code,
		Record: &lifecycle.Record{Result: lifecycle.ResultExited, ExitCode: &code, Drain: lifecycle.DrainEOF},
	}}
}

func TestEntryComesBackAsItWas(t *testing.T) {
	whole := sampleEntry(t)
	for _, e := range []Entry{whole, {Life: whole.Life}, {Receipt: whole.Receipt}} {
		data, err := EncodeEntry(e)
		must(t, err)
		got, err := DecodeEntry(data)
		must(t, err)
		if diff := cmp.Diff(e, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := EncodeEntry(Entry{}); err == nil {
		t.Error("an empty record was encoded")
	}
}

func FuzzDecodeEntry(f *testing.F) {
	whole := sampleEntry(f)
	for _, e := range []Entry{whole, {Life: whole.Life}, {Receipt: whole.Receipt}} {
		data, err := EncodeEntry(e)
		must(f, err)
		f.Add(data)
	}
	f.Add([]byte{0xa0})
	f.Add([]byte{0xa1, 0x64, 'l', 'i', 'f', 'e', 0xf6})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			return
		}
		again, err := EncodeEntry(e)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		if _, err := DecodeEntry(again); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeBootstrap(f *testing.F) {
	b := newBootstrap(protocol.NewSessionID(protocol.MutationID{1}), CreateOptions{Name: "n", Size: &protocol.Size{Cols: 1, Rows: 2}})
	data, err := protocol.Marshal(b)
	must(f, err)
	f.Add(data)
	f.Add(data[:20])
	f.Add([]byte{0xa1, 0x66, 'f', 'o', 'r', 'm', 'a', 't', 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBootstrap(data)
		if err != nil {
			return
		}
		if len(b.Secret) != 32 || len(b.ExecutionToken) != 32 || len(b.RefereeKey) != 32 || b.Format != BootstrapFormat {
			t.Errorf("taken: %+v", b)
		}
		again, err := protocol.Marshal(b)
		must(t, err)
		if len(again) > len(data) {
			t.Errorf("%d bytes became %d", len(data), len(again))
		}
	})
}

func FuzzParseNote(f *testing.F) {
	f.Add("12 34 boot 00000000")
	f.Add(string(bytes.Repeat([]byte{' '}, noteSize)))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if n := parseNote(text); n != (note{}) && n.id.Boot == "" {
			t.Error("no boot id")
		}
	})
}
