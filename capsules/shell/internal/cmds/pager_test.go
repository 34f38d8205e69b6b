package cmds

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

func TestThePagerMovesAndSearches(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		text.WriteString(strings.Repeat("x", i) + "\n")
	}
	text.WriteString("the\tend \x1b[31m日本\n")
	b := newBench(t, map[string]string{"f": text.String()})
	keys := []string{" ", "b", "j", "\x1b[B", "\x1b[6~", "G", "g", "/the\r", "n", "/(\r", "/x\x7fyy\x1b", "q"}
	var out bytes.Buffer
	status := b.invoke(context.Background(), &Call{
		Args: []string{"less", "f"}, Stdout: &out, Stderr: io.Discard,
		Terminal: &Terminal{
			Size: func() (int, int) { return 40, 11 },
			ReadKeys: func(context.Context) ([]byte, error) {
				if len(keys) == 0 {
					return nil, io.EOF
				}
				key := keys[0]
				keys = keys[1:]
				return []byte(key), nil
			},
		},
	})
	if status != 0 || len(keys) != 0 {
		t.Errorf("status %d, keys left %q", status, keys)
	}
	var shown []string
	for screen := range strings.SplitSeq(out.String(), "\x1b[H\x1b[2J") {
		if _, line, ok := strings.Cut(screen, "\x1b[7m"); ok {
			line, _, _ = strings.Cut(line, "\x1b[0m")
			shown = append(shown, strings.TrimSpace(line[:min(len(line), 20)]))
		}
	}
	want := []string{
		"f lines 1-10 of 101", "f lines 11-20 of 101", "f lines 1-10 of 101", "f lines 2-11 of 101", "f lines 3-12 of 101",
		"f lines 13-22 of 101", "f lines 92-101 of 10", "f lines 1-10 of 101", "f lines 92-101 of 10", "not found",
		"bad pattern \"(\": mis", "f lines 92-101 of 10",
	}
	for i, line := range want {
		want[i] = line[:min(len(line), 20)]
	}
	if strings.Join(shown, "\n") != strings.Join(want, "\n") {
		t.Errorf("shown:\n%q\nwant:\n%q", shown, want)
	}
	if !strings.Contains(out.String(), "the     end ^[[31m日本\r\n") {
		t.Error("controls in the text are not shown as text")
	}
}

func TestThePagerFollowsTheSizeOfItsScreen(t *testing.T) {
	b := newBench(t, map[string]string{"f": strings.Repeat("x\n", 100)})
	sizes := [][2]int{{40, 11}, {40, 21}, {60, 6}}
	var out bytes.Buffer
	b.invoke(context.Background(), &Call{
		Args: []string{"less", "f"}, Stdout: &out, Stderr: io.Discard,
		Terminal: &Terminal{
			Size: func() (int, int) { return sizes[0][0], sizes[0][1] },
			ReadKeys: func(context.Context) ([]byte, error) {
				if sizes = sizes[1:]; len(sizes) == 0 {
					sizes = [][2]int{{40, 11}}
					return []byte("q"), nil
				}
				return []byte("j"), nil
			},
		},
	})
	for _, want := range []string{"f lines 1-10 of 100", "f lines 2-21 of 100", "f lines 3-7 of 100"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q was not shown", want)
		}
	}
}
