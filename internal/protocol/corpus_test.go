package protocol

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func goodVector(t *testing.T, name, what string, item []byte) vector {
	t.Helper()
	diag, err := cbor.Diagnose(item)
	if err != nil {
		t.Fatal(err)
	}
	return vector{Name: name, What: what, Hex: hex.EncodeToString(item), Good: true, Meaning: diag}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	item, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// goodVectors holds every message with all its fields and, where they can be
// left out, without; and the alternatives of those that are one of many.
func goodVectors(t *testing.T) []vector {
	var vs []vector
	for _, m := range messages() {
		vs = append(vs, goodVector(t, m.name+" with every field", m.name, mustMarshal(t, m.full)))
	}
	add := func(name, what string, v any) {
		vs = append(vs, goodVector(t, name, what, mustMarshal(t, v)))
	}
	add("hello of a client without capabilities", "Hello", Hello{Version: 1, Authentication: []byte{9}})
	add("welcome that refuses", "Welcome", Welcome{Version: 1, MinVersion: 1, Error: Refuse(CodeUnauthorized, "cannot authenticate")})
	add("start of a plain program and nothing more", "StartRequest",
		StartRequest{Head: Head{ID: 1, Op: OpStart}, MutationID: exampleID(), StartSpec: StartSpec{Program: []byte("true")}})
	add("attach at the present", "AttachRequest", AttachRequest{Head: Head{ID: 1, Op: OpAttach}})
	add("gap", "AttachFrame", AttachFrame{Gap: &GapFrame{From: 0, To: 9}})
	add("size", "AttachFrame", AttachFrame{Size: &Size{Cols: 80, Rows: 24}})
	add("ack", "AttachFrame", AttachFrame{Ack: &AckFrame{Seq: 1, Written: 3, Credit: 65_536}})
	add("refused input", "AttachFrame", AttachFrame{Refused: &RefusedFrame{Seq: 1, Error: Refuse(CodeNotRunning, "cannot type: ended")}})
	add("end of the session", "AttachFrame", AttachFrame{End: &EndFrame{Record: exampleRecord()}})
	add("end of the attachment alone", "AttachFrame", AttachFrame{End: &EndFrame{Error: Refuse(CodeLeaving, "cannot go on: the guardian leaves")}})
	add("resize by an attacher", "AttachInput", AttachInput{Resize: &Size{Cols: 1, Rows: 1}})
	add("detach", "AttachInput", AttachInput{Detach: true})
	add("refusal", "Response", Response{ID: 7, Error: Refuse(CodeBusy, "cannot start: busy")})
	add("nothing swept", "SweepAnswer", SweepAnswer{MutationID: exampleID(), Proved: true})

	frame, err := AppendFrame(nil, StatusRequest{Head{ID: 1, Op: OpStatus}})
	if err != nil {
		t.Fatal(err)
	}
	v := goodVector(t, "frame with a status request", "frame", frame[headSize:])
	v.Hex = hex.EncodeToString(frame)
	return append(vs, v)
}

// toleratedVectors are not what an encoder should write and mean something all
// the same.
func toleratedVectors(t *testing.T) []vector {
	const canonical = "a2626964016 26f7066737461747573"
	var vs []vector
	for _, c := range [][3]string{
		{"keys out of order", "a2 626f70 66737461747573 626964 01", canonical},
		{"an integer longer than needed", "a2 626964 1b0000000000000001 626f70 66737461747573", canonical},
		{"a length longer than needed", "a2 626964 01 626f70 7806737461747573", canonical},
		{"a map head longer than needed", "b802 626964 01 626f70 66737461747573", canonical},
		{"an unknown key", "a3 626964 01 626f70 66737461747573 6178 83f97e00f5f6", canonical},
		{"an unknown key of another type", "a3 01 02 626964 01 626f70 66737461747573", canonical},
		{"a known key in other letters is an unknown key", "a3 624944 07 626964 01 626f70 66737461747573", canonical},
		{"null stands for absent", "a2 626964 f6 626f70 66737461747573", "a2 626964 00 626f70 66737461747573"},
	} {
		item := unspaced(c[1])
		raw, err := hex.DecodeString(item)
		if err != nil {
			t.Fatal(err)
		}
		v := goodVector(t, "tolerated: "+c[0], "StatusRequest", raw)
		v.Canonical = unspaced(c[2])
		vs = append(vs, v)
	}
	return vs
}

func unspaced(s string) string { return strings.ReplaceAll(s, " ", "") }

func badFrames(t *testing.T) []vector {
	frame, err := AppendFrame(nil, StatusRequest{Head{ID: 1, Op: OpStatus}})
	if err != nil {
		t.Fatal(err)
	}
	bad := func(name, raw, why string) vector {
		return vector{Name: name, What: "frame", Hex: unspaced(raw), Meaning: why}
	}
	var vs []vector
	for n := 1; n < len(frame); n++ {
		vs = append(vs, bad(fmt.Sprintf("frame cut after %d bytes", n), hex.EncodeToString(frame[:n]), "the stream ends inside the frame"))
	}
	whole := hex.EncodeToString(frame)
	return append(vs,
		bad("frame of no bytes", "00000000", "a length of 0"),
		bad("frame one byte too long", "00040001 a0", "a length over 262144; the connection ends without reading on"),
		bad("frame of four gibibytes", "ffffffff a0", "a length over 262144"),
		bad("little-endian length", "0f000000"+whole[8:], "a length over 262144: it is big-endian"),
		bad("frame with two items", "00000002 a0a0", "bytes after the item"),
		bad("frame shorter than its item", "0000000e"+whole[8:], "the item ends outside the frame"),
		bad("item without a frame", whole[8:], "a length over 262144"),
	)
}

func badItems() []vector {
	var vs []vector
	for _, c := range [][4]string{
		{"duplicate key", "Head", "a2 626964 01 626964 02", "a key twice"},
		{"duplicate key with the same value", "Head", "a2 626964 01 626964 01", "a key twice"},
		{"duplicate unknown key", "Head", "a2 6178 01 6178 02", "a key twice, though nobody reads it"},
		{"duplicate key in an environment", "StartRequest", "a1 63656e76 a2 4141 4131 4141 4132", "a variable twice"},
		{"indefinite map", "Head", "bf 626964 01 ff", "indefinite length"},
		{"indefinite list", "StartRequest", "a1 6461726773 9f 4161 ff", "indefinite length"},
		{"indefinite byte string", "InputRequest", "a1 656279746573 5f 4161 ff", "indefinite length"},
		{"indefinite text", "Head", "a1 626f70 7f 6161 ff", "indefinite length"},
		{"indefinite list under an unknown key", "Head", "a1 6178 9f ff", "indefinite length, though nobody reads it"},
		{"break alone", "Head", "ff", "a break outside an indefinite length"},
		{"self-described item", "Head", "d9d9f7 a0", "a tag"},
		{"tag inside", "Head", "a1 626964 c1 01", "a tag"},
		{"big number", "Head", "a1 626964 c2 49010000000000000000", "a tag"},
		{"trailing byte", "Head", "a0 00", "bytes after the item"},
		{"nothing", "Head", "", "no item"},
		{"reserved head", "Head", "a1 6178 1c", "additional information 28 is reserved"},
		{"simple value in two bytes", "Head", "a1 6178 f818", "not well-formed: a simple value below 32 in two bytes"},
		{"map with a missing value", "Head", "a1 626964", "the item ends inside"},
		{"text longer than the item", "Head", "a1 626f70 7bffffffffffffffff 61", "the item ends inside"},
		{"map of absurd size", "Head", "bbffffffffffffffff", "more pairs than are taken"},
		{"list of absurd size", "StartRequest", "a1 6461726773 9b7fffffffffffffff", "more elements than are taken"},
		{"seventeen lists in each other", "Head", "a1 6178 " + strings.Repeat("81", 16) + "01", "more than 16 levels"},
		{"text that is no UTF-8", "Head", "a1 626f70 61ff", "not UTF-8"},
		{"text cut inside a character", "Head", "a1 626f70 62e282", "not UTF-8"},
		{"overlong text", "Head", "a1 626f70 62c080", "not UTF-8: overlong"},
		{"surrogate in a text", "Head", "a1 626f70 63eda080", "not UTF-8: a surrogate"},
		{"key that is no UTF-8", "Head", "a1 61ff 01", "not UTF-8"},
		{"key that is a byte string", "Head", "a1 426964 01", "keys are texts"},
		{"key that is a list", "Head", "a1 80 01", "keys are texts"},
		{"list for a map", "Head", "82 01 66737461747573", "a message is a map"},
		{"number for a map", "Head", "01", "a message is a map"},
		{"text for a number", "Head", "a1 626964 6131", "wrong type"},
		{"float for a number", "Head", "a1 626964 f93c00", "wrong type"},
		{"negative request id", "Head", "a1 626964 20", "a request id is not negative"},
		{"number for a text", "Head", "a1 626f70 01", "wrong type"},
		{"byte string for a text", "Head", "a1 626f70 46737461747573", "wrong type"},
		{"text for a byte string", "InputRequest", "a1 656279746573 6161", "wrong type: input is bytes"},
		{"program as a text", "StartRequest", "a1 6770726f6772616d 627368", "wrong type: a program is bytes"},
		{"arguments as texts", "StartRequest", "a1 6461726773 81 6161", "wrong type: arguments are bytes"},
		{"one byte string for the arguments", "StartRequest", "a1 6461726773 4161", "wrong type: arguments are a list"},
		{"environment with texts", "StartRequest", "a1 63656e76 a1 6141 6131", "wrong type: a variable is bytes"},
		{"environment as a list", "StartRequest", "a1 63656e76 81 43413d31", "wrong type: an environment is a map"},
		{"number for a flag", "AttachInput", "a1 66646574616368 01", "wrong type"},
		{"size as a list", "ResizeRequest", "a1 6473697a65 82 1850 1818", "wrong type: a size is a map"},
		{"size beyond 63 bits", "ResizeRequest", "a1 6473697a65 a1 64636f6c73 1b8000000000000000", "too large a number"},
		{"version beyond 63 bits", "Hello", "a1 6776657273696f6e 1bffffffffffffffff", "too large a number"},
		{"mutation id as bytes", "TermRequest", "a1 6b6d75746174696f6e5f6964 50018bcfe5680070008000000000000001", "a mutation id is a text"},
		{"empty mutation id", "TermRequest", "a1 6b6d75746174696f6e5f6964 60", "no UUID"},
		{"mutation id of no bytes", "TermRequest", "a1 6b6d75746174696f6e5f6964 40", "a mutation id is a text"},
		{"nil mutation id", "TermRequest", "a1 6b6d75746174696f6e5f6964 7824 " + hex.EncodeToString([]byte(MutationID{}.String())), "the nil UUID is no id"},
		{"mutation id without hyphens", "TermRequest", "a1 6b6d75746174696f6e5f6964 7820 " + hex.EncodeToString([]byte("018bcfe5680070008000000000000001")), "no UUID in its canonical form"},
	} {
		vs = append(vs, vector{Name: c[0], What: c[1], Hex: unspaced(c[2]), Meaning: c[3]})
	}
	return vs
}
