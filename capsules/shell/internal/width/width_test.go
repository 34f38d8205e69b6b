package width

import "testing"

func TestCellsOfCharacters(t *testing.T) {
	for _, tc := range []struct {
		r    rune
		want int
	}{
		{'a', 1},
		{'~', 1},
		{'ä', 1},
		{0, 0},
		{'\t', 0},
		{0x7F, 0},
		{0x85, 0},
		{0xAD, 1},
		{0x301, 0},
		{0x200B, 0},
		{0x200D, 0},
		{0xFE0F, 0},
		{0x1100, 2},
		{0x1161, 0},
		{'─', 1},
		{'€', 1},
		{'日', 2},
		{'カ', 2},
		{'ｶ', 1},
		{'한', 2},
		{'Ａ', 2},
		{'😀', 2},
		{'🚀', 2},
		{'⌚', 2},
		{'☃', 1},
		{0x20000, 2},
		{0x10FFFF, 1},
	} {
		if got := Rune(tc.r); got != tc.want {
			t.Errorf("Rune(%U) = %d, want %d", tc.r, got, tc.want)
		}
	}
}

func TestCellsOfText(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "e\u0301": 1, "a😀b": 4} {
		if got := String(text); got != want {
			t.Errorf("String(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestTheWideBlocksAreInOrder(t *testing.T) {
	for i, s := range wide {
		if s.first > s.last {
			t.Errorf("%U..%U is no range", s.first, s.last)
		}
		if i > 0 && wide[i-1].last >= s.first {
			t.Errorf("%U does not follow %U", s.first, wide[i-1].last)
		}
	}
}
