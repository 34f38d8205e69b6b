package cli

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOnlyWhatWasSwitchedOnIsUndone(t *testing.T) {
	for _, c := range []struct{ what, output, undo string }{
		{"text", "hello\r\n", ""},
		{"on and off again", "\x1b[?1049h\x1b[?1049l\x1b[?25l\x1b[?25h\x1b[1m\x1b[m", ""},
		{"the alternate screen", "\x1b[?1049h", "\x1b[?1049l"},
		{"several at once", "\x1b[?1000;1006;2004h", "\x1b[?1000l\x1b[?1006l\x1b[?2004l"},
		{"the cursor", "\x1b[?25l", "\x1b[?25h"},
		{"cursor keys and keypad", "\x1b[?1h\x1b=", "\x1b[?1l\x1b>"},
		{"colour", "\x1b[1;31mred", "\x1b[m"},
		{"colour off by 0", "\x1b[1;31mred\x1b[0m", ""},
		{"key modifiers are no colour", "\x1b[>4;2m", "\x1b[>4m"},
		{"key modifiers off again", "\x1b[>4;2m\x1b[>4;0m", ""},
		{"kitty keyboard, two levels", "\x1b[>1u\x1b[>5u", "\x1b[<2u"},
		{"kitty keyboard, left again", "\x1b[>1u\x1b[>5u\x1b[<u\x1b[<1u", ""},
		{"kitty keyboard, without a level", "\x1b[=1;1u", "\x1b[=0u"},
		{"line drawing", "\x1b(0qqq", "\x1b(B\x1b)B\x0f"},
		{"the second character set", "a\x0eb", "\x1b(B\x1b)B\x0f"},
		{"the cursor's shape", "\x1b[4 q", "\x1b[0 q"},
		{"wrapping and inserting", "\x1b[?7l\x1b[4h", "\x1b[4l\x1b[?7h"},
		{"wrapping and inserting as it was", "\x1b[?7l\x1b[4h\x1b[?7h\x1b[4l", ""},
		{"reports that would be typed", "\x1b[?2031h\x1b[?2048h\x1b[?1007h", "\x1b[?1007l\x1b[?2031l\x1b[?2048l"},
		{"margins", "\x1b[3;10r", "\x1b7\x1b[r\x1b8"},
		{"a full reset", "\x1b[?1049h\x1b[?25l\x1bc", ""},
		{"a soft reset", "\x1b[?25l\x1b[1m\x1b[!p", ""},
		{"modes of others", "\x1b[?12h\x1b[20h", ""},
		{"inside a title it is text", "\x1b]0;\x1b[?1049h\x07", "\x1b[?1049l"}, // the escape ends the title
		{"inside a string", "\x1bP[?1049h\x1b\\", ""},
		{"an unfinished sequence", "\x1b[?104", "\x18"},
		{"everything of a full-screen program", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?25l\x1b[?1002h\x1b[?2004h", "\x1b[?1l\x1b[?1002l\x1b[?2004l\x1b>\x1b[?1049l\x1b[?25h"},
	} {
		for cut := range len(c.output) + 1 {
			var m modes
			m.follow([]byte(c.output[:cut]))
			m.follow([]byte(c.output[cut:]))
			if undo := m.undo(); string(undo) != c.undo {
				t.Errorf("%s, cut at %d: %q, want %q", c.what, cut, undo, c.undo)
			}
		}
	}
}

func TestAScannerKeepsEveryByteInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]byte("a1;?[]P_\\\x1b\x1b\x07\x18m h$\x05\x00\xc3\xa9"))
		output := rapid.SliceOf(alphabet).Draw(t, "output")
		var whole, cut []byte
		collect := func(to *[]byte) func(token, []byte) {
			return func(kind token, raw []byte) {
				*to = append(*to, byte('0'+kind), '<')
				*to = append(*to, raw...)
				*to = append(*to, '>')
			}
		}
		var s1, s2 scanner
		s1.feed(output, collect(&whole))
		for rest := output; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			s2.feed(rest[:n], collect(&cut))
			rest = rest[n:]
		}
		// Text may come in more pieces, otherwise nothing differs.
		join := func(b []byte) string { return strings.ReplaceAll(string(b), ">0<", "") }
		if join(whole) != join(cut) {
			t.Fatalf("%q whole, %q cut", whole, cut)
		}
	})
}

func TestALongStringIsGivenInPieces(t *testing.T) {
	image := "\x1bP" + strings.Repeat("q", 3*scanKeep) + "\x1b\\after"
	var s scanner
	var all, text []byte
	s.feed([]byte(image), func(kind token, raw []byte) {
		all = append(all, raw...)
		if kind == tokenText {
			text = append(text, raw...)
		}
	})
	if string(all) != image || string(text) != "after" {
		t.Errorf("%d of %d bytes, text %q", len(all), len(image), text)
	}
	// Wherever the limit falls on its escape, nothing breaks or doubles.
	for n := scanKeep - 4; n < scanKeep+4; n++ {
		all = nil
		in := "\x1bP" + strings.Repeat("q", n) + "\x1b[31mx"
		var s scanner
		s.feed([]byte(in), func(_ token, raw []byte) { all = append(all, raw...) })
		if string(all) != in {
			t.Errorf("%d: %d of %d bytes", n, len(all), len(in))
		}
	}
}

func TestAReplayAsksNothing(t *testing.T) {
	questions := []string{
		"\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?2026$p", "\x1b[4$p", "\x1b[>q",
		"\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b]4;1;?\x07", "\x1b]52;c;?\x07", "\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\",
		"\x1b[14t", "\x1b[18t", "\x1b[21t", "\x1b[?u", "\x1bZ", "\x05", "\x1b[x", "\x1b_Gi=1,a=q;\x1b\\",
	}
	for _, q := range questions {
		var r replay
		in := "a" + q + "b"
		var out []byte
		for i := range len(in) {
			out = append(out, r.filter([]byte(in[i:i+1]))...)
		}
		if string(out) != "ab" {
			t.Errorf("%q became %q", in, out)
		}
	}
	harmless := "\x1b[31mred\x1b[m\x1b[2J\x1b[1;1H\x1b]0;title\x07\x1b[?1049h\x1b[4 q\x1b[u\x1b[>4;2m\x1b[22;0t\x1b[8;24;80t\x1b[1;5r\x1b[2$x\ttext\r\n"
	var r replay
	if out := r.filter([]byte(harmless)); string(out) != strings.ReplaceAll(harmless, "\x1b[22;0t", "") {
		t.Errorf("%q became %q", harmless, out)
	}
}

func TestPlainText(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m\a text\r\n": "red text\n",
		"a\tb\bc\x00":                   "a\tbc",
		"\x1b]0;title\x07x":             "x",
		"\xc2\x9b31mgrün €":             "31mgrün €",
		"bad\xffbyte":                   "bad\ufffdbyte",
		"\x1bP" + strings.Repeat("s", 2*scanKeep) + "\x1b\\end": "end",
	} {
		for cut := range len(in) + 1 {
			if cut > 64 && cut < len(in)-8 {
				continue
			}
			var b bytes.Buffer
			p := &plain{w: &b}
			p.Write([]byte(in[:cut]))
			p.Write([]byte(in[cut:]))
			if b.String() != want {
				t.Errorf("%.40q cut at %d: %q, want %q", in, cut, b.String(), want)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b]0;t\x07\x1bP$q\x1b\\text\x1b"))
	f.Add([]byte("\x1b[\x1b0")) // cut short by another escape
	f.Fuzz(func(t *testing.T, in []byte) {
		var s scanner
		var out []byte
		s.feed(in, func(_ token, raw []byte) { out = append(out, raw...) })
		if s.state != scanGround {
			out = append(out, s.seq...)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("%q became %q", in, out)
		}
		var m modes
		m.follow(in)
		m.undo()
	})
}
