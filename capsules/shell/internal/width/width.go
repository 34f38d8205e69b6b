// Package width tells how many cells of a terminal a character takes.
//
// It owns no state. It follows the common agreement of terminals, not one
// version of the Unicode tables: combining and invisible characters take none,
// East Asian wide and fullwidth ones and the emoji blocks take two, all others
// one. Sequences that a few terminals join into one picture are counted by
// their parts.
package width

import (
	"slices"
	"unicode"
)

// span is an inclusive range of code points.
type span struct{ first, last rune }

// wideAt finds r in the wide blocks, in ascending order.
func wideAt(r rune) bool {
	_, found := slices.BinarySearchFunc(wide[:], r, func(s span, r rune) int {
		switch {
		case s.last < r:
			return -1
		case s.first > r:
			return 1
		}
		return 0
	})
	return found
}

// wide are the ranges that take two cells.
var wide = [...]span{
	{0x1100, 0x115F}, // hangul initials
	{0x231A, 0x231B}, // watch, hourglass
	{0x2329, 0x232A}, // angle brackets
	{0x23E9, 0x23EC},
	{0x23F0, 0x23F0},
	{0x23F3, 0x23F3},
	{0x25FD, 0x25FE},
	{0x2614, 0x2615},
	{0x2648, 0x2653}, // zodiac
	{0x267F, 0x267F},
	{0x2693, 0x2693},
	{0x26A1, 0x26A1},
	{0x26AA, 0x26AB},
	{0x26BD, 0x26BE},
	{0x26C4, 0x26C5},
	{0x26CE, 0x26CE},
	{0x26D4, 0x26D4},
	{0x26EA, 0x26EA},
	{0x26F2, 0x26F3},
	{0x26F5, 0x26F5},
	{0x26FA, 0x26FA},
	{0x26FD, 0x26FD},
	{0x2705, 0x2705},
	{0x270A, 0x270B},
	{0x2728, 0x2728},
	{0x274C, 0x274C},
	{0x274E, 0x274E},
	{0x2753, 0x2755},
	{0x2757, 0x2757},
	{0x2795, 0x2797},
	{0x27B0, 0x27B0},
	{0x27BF, 0x27BF},
	{0x2B1B, 0x2B1C},
	{0x2B50, 0x2B50},
	{0x2B55, 0x2B55},
	{0x2E80, 0x303E}, // radicals, punctuation
	{0x3041, 0x33FF}, // kana, bopomofo, squared
	{0x3400, 0x4DBF}, // ideographs, extension A
	{0x4E00, 0x9FFF}, // ideographs
	{0xA000, 0xA4CF}, // yi
	{0xA960, 0xA97F}, // hangul extended A
	{0xAC00, 0xD7A3}, // hangul syllables
	{0xF900, 0xFAFF}, // compatibility ideographs
	{0xFE10, 0xFE19}, // vertical forms
	{0xFE30, 0xFE6F}, // compatibility forms
	{0xFF01, 0xFF60}, // fullwidth forms
	{0xFFE0, 0xFFE6},
	{0x16FE0, 0x18DFF}, // tangut, khitan
	{0x1AFF0, 0x1B2FF}, // kana extended, nushu
	{0x1F004, 0x1F004}, // mahjong red dragon
	{0x1F0CF, 0x1F0CF}, // joker
	{0x1F18E, 0x1F18E},
	{0x1F191, 0x1F19A},
	{0x1F200, 0x1F320}, // squared ideographs, weather
	{0x1F32D, 0x1F335},
	{0x1F337, 0x1F37C},
	{0x1F37E, 0x1F393},
	{0x1F3A0, 0x1F3CA},
	{0x1F3CF, 0x1F3D3},
	{0x1F3E0, 0x1F3F0},
	{0x1F3F4, 0x1F3F4},
	{0x1F3F8, 0x1F43E},
	{0x1F440, 0x1F440},
	{0x1F442, 0x1F4FC},
	{0x1F4FF, 0x1F53D},
	{0x1F54B, 0x1F54E},
	{0x1F550, 0x1F567},
	{0x1F57A, 0x1F57A},
	{0x1F595, 0x1F596},
	{0x1F5A4, 0x1F5A4},
	{0x1F5FB, 0x1F64F}, // faces
	{0x1F680, 0x1F6C5}, // transport
	{0x1F6CC, 0x1F6CC},
	{0x1F6D0, 0x1F6D2},
	{0x1F6D5, 0x1F6D7},
	{0x1F6DC, 0x1F6DF},
	{0x1F6EB, 0x1F6EC},
	{0x1F6F4, 0x1F6FC},
	{0x1F7E0, 0x1F7EB},
	{0x1F7F0, 0x1F7F0},
	{0x1F90C, 0x1F93A},
	{0x1F93C, 0x1F945},
	{0x1F947, 0x1F9FF},
	{0x1FA70, 0x1FAFF},
	{0x20000, 0x2FFFD}, // ideographs, further planes
	{0x30000, 0x3FFFD},
}

// Rune returns the cells r takes: 0, 1 or 2. Control characters take 0; who
// shows them in another form counts that form.
func Rune(r rune) int {
	switch {
	case r < 0x20, r >= 0x7F && r < 0xA0:
		return 0
	case r < 0x300:
		return 1 // the soft hyphen too: terminals draw it
	case r == 0x200B, r >= 0x1160 && r <= 0x11FF, r >= 0xD7B0 && r <= 0xD7FF:
		return 0 // zero width space, hangul vowels and finals
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case wideAt(r):
		return 2
	}
	return 1
}

// String returns the cells s takes on one line.
func String(s string) int {
	n := 0
	for _, r := range s {
		n += Rune(r)
	}
	return n
}
