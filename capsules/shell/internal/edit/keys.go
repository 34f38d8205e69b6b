package edit

import "unicode/utf8"

// key is what one or more bytes of input mean.
type key int

const (
	keyNone  key = iota
	keyRune      // a character, in decoder.char
	keyPaste     // a character that was pasted, in decoder.char
	keyEnter
	keyTab
	keyBackspace
	keyDelete
	keyLeft
	keyRight
	keyUp
	keyDown
	keyHome
	keyEnd
	keyWordLeft
	keyWordRight
	keyKillEnd
	keyKillStart
	keyKillWordLeft // up to a blank
	keyKillNameLeft // letters and digits
	keyKillWordRight
	keyYank
	keySwap
	keyClear
	keySearch
	keyCancel // ^C
	keyAbort  // ^G
	keyDeleteOrEnd
	keyEscape // a key with no meaning here
	keyPasteEnd
)

// maxSequence bounds what is kept of an escape sequence; a longer one has no
// meaning here.
const maxSequence = 32

// decoder turns bytes into keys. It keeps what it needs to go on when the
// bytes of a key arrive one by one.
type decoder struct {
	pending []byte
	paste   bool
	char    rune
}

// next takes one byte and returns the key it completes, or keyNone.
func (d *decoder) next(b byte) key {
	d.pending = append(d.pending, b)
	k, done := d.decode()
	if done {
		d.pending = d.pending[:0]
	}
	return k
}

// decode reads the pending bytes; done is false when more must come.
func (d *decoder) decode() (k key, done bool) {
	first := d.pending[0]
	switch {
	case first == 0x1b:
		return d.escape()
	case first < utf8.RuneSelf:
		if d.paste && first == 0x03 {
			d.paste = false // a paste whose end was lost must not hold anyone
		}
		if d.paste {
			return d.pasted(rune(first)), true
		}
		return control(first, &d.char), true
	case len(d.pending) > 1 && utf8.RuneStart(d.pending[len(d.pending)-1]):
		// A character broke off: what came instead counts.
		d.pending = append(d.pending[:0], d.pending[len(d.pending)-1])
		return d.decode()
	case !utf8.FullRune(d.pending):
		return keyNone, false
	}
	d.char, _ = utf8.DecodeRune(d.pending)
	if d.paste {
		return keyPaste, true
	}
	return keyRune, true
}

// pasted is a character of pasted text: a line end is text there, other
// controls but the tab are dropped.
func (d *decoder) pasted(r rune) key {
	switch {
	case r == '\r' || r == '\n':
		d.char = '\n'
	case r < 0x20 && r != '\t' || r == 0x7f:
		return keyNone
	default:
		d.char = r
	}
	return keyPaste
}

// control is the meaning of a byte of ASCII.
func control(b byte, char *rune) key {
	switch b {
	case 0x01:
		return keyHome
	case 0x02:
		return keyLeft
	case 0x03:
		return keyCancel
	case 0x07:
		return keyAbort
	case 0x04:
		return keyDeleteOrEnd
	case 0x05:
		return keyEnd
	case 0x06:
		return keyRight
	case 0x08, 0x7f:
		return keyBackspace
	case '\t':
		return keyTab
	case '\n', '\r':
		return keyEnter
	case 0x0b:
		return keyKillEnd
	case 0x0c:
		return keyClear
	case 0x0e:
		return keyDown
	case 0x10:
		return keyUp
	case 0x12:
		return keySearch
	case 0x14:
		return keySwap
	case 0x15:
		return keyKillStart
	case 0x17:
		return keyKillWordLeft
	case 0x19:
		return keyYank
	}
	if b < 0x20 {
		return keyEscape
	}
	*char = rune(b)
	return keyRune
}

// escape reads a sequence that starts with the escape character.
func (d *decoder) escape() (k key, done bool) {
	seq := d.pending
	switch {
	case len(seq) == 1:
		return keyNone, false
	case seq[1] == '[':
		last := seq[len(seq)-1]
		switch {
		case len(seq) == 2 || last >= 0x20 && last < 0x40:
			d.pending = seq[:min(len(seq), maxSequence)]
			return keyNone, false
		case last < 0x20 || last >= 0x7f:
			return keyEscape, true // broken off
		}
		return d.csi(string(seq[2:])), true
	case seq[1] == 'O':
		if len(seq) == 2 {
			return keyNone, false
		}
		return d.filtered(arrow(seq[2])), true
	case seq[1] == 0x1b:
		d.pending = append(d.pending[:0], 0x1b) // two: the second starts a key
		return keyNone, false
	}
	return d.filtered(alt(seq[1])), true
}

// filtered drops keys in the middle of a paste.
func (d *decoder) filtered(k key) key {
	if d.paste {
		return keyNone
	}
	return k
}

func (d *decoder) csi(seq string) key {
	switch seq {
	case "200~":
		d.paste = true
		return keyNone
	case "201~":
		d.paste = false
		return keyPasteEnd
	}
	if d.paste {
		return keyNone
	}
	switch seq {
	case "1~", "7~":
		return keyHome
	case "4~", "8~":
		return keyEnd
	case "3~":
		return keyDelete
	case "1;5C", "1;3C", "5C":
		return keyWordRight
	case "1;5D", "1;3D", "5D":
		return keyWordLeft
	case "3;5~", "3;3~":
		return keyKillWordRight
	}
	if len(seq) == 1 {
		return arrow(seq[0])
	}
	return keyEscape
}

func arrow(b byte) key {
	switch b {
	case 'A':
		return keyUp
	case 'B':
		return keyDown
	case 'C':
		return keyRight
	case 'D':
		return keyLeft
	case 'H':
		return keyHome
	case 'F':
		return keyEnd
	}
	return keyEscape
}

func alt(b byte) key {
	switch b {
	case 'b', 'B':
		return keyWordLeft
	case 'f', 'F':
		return keyWordRight
	case 'd', 'D':
		return keyKillWordRight
	case 0x7f, 0x08:
		return keyKillNameLeft
	}
	return keyEscape
}
