package edit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
)

// tabCells is how wide a tab in the text is drawn.
const tabCells = 2

// cells is the space a character of the text takes as it is drawn.
func cells(r rune) int {
	switch {
	case r == '\t':
		return tabCells
	case r == '\n':
		return 0
	case r < 0x20 || r == 0x7f:
		return 2
	case r >= 0x80 && r < 0xa0:
		return 1
	}
	return width.Rune(r)
}

// glyph is how a character of the text is drawn: never so that it acts.
func glyph(r rune) string {
	switch {
	case r == '\t':
		return strings.Repeat(" ", tabCells)
	case r < 0x20 || r == 0x7f:
		return "^" + string(r^0x40)
	case r >= 0x80 && r < 0xa0:
		return "?"
	}
	return string(r)
}

// screen knows where on the terminal the text is: how far below the row of
// the prompt the cursor was left.
type screen struct {
	prompt     string
	cols, rows int

	row int // the cursor's row, counted from the first row drawn
	top int // the first row of the layout that is shown

	// What was drawn last, to find its place again after a resize: the rows
	// and the cursor in them.
	drawn []string
	at    place
}

// place is a position in the layout.
type place struct{ row, col int }

// layout breaks prompt and text into rows of at most cols cells. A row ends
// with a line feed only where the text has one: elsewhere the terminal itself
// goes on to the next row, so that a selection copies one line.
func layout(prompt string, text []rune, cursor, cols int) (rows []string, at place) {
	var b strings.Builder
	col := 0
	next := func(end string) {
		b.WriteString(end)
		rows = append(rows, b.String())
		b.Reset()
		col = 0
	}
	put := func(r rune) { // a glyph of several cells may be broken, too
		for _, part := range glyph(r) {
			w := width.Rune(part)
			if col+w > cols {
				next("")
			}
			b.WriteRune(part)
			col += w
		}
	}
	for _, r := range prompt {
		put(r)
	}
	for i, r := range text {
		if i == cursor {
			at = place{len(rows), col}
			first, _ := utf8.DecodeRuneInString(glyph(r))
			if r != '\n' && col+width.Rune(first) > cols {
				at = place{len(rows) + 1, 0}
			}
		}
		if r == '\n' {
			next("\r\n")
			continue
		}
		put(r)
	}
	if col >= cols {
		// The terminal waits at the edge; move on, so that the cursor has a
		// cell of its own.
		next("\r\n")
	}
	if cursor >= len(text) {
		at = place{len(rows), col}
	}
	return append(rows, b.String()), at
}

// draw returns what replaces the last drawing by this one.
func (s *screen) draw(prompt string, text []rune, cursor int) string {
	rows, at := layout(prompt, text, cursor, s.cols)
	// A text higher than the screen is shown in part, around the cursor.
	switch {
	case len(rows) <= s.rows:
		s.top = 0
	case at.row < s.top:
		s.top = at.row
	case at.row >= s.top+s.rows:
		s.top = at.row - s.rows + 1
	}
	s.top = max(0, min(s.top, len(rows)-1))
	last := min(s.top+s.rows, len(rows))

	var b strings.Builder
	b.WriteString(up(s.row) + "\r\x1b[J")
	for i := s.top; i < last; i++ {
		row := rows[i]
		if i == last-1 {
			row = strings.TrimSuffix(row, "\r\n")
		}
		b.WriteString(row)
	}
	s.drawn, s.at = rows[s.top:last], place{at.row - s.top, at.col}
	b.WriteString(up(last - 1 - at.row))
	b.WriteByte('\r')
	if col := min(at.col, s.cols-1); col > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", col)
	}
	s.row = at.row - s.top
	return b.String()
}

func up(rows int) string {
	if rows <= 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", rows)
}

// resize finds the cursor's row again: a terminal breaks its rows anew. One
// that cuts them off instead cannot be told apart.
func (s *screen) resize(cols, rows int) {
	s.row = min(rewrapped(s.drawn, s.at, cols), rows-1)
	s.cols, s.rows = cols, rows
	s.top = 0
}

// rewrapped returns the row a cursor in drawn rows is in when these are broken
// anew. Rows belong together up to the next line feed, also one that only made
// room for the cursor; so this is not the layout of the text for that width.
func rewrapped(rows []string, at place, cols int) int {
	row, col := 0, 0
	for i, text := range rows[:min(at.row+1, len(rows))] {
		line, ended := strings.CutSuffix(text, "\r\n")
		old := 0
		for _, r := range line {
			w := width.Rune(r)
			if col+w > cols {
				row, col = row+1, 0
			}
			if i == at.row && old >= at.col && w > 0 {
				return row
			}
			col, old = col+w, old+w
		}
		if ended && i < at.row {
			row, col = row+1, 0
		}
	}
	return row
}

// forget says that the screen was erased and the cursor is at its top.
func (s *screen) forget() { s.row = 0 }
