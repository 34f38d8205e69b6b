package cli

import (
	"bytes"
	"fmt"
	"strings"
)

// defaultDetachKey leaves a session.
const defaultDetachKey = `ctrl-\ d`

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// chord watches what is typed for the detach key: a prefix and a second key. The
// prefix twice sends it once; with any other key both are sent. Inside a
// bracketed paste nothing is taken. It works on a stream: where the bytes are
// split between two calls makes no difference.
type chord struct {
	prefix, second byte
	off            bool // there is no detach key

	held    bool // the prefix was typed, the key after it was not
	pasting bool
	matched int // bytes of the marker that begins, or ends, a paste
}

// parseChord reads a key description such as `ctrl-\ d`, or none.
func parseChord(text string) (chord, error) {
	if text == "none" {
		return chord{off: true}, nil
	}
	keys := strings.Fields(text)
	if len(keys) != 2 {
		return chord{}, fmt.Errorf(`%q is not two keys such as %s, and not "none"`, text, defaultDetachKey)
	}
	prefix, err := parseKey(keys[0])
	if err != nil {
		return chord{}, err
	}
	second, err := parseKey(keys[1])
	if err != nil {
		return chord{}, err
	}
	if prefix == second {
		return chord{}, fmt.Errorf("%q has the same key twice, which is how the key itself is sent", text)
	}
	if prefix == 0x1b {
		return chord{}, fmt.Errorf("%q begins with Escape, which begins every function key", text)
	}
	return chord{prefix: prefix, second: second}, nil
}

func parseKey(text string) (byte, error) {
	if len(text) == 1 && text[0] > ' ' && text[0] < 0x7f {
		return text[0], nil
	}
	key, ok := strings.CutPrefix(strings.ToLower(text), "ctrl-")
	if ok && len(key) == 1 {
		// The terminal's control key takes the upper bits away.
		if c := strings.ToUpper(key)[0]; c >= '@' && c <= '_' {
			return c & 0x1f, nil
		}
	}
	return 0, fmt.Errorf("%q is no key: want a character, or ctrl- and one of a-z @ [ \\ ] ^ _", text)
}

// feed takes what was typed and gives what is to be sent on. With detach set the
// rest of typed is dropped: it was meant for whoever has the terminal then.
func (c *chord) feed(typed []byte) (send []byte, detach bool) {
	if c.off {
		return typed, false
	}
	if !c.held && !c.pasting && c.matched == 0 && bytes.IndexByte(typed, c.prefix) < 0 && bytes.IndexByte(typed, 0x1b) < 0 {
		return typed, false
	}
	send = make([]byte, 0, len(typed)+1)
	for _, b := range typed {
		if c.held {
			c.held = false
			switch b {
			case c.second:
				return send, true
			case c.prefix:
				send = append(send, c.prefix)
				continue
			}
			send = append(send, c.prefix)
		}
		if b == c.prefix && !c.pasting {
			c.held, c.matched = true, 0
			continue
		}
		send = append(send, b)
		c.mark(b)
	}
	return send, false
}

// mark follows the markers of a bracketed paste.
func (c *chord) mark(b byte) {
	marker := pasteBegin
	if c.pasting {
		marker = pasteEnd
	}
	switch b {
	case marker[c.matched]:
		c.matched++
	case marker[0]:
		c.matched = 1
	default:
		c.matched = 0
	}
	if c.matched == len(marker) {
		c.pasting, c.matched = !c.pasting, 0
	}
}

// rest gives what is held back when nothing more will be typed.
func (c *chord) rest() []byte {
	if !c.held {
		return nil
	}
	c.held = false
	return []byte{c.prefix}
}
