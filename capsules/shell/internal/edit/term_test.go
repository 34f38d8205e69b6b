package edit

import (
	"strings"
	"unicode/utf8"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
)

// cell is what a place of the screen shows: "" for the right half of a wide
// character.
const (
	blank = " "
	half  = ""
)

// failing is a test, or a property of one.
type failing interface {
	Fatalf(format string, args ...any)
}

// grid is a small terminal: it knows what the editor is allowed to use, and
// fails the test on anything else.
type grid struct {
	t        failing
	cols     int
	rows     [][]string
	soft     []bool // the row goes on in the next one
	row, col int
	wrap     bool // at the edge: the next character goes to the next row
	height   int  // rows of the screen; older ones cannot be reached
	bells    int
	paste    bool
}

func newGrid(t failing, cols, height int) *grid {
	g := &grid{t: t, cols: cols, height: height}
	g.newRow()
	return g
}

func (g *grid) newRow() {
	row := make([]string, g.cols)
	for i := range row {
		row[i] = blank
	}
	g.rows = append(g.rows, row)
	g.soft = append(g.soft, false)
}

// top is the first row on the screen.
func (g *grid) top() int { return max(0, len(g.rows)-g.height) }

func (g *grid) lineFeed() {
	if g.row++; g.row == len(g.rows) {
		g.newRow()
	}
}

func (g *grid) write(out []byte) {
	text := string(out)
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case strings.HasPrefix(text, "\x1b["):
			end := 2
			for text[end] < 0x40 || text[end] == '[' {
				end++
			}
			g.control(text[2:end], text[end])
			size = end + 1
		case r == '\r':
			g.col, g.wrap = 0, false
		case r == '\n':
			g.lineFeed()
			g.wrap = false
		case r == '\b':
			g.col, g.wrap = max(0, g.col-1), false
		case r == '\a':
			g.bells++
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			g.t.Fatalf("control %q reaches the terminal", r)
		default:
			g.put(r)
		}
		text = text[size:]
	}
}

func (g *grid) put(r rune) {
	w := width.Rune(r)
	if w == 0 {
		at := g.col - 1
		if g.wrap {
			at = g.cols - 1
		}
		for at > 0 && g.rows[g.row][at] == half {
			at--
		}
		if at >= 0 {
			g.rows[g.row][at] += string(r)
		}
		return
	}
	if g.wrap || g.col+w > g.cols {
		g.soft[g.row] = true
		g.lineFeed()
		g.col, g.wrap = 0, false
	}
	g.rows[g.row][g.col] = string(r)
	if w == 2 {
		g.rows[g.row][g.col+1] = half
	}
	g.col += w
	if g.col >= g.cols {
		g.col, g.wrap = g.cols-1, true
	}
}

func (g *grid) control(params string, final byte) {
	n := 0
	for _, ch := range params {
		if ch >= '0' && ch <= '9' {
			n = n*10 + int(ch-'0')
		}
	}
	switch {
	case final == 'A':
		g.row, g.wrap = max(g.top(), g.row-max(n, 1)), false
	case final == 'C':
		g.col, g.wrap = min(g.cols-1, g.col+max(n, 1)), false
	case final == 'J' && params == "":
		for i := g.col; i < g.cols; i++ {
			g.rows[g.row][i] = blank
		}
		g.rows = g.rows[:g.row+1]
		g.soft = append(g.soft[:g.row], false)
		g.wrap = false
	case final == 'J' && params == "2":
		g.rows, g.soft = nil, nil
		for range g.row + 1 {
			g.newRow()
		}
	case final == 'H' && params == "":
		g.row, g.col, g.wrap = g.top(), 0, false
	case (final == 'h' || final == 'l') && params == "?2004":
		g.paste = final == 'h'
	default:
		g.t.Fatalf("sequence %q%c reaches the terminal", params, final)
	}
}

// text is what the screen shows, without blanks at the ends of rows.
func (g *grid) text() string {
	var lines []string
	for _, row := range g.rows {
		lines = append(lines, strings.TrimRight(strings.Join(row, ""), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// resize breaks the rows anew, as most terminals do. Blanks at the end of a
// line are taken for never written.
func (g *grid) resize(cols int) {
	old := *g
	g.cols, g.rows, g.soft, g.row, g.col, g.wrap = cols, nil, nil, 0, 0, false
	g.newRow()
	var found place
	for row := 0; row < len(old.rows); {
		var line []string
		cursor := -1
		for {
			if row == old.row {
				cursor = len(line) + old.col
			}
			line = append(line, old.rows[row]...)
			if row++; !old.soft[row-1] {
				break
			}
			if old.rows[row][1] == half && line[len(line)-1] == blank {
				line = line[:len(line)-1] // there was no room for a wide character
			}
		}
		for len(line) > max(cursor, 0) && line[len(line)-1] == blank {
			line = line[:len(line)-1]
		}
		at := g.putLine(line, cursor)
		if row < len(old.rows) {
			g.lineFeed()
			g.col, g.wrap = 0, false
		}
		if cursor >= 0 {
			found = at
		}
	}
	g.row, g.col, g.wrap = found.row, found.col, false
}

// putLine writes the cells of a line and returns where its cell cursor is now.
func (g *grid) putLine(line []string, cursor int) (at place) {
	for i, cell := range line {
		for _, r := range cell {
			g.put(r)
		}
		if i == cursor {
			at = place{g.row, max(0, g.col-1)}
			if g.wrap {
				at.col = g.cols - 1
			}
			if i+1 < len(line) && line[i+1] == half && at.col > 0 {
				at.col--
			}
		}
	}
	if cursor >= len(line) {
		at = place{g.row, g.col}
	}
	return at
}
