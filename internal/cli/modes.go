package cli

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// The private modes (DECSET) that would outlive a program on the operator's
// terminal.
const (
	modeCursorKeys  = 1
	modeReverse     = 5
	modeOrigin      = 6
	modeWrap        = 7
	modeMouseX10    = 9
	modeCursor      = 25
	modeAltScreen47 = 47
	modeLeftRight   = 69
	modeMouse       = 1000
	modeMouseDrag   = 1002
	modeMouseAny    = 1003
	modeFocus       = 1004
	modeMouseUTF8   = 1005
	modeMouseSGR    = 1006
	modeAltScroll   = 1007
	modeMouseURXVT  = 1015
	modeMousePixel  = 1016
	modeAltScreen   = 1047
	modeAltSaved    = 1049
	modePaste       = 2004
	modeSync        = 2026
	modeTheme       = 2031 // reports of a change of colours
	modeResize      = 2048 // reports of a change of size
)

// modes remembers which modes a program has changed on the terminal that shows
// it, so that exactly these can be put back.
type modes struct {
	scan   scanner
	set    map[int]bool // of those that are off by default
	hidden bool         // the cursor
	keypad bool
	sgr    bool // colours or the like may be in force
	margin bool // a scrolling region may be set
	noWrap bool
	insert bool
	glyphs bool // another character set may be in use
	shape  bool // of the cursor
	keys   int  // levels of the kitty keyboard protocol that were entered
	flags  bool // of the kitty keyboard protocol, set without a level
	other  bool // xterm's modifyOtherKeys
}

func leavesModes() []int {
	return []int{
		modeCursorKeys, modeMouseX10, modeMouse, modeMouseDrag, modeMouseAny, modeFocus, modeMouseUTF8,
		modeMouseSGR, modeMouseURXVT, modeMousePixel, modePaste, modeSync,
		modeReverse, modeOrigin, modeLeftRight, modeAltScroll, modeTheme, modeResize,
	}
}

func altScreens() []int { return []int{modeAltScreen47, modeAltScreen, modeAltSaved} }

// follow looks at output on its way to the terminal.
func (m *modes) follow(b []byte) {
	if m.set == nil {
		m.set = make(map[int]bool)
	}
	if bytes.IndexByte(b, shiftOut) >= 0 {
		m.glyphs = true
	}
	if m.scan.state == scanGround && bytes.IndexByte(b, 0x1b) < 0 {
		return
	}
	m.scan.feed(b, func(kind token, raw []byte) {
		if kind == tokenSequence && len(raw) > 1 {
			m.sequence(raw)
		}
	})
}

// shiftOut (SO) selects the second character set.
const shiftOut = 0x0e

func (m *modes) sequence(raw []byte) {
	switch raw[1] {
	case '(', ')':
		if raw[len(raw)-1] != 'B' {
			m.glyphs = true
		}
	case '=':
		m.keypad = true
	case '>':
		m.keypad = false
	case 'c': // RIS
		*m = modes{scan: m.scan, set: make(map[int]bool)}
	case '[':
		if len(raw) > 2 { // else a second ESC has cut it short
			m.control(raw[2:len(raw)-1], raw[len(raw)-1])
		}
	}
}

func (m *modes) control(params []byte, final byte) {
	switch {
	case final == 'm' && (len(params) == 0 || params[0] <= ';'):
		m.sgr = len(bytes.Trim(params, "0;")) > 0
	case final == 'r' && (len(params) == 0 || params[0] <= ';'):
		m.margin = len(params) > 0
	case final == 'p' && string(params) == "!": // DECSTR
		m.hidden, m.keypad, m.sgr, m.margin, m.insert = false, false, false, false, false
		delete(m.set, modeCursorKeys)
		delete(m.set, modeOrigin)
	case final == 'u' && len(params) > 0:
		m.keyboard(params[0], params[1:])
	case final == 'm' && bytes.HasPrefix(params, []byte(">4")):
		m.other = len(params) > 2 && !bytes.Equal(params, []byte(">4;0"))
	case final == 'q' && bytes.HasSuffix(params, []byte(" ")):
		m.shape = len(bytes.Trim(params, "0 ")) > 0
	case (final == 'h' || final == 'l') && string(params) == "4":
		m.insert = final == 'h'
	case (final == 'h' || final == 'l') && len(params) > 0 && params[0] == '?':
		for part := range strings.SplitSeq(string(params[1:]), ";") {
			if n, err := strconv.Atoi(part); err == nil {
				m.private(n, final == 'h')
			}
		}
	}
}

// keyboard follows the kitty keyboard protocol: > enters a level, < leaves some, =
// changes the present one.
func (m *modes) keyboard(what byte, params []byte) {
	switch what {
	case '>':
		m.keys++
	case '<':
		n, err := strconv.Atoi(string(params))
		if err != nil {
			n = 1
		}
		m.keys = max(0, m.keys-max(n, 1))
	case '=':
		m.flags = true
	}
}

func (m *modes) private(n int, on bool) {
	switch {
	case n == modeCursor:
		m.hidden = !on
	case n == modeWrap:
		m.noWrap = !on
	case on && (slices.Contains(leavesModes(), n) || slices.Contains(altScreens(), n)):
		m.set[n] = true
	case !on:
		delete(m.set, n)
	}
}

// undo is what to write so that the terminal is as it was before. Nothing when
// nothing was changed.
func (m *modes) undo() []byte {
	var b []byte
	if m.scan.state != scanGround {
		b = append(b, 0x18) // CAN: the terminal is in the middle of a sequence
	}
	off := func(n int) {
		if m.set[n] {
			b = append(b, "\x1b[?"...)
			b = strconv.AppendInt(b, int64(n), 10)
			b = append(b, 'l')
		}
	}
	for _, n := range leavesModes() {
		off(n)
	}
	if m.keys > 0 {
		b = append(b, "\x1b[<"...)
		b = strconv.AppendInt(b, int64(m.keys), 10)
		b = append(b, 'u')
	}
	for _, one := range []struct {
		changed bool
		undo    string
	}{
		{m.flags, "\x1b[=0u"},
		{m.other, "\x1b[>4m"},
		{m.insert, "\x1b[4l"},
		{m.noWrap, "\x1b[?7h"},
		{m.glyphs, "\x1b(B\x1b)B\x0f"},
		{m.shape, "\x1b[0 q"},
		{m.keypad, "\x1b>"},
	} {
		if one.changed {
			b = append(b, one.undo...)
		}
	}
	if m.margin {
		// Setting the margins moves the cursor home.
		b = append(b, "\x1b7\x1b[r\x1b8"...)
	}
	if m.sgr {
		b = append(b, "\x1b[m"...)
	}
	for _, n := range altScreens() {
		off(n)
	}
	if m.hidden {
		b = append(b, "\x1b[?25h"...)
	}
	return b
}
