package cli

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

func TestEveryExitCodeIsExplainedOnce(t *testing.T) {
	help := exitCodesHelp()
	seen := make(map[int]bool)
	last := -1
	for c := range causes {
		code, meaning := c.exit()
		if seen[code] || code <= last || meaning == "" {
			t.Errorf("cause %d: code %d, %q: twice, out of order or without meaning", c, code, meaning)
		}
		seen[code], last = true, code
		if !strings.Contains(help, fmt.Sprintf("  %3d    %s\n", code, meaning)) {
			t.Errorf("help does not tell %d", code)
		}
	}
	for _, code := range []int{0, 1, 2, 3, 4, 5, 6, 7, 69, 75, 124, 125, 126, 127} {
		if !seen[code] {
			t.Errorf("nothing exits with %d", code)
		}
	}
}

func TestInATargetsPlaceNoCodeOfOursIsATargets(t *testing.T) {
	for c := range causes {
		code, _ := c.inTargetsPlace().exit()
		if code != 0 && (code < 124 || code > 127) {
			t.Errorf("cause %d exits with %d", c, code)
		}
	}
}

func TestErrorsHaveTheirCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{&client.Error{Code: client.CodeNoSession}, 4},
		{&client.Error{Code: client.CodeAmbiguous}, 4},
		{&client.Error{Code: client.CodeNotRunning}, 3},
		{&client.Error{Code: client.CodeNotStarted}, 3},
		{&client.Error{Code: client.CodeNotEnded}, 3},
		{&client.Error{Code: client.CodeUnauthorized}, 5},
		{&client.Error{Code: client.CodeConflict}, 6},
		{&client.Error{Code: client.CodeUnknownOutcome}, 7},
		{&client.Error{Code: client.CodeUnreachable}, 69},
		{&client.Error{Code: client.CodeGuardianLost}, 69},
		{&client.Error{Code: client.CodeBusy}, 75},
		{&client.Error{Code: client.CodeInternal}, 1},
		{fmt.Errorf("cannot open x: %w", fs.ErrPermission), 5},
		{usage("no"), 2},
		{context.Canceled, 1},
	} {
		wrapped := cannot("do", "this", c.err)
		if code, _ := causeOf(wrapped).exit(); code != c.want {
			t.Errorf("%v: %d, want %d", c.err, code, c.want)
		}
		if word(wrapped) == "" {
			t.Errorf("%v: no code in words", c.err)
		}
	}
	late := (&limits{timeout: time.Second}).late(cannot("do", "this", context.DeadlineExceeded))
	if code, _ := causeOf(late).exit(); code != 124 {
		t.Errorf("--timeout ran out: %d", code)
	}
	unlimited := (&limits{}).late(cannot("do", "this", context.DeadlineExceeded))
	if code, _ := causeOf(unlimited).exit(); code == 124 {
		t.Error("124 without --timeout")
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 60 * time.Second: "1m", 2*time.Minute + 3: "2m",
		time.Hour: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestSizesAndSignalsAreRead(t *testing.T) {
	for _, text := range []string{"80", "80x", "x24", "0x24", "80x0", "-1x24", "80x65536", "80x24x1", "ax b"} {
		if _, err := parseSize(text); err == nil {
			t.Errorf("size %q was taken", text)
		}
	}
	if size, err := parseSize("80x24"); err != nil || *size != (client.Size{Cols: 80, Rows: 24}) {
		t.Errorf("80x24: %v, %v", size, err)
	}
	for text, want := range map[string]int{"TERM": 15, "sigterm": 15, "9": 9, "usr1": 10, "64": 64} {
		if n, err := parseSignal(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "0", "65", "-1", "NOPE", "SIG"} {
		if _, err := parseSignal(text); err == nil {
			t.Errorf("signal %q was taken", text)
		}
	}
}

func TestNamesOfStrangersCannotActOnATerminal(t *testing.T) {
	if got := printable("plain name"); got != "plain name" {
		t.Error(got)
	}
	if got := printable("a\x1b]0;b\x07"); strings.ContainsAny(got, "\x1b\x07") {
		t.Errorf("%q", got)
	}
}
