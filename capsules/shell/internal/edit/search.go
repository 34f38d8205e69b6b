package edit

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// searching is a search backwards through the history.
type searching struct {
	on     bool
	query  []rune
	at     int // the line of the history that is shown
	place  int // where in it the query is, in characters
	failed bool

	before []rune // the line as it was, for a search that is given up
	cursor int
}

func (s *searching) prompt() string {
	state := ""
	if s.failed {
		state = "failed "
	}
	return "(" + state + "search)`" + string(s.query) + "': "
}

// startSearch begins a search from the newest line.
func (e *Editor) startSearch() {
	e.search = searching{on: true, at: len(e.History), before: slices.Clone(e.text), cursor: e.cursor}
}

// searchKey acts on a key of a search. A key that has no meaning in one ends
// it and acts on the line that was found: then done is false.
func (e *Editor) searchKey(k key) (done bool, event Event) {
	s := &e.search
	e.dirty = true
	switch k {
	case keyRune, keyPaste:
		if len(s.query) >= maxLine {
			e.bell()
			return true, None
		}
		s.query = append(s.query, e.dec.char)
		e.find(min(s.at, len(e.History)-1))
		return true, None
	case keyBackspace:
		if len(s.query) > 0 {
			s.query = s.query[:len(s.query)-1]
			e.find(len(e.History) - 1)
		}
		return true, None
	case keySearch:
		e.find(s.at - 1)
		return true, None
	case keyAbort:
		e.text, e.cursor = s.before, s.cursor
		e.search = searching{}
		return true, None
	case keyEscape, keyPasteEnd:
		e.accept()
		return true, None
	}
	e.accept()
	return false, None
}

// accept goes on with the line that was found.
func (e *Editor) accept() {
	e.cursor = min(e.search.place, len(e.text))
	if e.search.at < len(e.History) {
		e.at = e.search.at
	}
	e.search = searching{}
}

// find shows the newest line up to index from that contains the query.
func (e *Editor) find(from int) {
	s := &e.search
	query := string(s.query)
	s.failed = false
	if query == "" {
		return
	}
	for i := min(from, len(e.History)-1); i >= 0; i-- {
		if at := strings.Index(e.History[i], query); at >= 0 {
			s.at = i
			s.place = utf8.RuneCountInString(e.History[i][:at])
			e.text = clean(e.History[i])
			e.cursor = min(s.place, len(e.text))
			return
		}
	}
	s.failed = true
	e.bell()
}
