// Package edit is the shell's line editor: a machine that takes the bytes of a
// terminal in raw mode and returns what to write to it.
//
// It owns the line, its history cursor and the place of the text on the
// screen. It reads nothing, writes nothing and knows no clock: whoever feeds
// it does the input and output, so that every behaviour can be tested with
// bytes alone. Arbitrary bytes never make it panic or lose the cursor. A
// Return in pasted text is a line break of the text, not a command to run.
package edit

import (
	"slices"
	"unicode"
)

// maxLine bounds a line in characters; more rings the bell.
const maxLine = 64 << 10

// Event is how a piece of input ended.
type Event int

// The events of Feed.
const (
	None   Event = iota // more input is needed
	Line                // a line was finished; Editor.Text returns it
	Cancel              // ^C: the line is to be forgotten
	End                 // ^D on an empty line
)

// Completion is what a word can become.
type Completion struct {
	// Start is the index in the line, in characters, where the word starts.
	Start int
	// Words are the candidates as they are to be inserted.
	Words []string
	// Shown are the same as they are to be listed.
	Shown []string
}

// Editor edits one line after the other. The zero value works, without history
// and completion.
type Editor struct {
	// Complete is asked what the text before the cursor can become.
	Complete func(before string) Completion
	// Layout lays out a list of candidates for a number of columns.
	Layout func(names []string, cols int) string
	// History is the list of earlier lines, oldest first.
	History []string

	text   []rune
	cursor int
	killed []rune
	dec    decoder

	at    int    // the place in the history; len(History) is the new line
	fresh []rune // the new line while an earlier one is shown

	search  searching
	tabs    int // how many times tab was pressed in a row
	screen  screen
	output  []byte
	dirty   bool
	lastKey key
}

// Text returns the line.
func (e *Editor) Text() string { return string(e.text) }

// Cursor returns the place of the cursor in characters.
func (e *Editor) Cursor() int { return e.cursor }

// Start begins a line: it returns the prompt and what else makes the terminal
// ready. The cursor must be at the start of an empty row.
func (e *Editor) Start(prompt string, cols, rows int) []byte {
	e.text, e.cursor = nil, 0
	e.at, e.fresh = len(e.History), nil
	e.search = searching{}
	e.tabs = 0
	e.screen = screen{prompt: prompt, cols: max(cols, 2), rows: max(rows, 2)}
	e.output = append(e.output[:0], pasteOn...)
	e.draw()
	return e.take()
}

const (
	pasteOn  = "\x1b[?2004h"
	pasteOff = "\x1b[?2004l"
)

// Resize tells that the terminal has another size now.
func (e *Editor) Resize(cols, rows int) []byte {
	cols, rows = max(cols, 2), max(rows, 2)
	if cols == e.screen.cols && rows == e.screen.rows {
		return nil
	}
	e.screen.resize(cols, rows)
	e.draw()
	return e.take()
}

// Feed takes input until an event happens. It returns what to write to the
// terminal and the input that was not used.
func (e *Editor) Feed(input []byte) (output []byte, event Event, rest []byte) {
	for i, b := range input {
		k := e.dec.next(b)
		if k == keyNone {
			continue
		}
		event = e.press(k)
		if k != keyTab {
			e.tabs = 0
		}
		e.lastKey = k
		if event != None {
			e.finish(event)
			return e.take(), event, input[i+1:]
		}
	}
	if e.dirty {
		e.draw()
	}
	return e.take(), None, nil
}

// take returns the output so far.
func (e *Editor) take() []byte {
	out := slices.Clone(e.output)
	e.output = e.output[:0]
	return out
}

func (e *Editor) emit(text string) { e.output = append(e.output, text...) }

func (e *Editor) bell() { e.emit("\a") }

// draw brings the screen up to date.
func (e *Editor) draw() {
	e.dirty = false
	prompt, text, cursor := e.screen.prompt, e.text, e.cursor
	if e.search.on {
		prompt = e.search.prompt()
		cursor = min(e.search.place, len(text))
	}
	e.emit(e.screen.draw(prompt, text, cursor))
}

// finish leaves the text on the screen and the cursor below it.
func (e *Editor) finish(event Event) {
	e.search = searching{}
	e.cursor = len(e.text)
	e.draw()
	if event == Cancel {
		e.emit("^C")
	}
	e.emit(pasteOff + "\r\n")
}

// press acts on one key.
func (e *Editor) press(k key) Event {
	if e.search.on {
		if done, event := e.searchKey(k); done {
			return event
		}
	}
	e.dirty = true
	switch k {
	case keyRune, keyPaste:
		e.insert([]rune{e.dec.char})
	case keyEnter:
		return Line
	case keyCancel:
		return Cancel
	case keyDeleteOrEnd:
		if len(e.text) == 0 {
			return End
		}
		e.remove(e.cursor, e.right(e.cursor))
	case keyTab:
		e.complete()
	case keyClear:
		e.emit("\x1b[H\x1b[2J")
		e.screen.forget()
	case keySearch:
		e.startSearch()
	case keyUp:
		e.recall(e.at - 1)
	case keyDown:
		e.recall(e.at + 1)
	case keyYank:
		e.insert(e.killed)
	default:
		e.moveOrKill(k)
	}
	return None
}

func (e *Editor) moveOrKill(k key) {
	switch k {
	case keyLeft:
		e.cursor = e.left(e.cursor)
	case keyRight:
		e.cursor = e.right(e.cursor)
	case keyHome:
		e.cursor = e.lineStart()
	case keyEnd:
		e.cursor = e.lineEnd()
	case keyWordLeft:
		e.cursor = e.wordLeft(isWordRune)
	case keyWordRight:
		e.cursor = e.wordRight()
	case keyBackspace:
		e.remove(e.left(e.cursor), e.cursor)
	case keyDelete:
		e.remove(e.cursor, e.right(e.cursor))
	case keyKillEnd:
		e.kill(e.cursor, e.lineEnd())
	case keyKillStart:
		e.kill(e.lineStart(), e.cursor)
	case keyKillWordLeft:
		e.kill(e.wordLeft(func(r rune) bool { return !unicode.IsSpace(r) }), e.cursor)
	case keyKillNameLeft:
		e.kill(e.wordLeft(isWordRune), e.cursor)
	case keyKillWordRight:
		e.kill(e.cursor, e.wordRight())
	case keySwap:
		e.swap()
	}
}

// insert puts characters at the cursor.
func (e *Editor) insert(chars []rune) {
	if len(e.text)+len(chars) > maxLine {
		e.bell()
		return
	}
	e.text = slices.Insert(e.text, e.cursor, chars...)
	e.cursor += len(chars)
}

func (e *Editor) remove(from, to int) {
	e.text = slices.Delete(e.text, from, to)
	e.cursor = from
}

// kill removes and keeps what it removed for a yank.
func (e *Editor) kill(from, to int) {
	if from == to {
		return
	}
	e.killed = slices.Clone(e.text[from:to])
	e.remove(from, to)
}

// swap exchanges the characters before and at the cursor.
func (e *Editor) swap() {
	at := min(e.cursor, len(e.text)-1)
	if at < 1 {
		return
	}
	e.text[at-1], e.text[at] = e.text[at], e.text[at-1]
	e.cursor = at + 1
}

// left is the place one character to the left, combining marks with it.
func (e *Editor) left(at int) int {
	for at > 0 {
		at--
		if cells(e.text[at]) > 0 || e.text[at] == '\n' {
			break
		}
	}
	return at
}

func (e *Editor) right(at int) int {
	if at < len(e.text) {
		at++
	}
	for at < len(e.text) && cells(e.text[at]) == 0 && e.text[at] != '\n' {
		at++
	}
	return at
}

// lineStart is the start of the row of the text the cursor is in.
func (e *Editor) lineStart() int {
	at := e.cursor
	for at > 0 && e.text[at-1] != '\n' {
		at--
	}
	return at
}

func (e *Editor) lineEnd() int {
	at := e.cursor
	for at < len(e.text) && e.text[at] != '\n' {
		at++
	}
	return at
}

func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func (e *Editor) wordLeft(in func(rune) bool) int {
	at := e.cursor
	for at > 0 && !in(e.text[at-1]) {
		at--
	}
	for at > 0 && in(e.text[at-1]) {
		at--
	}
	return at
}

func (e *Editor) wordRight() int {
	at := e.cursor
	for at < len(e.text) && !isWordRune(e.text[at]) {
		at++
	}
	for at < len(e.text) && isWordRune(e.text[at]) {
		at++
	}
	return at
}

// recall shows a line of the history, or the new line after the last.
func (e *Editor) recall(at int) {
	if at < 0 || at > len(e.History) {
		e.bell()
		return
	}
	if e.at == len(e.History) {
		e.fresh = e.text
	}
	e.at = at
	e.text = slices.Clone(e.fresh)
	if at < len(e.History) {
		e.text = clean(e.History[at])
	}
	e.cursor = len(e.text)
}

// clean makes a text of the history one that can be edited.
func clean(text string) []rune {
	chars := []rune(text)
	return chars[:min(len(chars), maxLine)]
}
