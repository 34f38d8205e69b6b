package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fingerprint(t testing.TB, op string, fields any) Fingerprint {
	t.Helper()
	fp, err := NewFingerprint(op, 1, fields)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

func noon() time.Time { return time.Date(2030, 1, 2, 12, 0, 0, 5, time.UTC) }

func TestIDsAreParsedInTheirOneForm(t *testing.T) {
	const text = "0190f3c2-7a5b-7cde-8f01-23456789abcd"
	for _, s := range []string{text, strings.ToUpper(text)} {
		id, err := protocol.ParseMutationID(s)
		if err != nil || id.String() != text {
			t.Errorf("%s: %s, %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", "00000000-0000-0000-0000-000000000000", text[:35], text + "0", "{" + text[1:], strings.ReplaceAll(text, "-", ""),
		strings.Replace(text, "a", "g", 1), "-190f3c2-7a5b-7cde-8f01-23456789abcd", strings.Replace(text, "-", "_", 1),
		"0190f3c2-7a5b-7cde-8f01-23456789abé", "\x00190f3c2-7a5b-7cde-8f01-23456789abcd",
	} {
		if id, err := protocol.ParseMutationID(s); err == nil {
			t.Errorf("%q taken as %s", s, id)
		}
	}
}

func TestNewIDsAreVersion7AndDiffer(t *testing.T) {
	seen := make(map[protocol.MutationID]bool)
	before := fmt.Sprintf("%012x", time.Now().UnixMilli())
	for range 1000 {
		id := protocol.NewMutationID(time.Now())
		s := id.String()
		back, err := protocol.ParseMutationID(s)
		if err != nil || back != id || seen[id] || s[14] != '7' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Fatalf("%s, %v", s, err)
		}
		if stamp := s[:8] + s[9:13]; stamp < before {
			t.Fatalf("%s is older than %s", stamp, before)
		}
		seen[id] = true
	}
}

func TestFingerprintsDependOnContentOnly(t *testing.T) {
	type fields struct {
		Program []byte `cbor:"program"`
		Cwd     []byte `cbor:"cwd,omitempty"`
		Rows    int    `cbor:"rows,omitempty"`
	}
	base := fingerprint(t, "start", fields{Program: []byte("sh")})
	same := fingerprint(t, "start", map[string]any{"program": []byte("sh")})
	if base != same {
		t.Error("the order or the Go type of fields matters")
	}
	if got := fmt.Sprintf("%x", base[:4]); got != "642ca21c" { // stored on disks: may never change
		t.Errorf("fingerprint is %s", got)
	}
	v2, err := NewFingerprint("start", 2, fields{Program: []byte("sh")})
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Fingerprint{
		"op":      fingerprint(t, "stars", fields{Program: []byte("sh")}),
		"version": v2,
		"field":   fingerprint(t, "start", fields{Program: []byte("sh"), Rows: 1}),
		"value":   fingerprint(t, "start", fields{Program: []byte("sj")}),
	} {
		if other == base {
			t.Errorf("%s does not matter", name)
		}
	}
	if _, err := NewFingerprint("start", 1, make(chan int)); err == nil {
		t.Error("made a fingerprint of a channel")
	}
	if _, err := NewFingerprint("", 1, nil); err == nil {
		t.Error("made a fingerprint without an op")
	}
}

func TestAMutationGoesFromFreshToReplay(t *testing.T) {
	b := NewBook()
	id, fp, other := protocol.NewMutationID(time.Now()), fingerprint(t, "term", 1), fingerprint(t, "term", 2)
	check := func(op string, fp Fingerprint, want Verdict) *Receipt {
		t.Helper()
		verdict, receipt := b.Check(id, op, fp)
		if verdict != want || (receipt == nil) != (want == Fresh) {
			t.Fatalf("%s, want %s (%v)", verdict, want, receipt)
		}
		return receipt
	}
	check("term", fp, Fresh)
	if _, err := b.Admit(id, "term", fp, noon()); err != nil {
		t.Fatal(err)
	}
	check("term", fp, Pending)
	check("term", other, Conflict)
	check("sweep", fp, Conflict)
	response := []byte("answer")
	if _, err := b.Complete(id, "ok", response, noon().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	response[0] = 'X'
	want := Receipt{
		ID: id, Op: "term", Fingerprint: fp, AdmittedAt: noon(), CompletedAt: noon().Add(time.Second),
		Done: true, Code: "ok", Response: []byte("answer"),
	}
	if got := check("term", fp, Replay); !got.equal(want) {
		t.Fatalf("%+v", got)
	}
	if got, ok := b.Get(id); !ok || !got.equal(want) {
		t.Fatalf("%+v", got)
	}
	check("term", other, Conflict)
}

func TestStepsOutOfOrderAreRefused(t *testing.T) {
	b := NewBook()
	id, fp := protocol.NewMutationID(time.Now()), fingerprint(t, "start", 1)
	refused := func(name string, want, err error) {
		t.Helper()
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := b.Complete(id, "", nil, noon())
	refused("complete of the unknown", ErrNotPending, err)
	_, err = b.Admit(protocol.MutationID{}, "start", fp, noon())
	refused("nil id", ErrNoID, err)
	_, err = b.Admit(id, "", fp, noon())
	refused("no op", nil, err)
	_, err = b.Admit(id, "\xff", fp, noon())
	refused("op not UTF-8", nil, err)
	if len(b.List()) != 0 {
		t.Fatal("a refused admission left something")
	}
	if _, err = b.Admit(id, "start", fp, noon()); err != nil {
		t.Fatal(err)
	}
	_, err = b.Admit(id, "start", fp, noon())
	refused("second admission", ErrKnown, err)
	_, err = b.Complete(id, "", make([]byte, MaxResponse+1), noon())
	refused("long response", nil, err)
	if _, err = b.Complete(id, "", make([]byte, MaxResponse), noon()); err != nil {
		t.Fatal(err)
	}
	_, err = b.Complete(id, "", nil, noon())
	refused("second completion", ErrNotPending, err)
}

func TestImpossibleRecordsAreRefusedAndRepeatedOnesAreNot(t *testing.T) {
	source := NewBook()
	id := protocol.NewMutationID(time.Now())
	admit, err := source.Admit(id, "term", fingerprint(t, "term", 1), noon())
	if err != nil {
		t.Fatal(err)
	}
	complete, err := source.Complete(id, "ok", []byte("r"), noon())
	if err != nil {
		t.Fatal(err)
	}
	settled := source.Records()[0]
	differing := func(r Record, change func(*Record)) Record {
		change(&r)
		return r
	}
	b := NewBook()
	if err := b.Apply(complete); !errors.Is(err, ErrImpossible) {
		t.Fatalf("completed without admission: %v", err)
	}
	for _, r := range []Record{admit, admit, complete, complete, admit, settled} {
		if err := b.Apply(r); err != nil {
			t.Fatalf("%s: %v", r.Kind, err)
		}
	}
	if len(b.List()) != 1 || !b.List()[0].equal(source.List()[0]) {
		t.Fatal("the books differ")
	}
	for name, r := range map[string]Record{
		"other op":        differing(admit, func(r *Record) { r.Op = "sweep" }),
		"other time":      differing(admit, func(r *Record) { r.AdmittedAt = noon().Add(1) }),
		"other code":      differing(complete, func(r *Record) { r.Code = "no" }),
		"other response":  differing(complete, func(r *Record) { r.Response = []byte("s") }),
		"other settled":   differing(settled, func(r *Record) { r.Code = "no" }),
		"shrunk later on": differing(settled, func(r *Record) { *r = Record{KindSettled, shrunkCopy(r.Receipt)} }),
	} {
		if err := b.Apply(r); !errors.Is(err, ErrImpossible) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Apply(differing(admit, func(r *Record) { r.Code = "x" })); err == nil {
		t.Error("an admission with a code was replayed")
	}
}

func shrunkCopy(r Receipt) Receipt {
	short := Receipt{ID: r.ID, Op: r.Op, Fingerprint: r.Fingerprint, Done: true, Code: r.Code, Shrunk: true}
	if len(r.Response) <= shortResponse {
		short.Response = r.Response
	}
	return short
}

func TestUndoneStepsLeaveNothingInAnyOrder(t *testing.T) {
	b := NewBook()
	ids := []protocol.MutationID{protocol.NewMutationID(time.Now()), protocol.NewMutationID(time.Now()), protocol.NewMutationID(time.Now())}
	var admits []Record
	for i, id := range ids {
		r, err := b.Admit(id, "spawn", fingerprint(t, "spawn", i), noon())
		if err != nil {
			t.Fatal(err)
		}
		admits = append(admits, r)
	}
	complete, err := b.Complete(ids[1], "ok", nil, noon())
	if err != nil {
		t.Fatal(err)
	}
	b.Undo(complete)
	if verdict, _ := b.Check(ids[1], "spawn", admits[1].Fingerprint); verdict != Pending {
		t.Fatal(verdict)
	}
	if complete, err = b.Complete(ids[1], "other", nil, noon()); err != nil {
		t.Fatal(err)
	}
	b.Undo(admits[1]) // both were in one commit
	b.Undo(complete)
	b.Undo(admits[1])
	if verdict, _ := b.Check(ids[1], "spawn", admits[1].Fingerprint); verdict != Fresh {
		t.Fatal(verdict)
	}
	if list := b.List(); len(list) != 2 || list[0].ID != ids[0] || list[1].ID != ids[2] {
		t.Fatalf("%v", list)
	}
	again, err := b.Admit(ids[1], "spawn", admits[1].Fingerprint, noon().Add(1))
	if err != nil {
		t.Fatal(err)
	}
	b.Undo(admits[1]) // not this one
	if pending := b.Pending(); len(pending) != 3 || pending[2].ID != again.ID {
		t.Fatalf("%v", pending)
	}
}

func TestOnlyOldControlReceiptsShrink(t *testing.T) {
	b := NewBook()
	ids := make(map[string]protocol.MutationID)
	long := bytes.Repeat([]byte("x"), shortResponse+1)
	for _, op := range []string{"start", "sweep", "term", "retire", "pending", "signal"} {
		ids[op] = protocol.NewMutationID(time.Now())
		if _, err := b.Admit(ids[op], op, fingerprint(t, op, nil), noon()); err != nil {
			t.Fatal(err)
		}
		if op == "pending" {
			continue
		}
		response := long
		if op == "term" {
			response = []byte("short")
		}
		if _, err := b.Complete(ids[op], "code", response, noon()); err != nil {
			t.Fatal(err)
		}
	}
	b.Shrink(3) // signal, term, sweep
	for _, r := range b.List() {
		if r.Shrunk {
			t.Fatalf("%s shrunk early", r.Op)
		}
	}
	b.Shrink(1)
	for _, r := range b.List() {
		want := r.Op == "sweep" || r.Op == "term"
		if r.Shrunk != want || want && !r.equal(shrunkCopy(r)) || !want && r.AdmittedAt.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	verdict, r := b.Check(ids["sweep"], "sweep", fingerprint(t, "sweep", nil))
	if verdict != Replay || r.Code != "code" || r.Response != nil {
		t.Fatalf("%s %+v", verdict, r)
	}
	if r, _ := b.Get(ids["term"]); string(r.Response) != "short" {
		t.Errorf("a short response is gone: %+v", r)
	}
	if verdict, _ := b.Check(ids["term"], "term", fingerprint(t, "term", 1)); verdict != Conflict {
		t.Fatal(verdict)
	}
}

func TestAFullBookStillHasRoomToEndASession(t *testing.T) {
	b := NewBook()
	fp := fingerprint(t, "signal", nil)
	for range MaxReceipts {
		if _, err := b.Admit(protocol.NewMutationID(time.Now()), "signal", fp, noon()); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []string{"signal", "spawn"} {
		if _, err := b.Admit(protocol.NewMutationID(time.Now()), op, fp, noon()); !errors.Is(err, ErrReceiptsFull) {
			t.Errorf("%s: %v", op, err)
		}
	}
	for _, op := range []string{"start", "term", "sweep", "retire"} {
		if err := b.Room(op); err != nil {
			t.Error(err)
		}
		if _, err := b.Admit(protocol.NewMutationID(time.Now()), op, fp, noon()); err != nil {
			t.Error(err)
		}
	}
	if len(b.List()) != MaxReceipts+4 {
		t.Fatal(len(b.List()))
	}
}

func TestNothingOfTheProcessesIsImported(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path == "net" || strings.Contains(path, "/internal/guardian") || strings.HasSuffix(path, "/internal/journal") {
			t.Errorf("imports %s", path)
		}
	}
	if !slices.Contains(strings.Fields(string(out)), "crypto/sha256") {
		t.Fatalf("no list: %s", out)
	}
}

func BenchmarkCheck(b *testing.B) {
	book := NewBook()
	fp := fingerprint(b, "signal", nil)
	var ids []protocol.MutationID
	for range 10_000 {
		id := protocol.NewMutationID(time.Now())
		if _, err := book.Admit(id, "signal", fp, noon()); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if verdict, _ := book.Check(ids[i%len(ids)], "signal", fp); verdict != Pending {
			b.Fatal(verdict)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	book := NewBook()
	id := protocol.NewMutationID(time.Now())
	if _, err := book.Admit(id, "signal", fingerprint(b, "signal", nil), noon()); err != nil {
		b.Fatal(err)
	}
	record, err := book.Complete(id, "ok", make([]byte, 200), noon())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
