package guest

import (
	"errors"
	"testing"
)

func TestHostNumbersBecomeErrorsACapsuleCanTest(t *testing.T) {
	for _, tc := range []struct {
		errno uint32
		want  error
	}{
		{errnoSuccess, nil},
		{errnoNotTTY, ErrNotTerminal},
		{errnoNotCapable, ErrNotGranted},
		{errnoUnsupported, ErrNotSupported},
	} {
		if err := errnoError("do it", tc.errno); !errors.Is(err, tc.want) {
			t.Errorf("errno %d: got %v, want %v", tc.errno, err, tc.want)
		}
	}
	if got, want := errnoError("do it", 21).Error(), "cannot do it: host error 21"; got != want {
		t.Errorf("unknown number: got %q, want %q", got, want)
	}
}

func TestOutsideACapsuleNothingIsATerminal(t *testing.T) {
	if _, _, err := TerminalSize(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("TerminalSize: %v", err)
	}
	if err := SetRaw(true); !errors.Is(err, ErrNotSupported) {
		t.Errorf("SetRaw: %v", err)
	}
	if n := SizeChanges(); n != 0 {
		t.Errorf("SizeChanges: %d", n)
	}
	if in, out, stderr := Streams(); in || out || stderr {
		t.Errorf("Streams: %v %v %v", in, out, stderr)
	}
}
