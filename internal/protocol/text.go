package protocol

import (
	"encoding/binary"
	"unicode/utf8"
)

// CBOR major types (RFC 8949, 3.1).
const (
	majorBytes = 2
	majorText  = 3
)

// repairText replaces, in place, each byte of a text string that is not UTF-8
// by a question mark. Names of programs and processes and the kernel's messages
// about them may hold any byte; without this a session could publish, and store,
// what nobody can decode. item is what our encoder wrote: well-formed and of
// definite length, so that contents simply follow their heads.
func repairText(item []byte) {
	for len(item) > 0 {
		major, argument, rest := head(item)
		item = rest
		if major != majorBytes && major != majorText {
			continue
		}
		if major == majorText {
			repair(item[:argument])
		}
		item = item[argument:]
	}
}

// head splits the first item's head off: its major type and argument.
func head(item []byte) (major byte, argument uint64, rest []byte) {
	major = item[0] >> 5
	info, rest := item[0]&0x1f, item[1:]
	switch info {
	case 24:
		return major, uint64(rest[0]), rest[1:]
	case 25:
		return major, uint64(binary.BigEndian.Uint16(rest)), rest[2:]
	case 26:
		return major, uint64(binary.BigEndian.Uint32(rest)), rest[4:]
	case 27:
		return major, binary.BigEndian.Uint64(rest), rest[8:]
	default:
		return major, uint64(info), rest
	}
}

func repair(text []byte) {
	if utf8.Valid(text) {
		return
	}
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			text[0] = '?'
		}
		text = text[size:]
	}
}
