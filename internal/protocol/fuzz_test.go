package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// FuzzFrame: whatever a stream holds, reading it gives frames and then one of
// three ends, and the frames are the bytes that were read.
func FuzzFrame(f *testing.F) {
	for _, v := range readVectors(f) {
		b := v.bytes(f)
		if v.What != "frame" {
			b = append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		}
		f.Add(b)
		f.Add(append(b, b...))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		var again []byte
		for {
			body, err := ReadFrame(r, nil)
			if err != nil {
				checkEnd(t, err, len(stream)-len(again))
				break
			}
			again = binary.BigEndian.AppendUint32(again, uint32(len(body)))
			again = append(again, body...)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("read %x out of %x", again, stream)
		}
	})
}

func checkEnd(t *testing.T, err error, rest int) {
	t.Helper()
	switch {
	case err == io.EOF && rest == 0:
	case errors.Is(err, io.ErrUnexpectedEOF) && rest > 0:
	case errors.Is(err, ErrFrameSize) && rest >= headSize:
	default:
		t.Fatalf("with %d bytes left: %v", rest, err)
	}
}

// FuzzMessages: whatever decodes as a message encodes to one form, which
// decodes to the same message and encodes to itself.
func FuzzMessages(f *testing.F) {
	for _, v := range readVectors(f) {
		b := v.bytes(f)
		if v.What == "frame" {
			b = b[min(headSize, len(b)):]
		}
		f.Add(b)
	}
	all := messages()
	f.Fuzz(func(t *testing.T, item []byte) {
		for _, m := range all {
			first := m.empty()
			if err := Unmarshal(item, first); err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Fatalf("%s: %v", m.name, err)
				}
				continue
			}
			encoded, err := Marshal(first)
			if err != nil {
				t.Fatalf("%s was read and cannot be written: %v", m.name, err)
			}
			second := m.empty()
			if err := Unmarshal(encoded, second); err != nil {
				t.Fatalf("%s was written as %x and cannot be read: %v", m.name, encoded, err)
			}
			if diff := alike(first, second); diff != "" {
				t.Fatalf("%s came back different:\n%s", m.name, diff)
			}
			if again, err := Marshal(second); err != nil || !bytes.Equal(encoded, again) {
				t.Fatalf("%s was written as %x, then as %x, %v", m.name, encoded, again, err)
			}
		}
	})
}
