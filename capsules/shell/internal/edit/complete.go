package edit

import (
	"slices"
	"strings"
)

// maxListed bounds a list of candidates.
const maxListed = 200

// complete replaces the word before the cursor by the only candidate, or adds
// what all candidates share; the second tab in a row lists them.
func (e *Editor) complete() {
	e.tabs++
	if e.Complete == nil {
		e.bell()
		return
	}
	found := e.Complete(string(e.text[:e.cursor]))
	start := max(0, min(found.Start, e.cursor))
	switch len(found.Words) {
	case 0:
		e.bell()
		return
	case 1:
		e.replace(start, found.Words[0])
		return
	}
	shared := commonPrefix(found.Words)
	if len([]rune(shared)) > e.cursor-start {
		e.replace(start, shared)
		return
	}
	if e.tabs < 2 {
		e.bell()
		return
	}
	e.list(found.Shown)
}

func (e *Editor) replace(start int, word string) {
	chars := []rune(word)
	if len(e.text)-(e.cursor-start)+len(chars) > maxLine {
		e.bell()
		return
	}
	e.text = slices.Replace(e.text, start, e.cursor, chars...)
	e.cursor = start + len(chars)
}

// list shows the candidates below the line and the line again below them.
func (e *Editor) list(names []string) {
	if e.Layout == nil {
		return
	}
	cursor := e.cursor
	e.cursor = len(e.text)
	e.draw()
	e.cursor = cursor
	e.emit("\r\n")
	more := ""
	if len(names) > maxListed {
		more = "...\r\n"
		names = names[:maxListed]
	}
	e.emit(strings.ReplaceAll(e.Layout(names, e.screen.cols), "\n", "\r\n") + more)
	e.screen.forget()
	e.dirty = true
}

// commonPrefix is the longest beginning all words share, in whole characters.
func commonPrefix(words []string) string {
	shared := []rune(words[0])
	for _, word := range words[1:] {
		chars := []rune(word)
		n := 0
		for n < len(shared) && n < len(chars) && shared[n] == chars[n] {
			n++
		}
		shared = shared[:n]
	}
	return string(shared)
}
