package edit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
	"pgregory.net/rapid"
)

// desk is an editor at a terminal.
type desk struct {
	*Editor
	grid *grid
}

func newDesk(t failing, cols int) *desk {
	d := &desk{Editor: &Editor{Layout: func(names []string, _ int) string { return strings.Join(names, "\n") + "\n" }}, grid: newGrid(t, cols, 100)}
	d.start()
	return d
}

func (d *desk) start() { d.grid.write(d.Start("$ ", d.grid.cols, d.grid.height)) }

// types feeds keys one by one or all at once, and returns the last event.
func (d *desk) types(keys string) Event {
	rest := []byte(keys)
	var event Event
	for len(rest) > 0 {
		var out []byte
		out, event, rest = d.Feed(rest)
		d.grid.write(out)
		if event != None {
			break
		}
	}
	return event
}

const (
	up_    = "\x1b[A"
	down_  = "\x1b[B"
	right_ = "\x1b[C"
	left_  = "\x1b[D"
)

func TestKeysEditTheLine(t *testing.T) {
	for _, tc := range []struct{ keys, want string }{
		{"abc", "abc|"},
		{"abc" + left_ + left_ + "x", "ax|bc"},
		{"abc\x01x", "x|abc"},
		{"abc\x01\x05x", "abcx|"},
		{"abc\x1b[H\x1b[3~", "|bc"},
		{"abc\x1bOH\x04", "|bc"},
		{"abc\x1b[1~\x1b[4~x", "abcx|"},
		{"abc\x02\x02\x06x", "abx|c"},
		{"abc\x7f\x08", "a|"},
		{"\x7f", "|"},
		{"one two\x17", "one |"},
		{"one two\x17\x17", "|"},
		{"one/two\x1b\x7f", "one/|"},
		{"one two three\x1bb\x1bbX", "one X|two three"},
		{"one two\x01\x1bfX", "oneX| two"},
		{"one two\x01\x1bd", "| two"},
		{"one two\x01\x1b[1;5CX", "oneX| two"},
		{"one two\x1b[1;5DX", "one X|two"},
		{"one two" + left_ + left_ + "\x0b", "one t|"},
		{"one two" + left_ + left_ + "\x15", "|wo"},
		{"one two\x17\x19\x19", "one twotwo|"},
		{"ab\x14", "ba|"},
		{"abc" + left_ + "\x14", "acb|"},
		{"日本語" + left_ + left_ + "x", "日x|本語"},
		{"日本\x7f", "日|"},
		{"e\u0301x" + left_ + left_ + "a", "a|e\u0301x"},
		{"e\u0301\x7f", "|"},
		{"e\u0301x\x01\x1b[3~", "|x"},
		{"a\x1b[99;99zb", "ab|"},
		{"a\x1b[" + strings.Repeat("1;", 40) + "Ab", "ab|"},
		{"a\x1bzb", "ab|"},
		{"\x1b\x1b[Da", "a|"},
		{"a\x1b[200~b\nc\x01\td\x1b[201~e", "ab\nc\tde|"},
		{"a\x1b[200~b\x1b[Ac\x1b[201~", "abc|"},
		{"\xff\xc3(", "\ufffd(|"},
		{"a\x00b", "ab|"},
	} {
		d := newDesk(t, 80)
		d.types(tc.keys)
		text := []rune(d.Text())
		got := string(text[:d.Cursor()]) + "|" + string(text[d.Cursor():])
		if got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.keys, got, tc.want)
		}
	}
}

func TestKeysEndTheLine(t *testing.T) {
	for _, tc := range []struct {
		keys string
		want Event
	}{
		{"abc\r", Line},
		{"abc\n", Line},
		{"abc\x03", Cancel},
		{"\x04", End},
		{"a\x04", None},
		{"a\x07", None},
		{"\x1b[200~a\r", None},
		{"\x1b[200~a\x03", Cancel},
		{"\x12a\x03", Cancel},
		{"\x12a\r", Line},
	} {
		d := newDesk(t, 80)
		if got := d.types(tc.keys); got != tc.want {
			t.Errorf("%q: event %v, want %v", tc.keys, got, tc.want)
		}
		if d.grid.paste != (tc.want == None) {
			t.Errorf("%q: bracketed paste is %v", tc.keys, d.grid.paste)
		}
	}
}

func TestInputAfterALineIsKept(t *testing.T) {
	d := newDesk(t, 80)
	_, event, rest := d.Feed([]byte("one\rtwo\r"))
	if event != Line || d.Text() != "one" || string(rest) != "two\r" {
		t.Errorf("got %v %q %q", event, d.Text(), rest)
	}
}

func TestTheScreenShowsTheText(t *testing.T) {
	for _, tc := range []struct {
		cols     int
		keys     string
		want     string
		row, col int
	}{
		{10, "abc", "$ abc", 0, 5},
		{10, "abcdefgh", "$ abcdefgh", 1, 0},
		{10, "abcdefghi", "$ abcdefgh\ni", 1, 1},
		{10, "abcdefghi\x01", "$ abcdefgh\ni", 0, 2},
		{10, "abcdefghi\x01x", "$ xabcdefg\nhi", 0, 3},
		{10, "abcdefghi" + left_, "$ abcdefgh\ni", 1, 0},
		{10, "abcdefghi\x7f\x7f\x7f", "$ abcdef", 0, 8},
		{10, "abcdefg日", "$ abcdefg\n日", 1, 2},
		{10, "abcdefg日" + left_, "$ abcdefg\n日", 1, 0},
		{10, "abcdef日", "$ abcdef日", 1, 0},
		{10, "e\u0301e\u0301", "$ e\u0301e\u0301", 0, 4},
		{10, "abcdefgh\u0301", "$ abcdefgh\u0301", 1, 0},
		{10, "\x1b[200~a\nb\x1b[201~", "$ a\nb", 1, 1},
		{10, "\x1b[200~abcdefgh\nb\x1b[201~\x01", "$ abcdefgh\nb", 1, 0},
		{10, "\x1b[200~abcdefgh\nb\x1b[201~" + left_ + left_, "$ abcdefgh\nb", 0, 9},
		{10, "\x1b[200~\t|\x1b[201~", "$   |", 0, 5},
		{10, strings.Repeat("x", 30) + "\x15", "$", 0, 2},
	} {
		for _, chunked := range []bool{true, false} {
			d := newDesk(t, tc.cols)
			if chunked {
				d.types(tc.keys)
			} else {
				for i := range len(tc.keys) {
					d.types(tc.keys[i : i+1])
				}
			}
			if d.grid.text() != tc.want || d.grid.row != tc.row || d.grid.col != tc.col {
				t.Errorf("%q at %d: got %q at %d,%d; want %q at %d,%d", tc.keys, tc.cols,
					d.grid.text(), d.grid.row, d.grid.col, tc.want, tc.row, tc.col)
			}
		}
	}
}

func TestAFinishedLineLeavesTheCursorBelowIt(t *testing.T) {
	d := newDesk(t, 10)
	d.types("abcdefghijk\x01\r")
	d.start()
	d.types("x")
	if want := "$ abcdefgh\nijk\n$ x"; d.grid.text() != want {
		t.Errorf("got %q, want %q", d.grid.text(), want)
	}
	d.types("y\x03")
	d.start()
	if want := "$ abcdefgh\nijk\n$ xy^C\n$"; d.grid.text() != want {
		t.Errorf("got %q, want %q", d.grid.text(), want)
	}
}

func TestAHighTextIsShownAroundTheCursor(t *testing.T) {
	d := &desk{Editor: &Editor{}, grid: newGrid(t, 10, 4)}
	d.start()
	var text []string
	for i := range 10 {
		text = append(text, fmt.Sprint("row", i))
	}
	d.types("\x1b[200~" + strings.Join(text, "\n") + "\x1b[201~")
	screen := func() string {
		lines := strings.Split(d.grid.text(), "\n")
		return strings.Join(lines[max(0, len(lines)-4):], " ")
	}
	if got := screen(); got != "row6 row7 row8 row9" {
		t.Errorf("at the end: %q", got)
	}
	d.types(strings.Repeat(left_, 25))
	if got := screen(); got != "row4 row5 row6 row7" {
		t.Errorf("in the middle: %q", got)
	}
	d.types(strings.Repeat(left_, 100))
	if got := screen(); got != "$ row0 row1 row2 row3" || d.Cursor() != 0 {
		t.Errorf("at the start: %q", got)
	}
}

func TestResizeDrawsTheLineAnew(t *testing.T) {
	d := newDesk(t, 20)
	d.types("abcdefghijklmnopqrs")
	// The terminal breaks the rows anew before it tells.
	d.grid = newGrid(t, 10, 100)
	d.grid.write([]byte("$ abcdefghijklmnopqrs"))
	d.grid.write(d.Resize(10, 100))
	if want := "$ abcdefgh\nijklmnopqr\ns"; d.grid.text() != want {
		t.Errorf("got %q, want %q", d.grid.text(), want)
	}
	d.types("t")
	if want := "$ abcdefgh\nijklmnopqr\nst"; d.grid.text() != want {
		t.Errorf("then %q, want %q", d.grid.text(), want)
	}
	if out := d.Resize(10, 100); out != nil {
		t.Errorf("no change draws %q", out)
	}
}

func TestResizeLeavesNothingOfTheOldDrawing(t *testing.T) {
	check := func(t failing, from, to, back int, text string) {
		d := &desk{Editor: &Editor{}, grid: newGrid(t, from, 100)}
		d.grid.write([]byte("old\r\n"))
		d.start()
		keys := "\x1b[200~" + text + "\x1b[201~" + strings.Repeat(left_, back)
		d.types(keys)
		d.grid.resize(to)
		d.grid.write(d.Resize(to, 100))
		fresh := &desk{Editor: &Editor{}, grid: newGrid(t, to, 100)}
		fresh.grid.write([]byte("old\r\n"))
		fresh.start()
		fresh.types(keys)
		if got, want := d.grid.text(), fresh.grid.text(); got != want {
			t.Fatalf("%q from %d to %d, %d back:\n%s\nwant\n%s", text, from, to, back, got, want)
		}
		if d.grid.row != fresh.grid.row || d.grid.col != fresh.grid.col {
			t.Fatalf("%q from %d to %d, %d back: the cursor is at %d,%d, want %d,%d", text, from, to, back,
				d.grid.row, d.grid.col, fresh.grid.row, fresh.grid.col)
		}
	}
	check(t, 40, 17, 0, strings.Repeat("x", 38)) // the line ends at the edge
	check(t, 40, 60, 0, strings.Repeat("x", 38))
	check(t, 20, 7, 30, strings.Repeat("x", 50))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abc日\n")), 0, 80, -1).Draw(t, "text")
		check(t, rapid.IntRange(4, 30).Draw(t, "from"), rapid.IntRange(4, 30).Draw(t, "to"), rapid.IntRange(0, 90).Draw(t, "back"), text)
	})
}

func TestClearKeepsTheLine(t *testing.T) {
	d := newDesk(t, 20)
	d.types("old\r")
	d.start()
	d.types("new\x0c")
	if got := d.grid.text(); got != "$ new" || d.grid.row != 0 {
		t.Errorf("got %q in row %d", got, d.grid.row)
	}
}

func TestHistoryIsRecalled(t *testing.T) {
	d := newDesk(t, 40)
	d.History = []string{"first", "second"}
	d.start()
	for _, s := range []struct{ keys, want string }{
		{"fre", "fre"},
		{up_, "second"},
		{up_, "first"},
		{up_, "first"},
		{"!", "first!"},
		{down_, "second"},
		{"\x0e", "fre"},
		{down_, "fre"},
		{"sh", "fresh"},
		{"\x10", "second"},
	} {
		if d.types(s.keys); d.Text() != s.want {
			t.Errorf("after %q: %q, want %q", s.keys, d.Text(), s.want)
		}
	}
	if d.History[0] != "first" {
		t.Error("the history was changed")
	}
}

func TestSearchFindsTheNewestLine(t *testing.T) {
	d := newDesk(t, 60)
	d.History = []string{"make test", "ls -l", "make build", "cd x"}
	d.start()
	for _, s := range []struct{ keys, shown string }{
		{"abc\x12", "(search)`': abc"},
		{"mak", "(search)`mak': make build"},
		{"\x12", "(search)`mak': make test"},
		{"\x12", "(failed search)`mak': make test"},
		{"\x7f", "(search)`ma': make build"},
		{"\x07", "$ abc"},
		{"\x12ls\x05!", "$ ls -l!"},
	} {
		if d.types(s.keys); d.grid.text() != s.shown {
			t.Errorf("after %q: %q, want %q", s.keys, d.grid.text(), s.shown)
		}
	}
	if event := d.types("\x12make\r"); event != Line || d.Text() != "make build" {
		t.Errorf("accepted %q, event %v", d.Text(), event)
	}
}

func TestTabCompletes(t *testing.T) {
	words := map[string]Completion{
		"ca":     {Start: 0, Words: []string{"cat "}, Shown: []string{"cat"}},
		"cat b":  {Start: 4, Words: []string{"beta", "beth"}, Shown: []string{"beta", "beth"}},
		"cat be": {Start: 4, Words: []string{"beta", "beth"}, Shown: []string{"beta", "beth"}},
	}
	d := newDesk(t, 40)
	d.Complete = func(before string) Completion { return words[before] }
	if d.types("ca\t"); d.Text() != "cat " {
		t.Errorf("one candidate: %q", d.Text())
	}
	if d.types("b\t"); d.Text() != "cat bet" {
		t.Errorf("what they share: %q", d.Text())
	}
	words["cat bet"] = words["cat be"]
	bells := d.grid.bells
	if d.types("\t"); d.grid.text() != "$ cat bet\nbeta\nbeth\n$ cat bet" || d.grid.bells != bells {
		t.Errorf("the list: %q", d.grid.text())
	}
	if d.types("x\t"); d.Text() != "cat betx" || d.grid.bells == bells {
		t.Errorf("no candidate: %q, %d bells", d.Text(), d.grid.bells)
	}
	if d.types("\x01\t"); d.Text() != "cat betx" {
		t.Errorf("at the start: %q", d.Text())
	}
}

func TestHistoryLinesSurviveTheirFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringN(1, 20, -1)).Draw(t, "lines")
		text := ""
		for _, line := range lines {
			text += EncodeLine(line)
		}
		got := DecodeHistory(text+"cut o", 1000)
		if strings.Join(got, "\x00") != strings.Join(lines, "\x00") {
			t.Fatalf("got %q, want %q", got, lines)
		}
	})
}

func TestWhatIsRemembered(t *testing.T) {
	var history []string
	for _, line := range []string{"a", "a", " secret", "", "  ", "b\n", "c", "a"} {
		history, _ = Remember(history, line, 3)
	}
	if got := strings.Join(history, ","); got != "b,c,a" {
		t.Errorf("got %s", got)
	}
}

// checkEditor feeds chunks and checks what must always hold.
func checkEditor(t failing, cols, rows int, chunks [][]byte) {
	d := &desk{Editor: &Editor{
		History: []string{"one", "two\nlines", strings.Repeat("日本", 30)},
		Complete: func(before string) Completion {
			return Completion{Start: len([]rune(before)) / 2, Words: []string{"wörd", "wört"}, Shown: []string{"a", "b"}}
		},
		Layout: func(names []string, _ int) string { return strings.Join(names, "\n") + "\n" },
	}, grid: newGrid(t, cols, rows)}
	d.start()
	for i, chunk := range chunks {
		for len(chunk) > 0 {
			out, event, rest := d.Feed(chunk)
			d.grid.write(out)
			if d.Cursor() < 0 || d.Cursor() > len([]rune(d.Text())) {
				t.Fatalf("the cursor is at %d of %q", d.Cursor(), d.Text())
			}
			if event != None {
				d.start()
			} else {
				checkScreen(t, d)
			}
			chunk = rest
		}
		if i%4 == 3 {
			d.grid = newGrid(t, cols+1+i%8, rows)
			d.grid.write(d.Resize(d.grid.cols, rows))
		}
	}
}

// checkScreen compares the screen with the text, blanks aside, when all of it
// fits.
func checkScreen(t failing, d *desk) {
	rows, at := layout(d.screen.prompt, d.text, d.cursor, d.grid.cols)
	if d.search.on || len(rows) > d.grid.height {
		return
	}
	want := d.screen.prompt
	for _, r := range d.text {
		if r != '\n' {
			want += glyph(r)
		}
	}
	first := d.grid.row - at.row
	if first < 0 {
		t.Fatalf("the cursor is in row %d, but %d below the prompt", d.grid.row, at.row)
	}
	shown := ""
	for _, row := range d.grid.rows[first:] {
		shown += strings.Join(row, "")
	}
	// A combining mark at the start of a row has nothing to combine with.
	squeeze := func(text string) string {
		return strings.Map(func(r rune) rune {
			if r == ' ' || width.Rune(r) == 0 {
				return -1
			}
			return r
		}, text)
	}
	if got, want := squeeze(shown), squeeze(want); got != want {
		t.Fatalf("the screen shows %q, the text is %q", got, want)
	}
}

func TestAnyInputKeepsTheEditorSound(t *testing.T) {
	keys := []string{
		"a", "日", "e\u0301", "\u0301", "\t", "\x7f", up_, down_, left_, right_, "\x01", "\x05", "\x0b", "\x15", "\x17",
		"\x19", "\x14", "\x12", "\x07", "\x0c", "\r", "\x03", "\x04", "\x1b", "\x1b[200~", "\x1b[201~", "\n", "\x1bd", "long words here ",
	}
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.Map(rapid.SampledFrom(keys), func(s string) []byte { return []byte(s) }),
			rapid.SliceOfN(rapid.Byte(), 0, 8),
		)
		cols := rapid.IntRange(2, 30).Draw(t, "cols")
		rows := rapid.IntRange(2, 10).Draw(t, "rows")
		checkEditor(t, cols, rows, rapid.SliceOf(piece).Draw(t, "pieces"))
	})
}

func FuzzEditor(f *testing.F) {
	f.Add(uint8(10), []byte("abc\x1b[D日\x12a\r\x1b[200~x\ny\x1b[201~\x0c\t\t"))
	f.Fuzz(func(t *testing.T, cols uint8, input []byte) {
		input = input[:min(len(input), 2048)] // each chunk draws: long inputs only cost time
		var chunks [][]byte
		for len(input) > 7 {
			chunks = append(chunks, input[:7])
			input = input[7:]
		}
		checkEditor(t, 2+int(cols)%40, 5, append(chunks, input))
	})
}
