package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

var update = flag.Bool("update", false, "write the vectors instead of comparing them")

const vectorsPath = "testdata/vectors.json"

// vector is one case of the wire for an implementation in any language. What is
// "frame" for a byte stream that should hold exactly one frame with a request
// head in it, or the name of the message that the bytes should be.
type vector struct {
	Name string `json:"name"`
	What string `json:"what"`
	Hex  string `json:"hex"`
	Good bool   `json:"good"`
	// Meaning is the item in diagnostic notation where it is good, else why it
	// has to be refused.
	Meaning string `json:"meaning"`
	// Canonical is how the item is encoded when it is tolerated in another form.
	Canonical string `json:"canonical,omitempty"`
}

func (v vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return b
}

// decode reads the vector's bytes as what they should be, and gives its body.
func (v vector) decode(t testing.TB) (body []byte, m any, err error) {
	t.Helper()
	if v.What != "frame" {
		empty, ok := kinds()[v.What]
		if !ok {
			t.Fatalf("%s: there is no message %s", v.Name, v.What)
		}
		m = empty()
		return v.bytes(t), m, Unmarshal(v.bytes(t), m)
	}
	r := bytes.NewReader(v.bytes(t))
	body, err = ReadFrame(r, nil)
	if err != nil {
		return nil, nil, err
	}
	m = new(Head)
	if err := Unmarshal(body, m); err != nil {
		return nil, nil, err
	}
	if _, err := ReadFrame(r, nil); err != io.EOF {
		t.Fatalf("%s: something follows the frame", v.Name)
	}
	return body, m, nil
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func TestVectorsMeanWhatTheySay(t *testing.T) {
	names := map[string]bool{}
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			if names[v.Name] || v.Meaning == "" {
				t.Fatal("a vector has one name and a meaning")
			}
			names[v.Name] = true
			body, m, err := v.decode(t)
			if !v.Good {
				checkBad(t, err)
				return
			}
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if v.What != "frame" {
				checkCanonical(t, v, m)
			}
			if diag, err := cbor.Diagnose(body); err != nil || diag != v.Meaning {
				t.Errorf("means %s, %v", diag, err)
			}
		})
	}
}

func checkBad(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrFrameSize) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("was not refused as what it is: %v", err)
	}
}

func checkCanonical(t *testing.T, v vector, m any) {
	t.Helper()
	want := v.Canonical
	if want == "" {
		want = v.Hex
	}
	again, err := Marshal(m)
	if err != nil || hex.EncodeToString(again) != want {
		t.Errorf("encodes to %x, %v, want %s", again, err, want)
	}
}

func TestEveryGoodItemCutAnywhereIsRefused(t *testing.T) {
	all := kinds()
	for _, v := range readVectors(t) {
		if !v.Good || v.What == "frame" {
			continue
		}
		item, empty := v.bytes(t), all[v.What]
		for n := range item {
			if err := Unmarshal(item[:n], empty()); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %d of %d bytes gave %v", v.Name, n, len(item), err)
			}
		}
		if err := Unmarshal(append(item, 0xa0), empty()); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: with a further item it gave %v", v.Name, err)
		}
	}
}

func TestVectorsCoverEveryMessage(t *testing.T) {
	good := map[string]bool{}
	for _, v := range readVectors(t) {
		good[v.What] = good[v.What] || v.Good
	}
	for _, m := range messages() {
		if !good[m.name] {
			t.Errorf("no good vector of %s", m.name)
		}
	}
}

// TestVectorsAreThoseOfTheseMessages fails when the wire changes: then the
// vectors are written anew on purpose, with -update, and the change is seen.
func TestVectorsAreThoseOfTheseMessages(t *testing.T) {
	want := goodVectors(t)
	want = append(want, toleratedVectors(t)...)
	want = append(want, badFrames(t)...)
	want = append(want, badItems()...)
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, v := range want {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		if i < len(want)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	if *update {
		if err := os.WriteFile(vectorsPath, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("the wire is not that of %s; run: go test -run TestVectorsAre ./internal/protocol -update", vectorsPath)
	}
}
