package cmds

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pieces is an input that arrives as a pipe's does: a read returns one piece.
type pieces struct{ left []string }

func (p *pieces) Read(buf []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(buf, p.left[0])
	if p.left[0] = p.left[0][n:]; p.left[0] == "" {
		p.left = p.left[1:]
	}
	return n, nil
}

// cuts are the ways to take a text apart.
func cuts(text string) map[string][]string {
	all := map[string][]string{"whole": {text}, "lines": strings.SplitAfter(text, "\n")}
	for name, size := range map[string]int{"bytes": 1, "threes": 3, "sevens": 7} {
		for piece := range slices.Chunk([]byte(text), size) {
			all[name] = append(all[name], string(piece))
		}
	}
	return all
}

func TestInputInPiecesComesOutWhole(t *testing.T) {
	const text = "one\nzwölf\nthree\nthree\n日本 x\nlast"
	for _, tc := range []struct{ args, stdin, stdout string }{
		{"cat", text, text},
		{"cat -", text, text},
		{"cat -n", "a\nb", "     1\ta\n     2\tb"},
		{"cut -c2-3", "one\nzwölf\n", "ne\nwö\n"},
		{"cut -d_ -f2", "a b c\nd e\n", "b\ne\n"},
		{"env cat", text, text},
		{"grep -n e", text, "1:one\n3:three\n4:three\n"},
		{"grep -v e", "a\ne\nb\n", "a\nb\n"},
		{"head", text, text},
		{"head -n 2", text, "one\nzwölf\n"},
		{"head -c 12", text, "one\nzwölf\nt"},
		{"head -c 1000", text, text},
		{"less", text, text},
		{"more", text, text},
		{"md5sum", "x", "9dd4e461268c8034f5c8564e155c67a6  -\n"},
		{"sed s/e/E/g", "one\nthree\n", "onE\nthrEE\n"},
		{"sed -n $p", "one\nthree\n", "three\n"},
		{"sed p", "a\nb\n", "a\na\nb\nb\n"},
		{"sha256sum", "x", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  -\n"},
		{"sort", text, "last\none\nthree\nthree\nzwölf\n日本 x\n"},
		{"tail", text, text},
		{"tail -n 2", text, "日本 x\nlast"},
		{"tail -n +3", "a\nb\nc\nd\n", "c\nd\n"},
		{"tail -c 6", text, "x\nlast"},
		{"tail -c +5", text, text[4:]},
		{"tee copy", text, text},
		{"tr a-z A-Z", text, "ONE\nZWöLF\nTHREE\nTHREE\n日本 X\nLAST"},
		{"tr -d o", text, "ne\nzwölf\nthree\nthree\n日本 x\nlast"},
		{"uniq", text, "one\nzwölf\nthree\n日本 x\nlast\n"},
		{"uniq -c", "a\na\nb\n", "      2 a\n      1 b\n"},
		{"wc", text, "      5       7      36\n"},
		{"wc -m", "zwölf 日本\n", "9\n"},
		{"xargs", text, "one zwölf three three 日本 x last\n"},
		{"xargs -n1 echo", "a b\nc\n", "a\nb\nc\n"},
		{"xargs -I{} echo <{}>", "a b\nc\n", "<a b>\n<c>\n"},
	} {
		words := filterCase{args: tc.args}.words()
		for name, parts := range cuts(tc.stdin) {
			b := newBench(t, nil)
			var out, errs bytes.Buffer
			status := b.invoke(context.Background(), &Call{Args: words, Stdin: &pieces{parts}, Stdout: &out, Stderr: &errs})
			if status != 0 || out.String() != tc.stdout || errs.Len() > 0 {
				t.Errorf("%s, %s: got %d %q %s\nwant %q", tc.args, name, status, out.String(), errs.String(), tc.stdout)
			}
			if words[0] == "tee" {
				if data, err := os.ReadFile(filepath.Join(b.dir, "copy")); err != nil || string(data) != tc.stdin {
					t.Errorf("tee, %s: the file has %q, %v", name, data, err)
				}
			}
		}
	}
}

func TestMuchInputInPiecesComesOutWhole(t *testing.T) {
	text := strings.Repeat("0123456789abcdef\n", 4000) // more than any buffer
	for _, args := range []string{"cat", "tail -c +1", "head -c 100000", "tee", "grep .", "sed n", "tr _ _", "cut -b1-"} {
		var parts []string
		for piece := range slices.Chunk([]byte(text), 5000) {
			parts = append(parts, string(piece))
		}
		var out, errs bytes.Buffer
		b := newBench(t, nil)
		b.invoke(context.Background(), &Call{Args: filterCase{args: args}.words(), Stdin: &pieces{parts}, Stdout: &out, Stderr: &errs})
		if out.String() != text || errs.Len() > 0 {
			t.Errorf("%s: %d bytes became %d %s", args, len(text), out.Len(), errs.String())
		}
	}
}

func TestHelpIsOneLine(t *testing.T) {
	b := newBench(t, nil)
	for _, cmd := range Table() {
		status, stdout, stderr := b.run("", cmd.Name, "--help")
		if want := "usage: " + cmd.Line() + "\n"; status != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: got %d %q %q", cmd.Name, status, stdout, stderr)
		}
	}
	if status, stdout, _ := b.run("", "ls", "-l", "--help"); status != 0 || !strings.HasPrefix(stdout, "usage: ls ") {
		t.Errorf("after an option: %d %q", status, stdout)
	}
}
