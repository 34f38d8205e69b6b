package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAFrameIsRefusedByItsLengthBeforeItsBodyIsRead(t *testing.T) {
	for name, head := range map[string]string{
		"empty": "\x00\x00\x00\x00", "one too many": "\x00\x04\x00\x01", "absurd": "\xff\xff\xff\xff",
	} {
		r := strings.NewReader(head + "body")
		if _, err := ReadFrame(r, nil); !errors.Is(err, ErrFrameSize) {
			t.Errorf("%s: %v", name, err)
		}
		if r.Len() != len("body") {
			t.Errorf("%s: %d bytes of the body were read", name, len("body")-r.Len())
		}
	}
}

func TestTheLargestFrameGoesAndOneMoreByteDoesNot(t *testing.T) {
	empty, err := Marshal(InputFrame{Bytes: make([]byte, 1<<16)})
	if err != nil {
		t.Fatal(err)
	}
	overhead := len(empty) - 1<<16
	largest := InputFrame{Bytes: make([]byte, MaxFrame-overhead)}
	frame, err := AppendFrame(nil, largest)
	if err != nil || len(frame) != headSize+MaxFrame {
		t.Fatalf("%d bytes, %v", len(frame), err)
	}
	if body, err := ReadFrame(bytes.NewReader(frame), nil); err != nil || len(body) != MaxFrame {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	largest.Bytes = append(largest.Bytes, 0)
	kept := []byte("kept")
	if got, err := AppendFrame(kept, largest); !errors.Is(err, ErrFrameSize) || string(got) != "kept" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// oneWrite fails the test at a second Write: a frame in two writes could be
// torn by a deadline between them.
type oneWrite struct {
	t    *testing.T
	data []byte
}

func (w *oneWrite) Write(p []byte) (int, error) {
	if w.data != nil {
		w.t.Error("a second write")
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

func TestCountsBeyondTheLimitsAreRefused(t *testing.T) {
	list := append([]byte("\xa1\x61x\x99\x40\x01"), make([]byte, 16_385)...)
	if err := Unmarshal(list, new(Head)); !errors.Is(err, ErrMalformed) {
		t.Errorf("16,385 elements: %v", err)
	}
	list[5] = 0
	if err := Unmarshal(list[:len(list)-1], new(Head)); err != nil {
		t.Errorf("16,384 elements: %v", err)
	}
}

func TestAFrameIsWrittenInOneWriteAndNothingOfABadOne(t *testing.T) {
	w := &oneWrite{t: t}
	if err := WriteFrame(w, StatusRequest{Head{ID: 1, Op: OpStatus}}); err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x0f\xa2\x62id\x01\x62op\x66status"; string(w.data) != want {
		t.Errorf("wrote %x, want %x", w.data, want)
	}
	w = &oneWrite{t: t}
	if err := WriteFrame(w, make(chan int)); err == nil || w.data != nil {
		t.Errorf("wrote %x, %v", w.data, err)
	}
}

func TestTheDeadlineOfAFrameBeginsWithItsFirstByte(t *testing.T) {
	begun := 0
	note := func() { begun++ }
	if _, err := ReadFrame(strings.NewReader(""), note); err != io.EOF || begun != 0 {
		t.Errorf("nothing: %v, begun %d times", err, begun)
	}
	if _, err := ReadFrame(strings.NewReader("\x00"), note); !errors.Is(err, io.ErrUnexpectedEOF) || begun != 1 {
		t.Errorf("one byte: %v, begun %d times", err, begun)
	}
}
