package protocol

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func drawBytes(t *rapid.T, name string) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, name)
}

func drawID(t *rapid.T) MutationID {
	var id MutationID
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	id[0] |= 1 // never nil
	return id
}

func TestAnyStartComesBackAsItWentAndEncodesOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := StartRequest{
			Head: Head{ID: rapid.Uint64().Draw(t, "request"), Op: OpStart}, MutationID: drawID(t),
			StartSpec: StartSpec{
				Program: drawBytes(t, "program"), Cwd: drawBytes(t, "cwd"), Env: map[Bytes]Bytes{},
				History: rapid.Int64().Draw(t, "history"),
			},
		}
		for range rapid.IntRange(0, 5).Draw(t, "args") {
			want.Args = append(want.Args, drawBytes(t, "arg"))
			want.Env[Bytes(drawBytes(t, "key"))] = Bytes(drawBytes(t, "value"))
		}
		item, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got StartRequest
		if err := Unmarshal(item, &got); err != nil {
			t.Fatal(err)
		}
		if diff := alike(want, got); diff != "" {
			t.Fatal(diff)
		}
		again, err := Marshal(got)
		if err != nil || !bytes.Equal(item, again) {
			t.Fatalf("encoded again: %x, %v, was %x", again, err, item)
		}
	})
}

func TestFramesComeBackHoweverTheStreamIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(0, 4).Draw(t, "frames") {
			v := OutputFrame{Offset: rapid.Int64().Draw(t, "offset"), Bytes: drawBytes(t, "bytes")}
			var err error
			if stream, err = AppendFrame(stream, v); err != nil {
				t.Fatal(err)
			}
			body, err := Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, body)
		}
		cut := rapid.IntRange(0, len(stream)).Draw(t, "cut")
		r := iotest.OneByteReader(bytes.NewReader(stream[:cut]))
		read, err := 0, error(nil)
		for i := 0; ; i++ {
			var body []byte
			if body, err = ReadFrame(r, nil); err != nil {
				break
			}
			if i >= len(want) || !bytes.Equal(body, want[i]) {
				t.Fatalf("frame %d is %x", i, body)
			}
			read += headSize + len(body)
		}
		if atStart := read == cut; atStart && err != io.EOF || !atStart && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d after %d whole bytes: %v", cut, read, err)
		}
	})
}
