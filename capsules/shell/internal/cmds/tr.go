package cmds

import (
	"bufio"
	"fmt"
	"io"
	"slices"
)

// translation is what tr does to one character after the other.
type translation struct {
	from, to                    []rune
	complement, remove, squeeze bool

	last rune
	any  bool
}

// next returns what becomes of r, or false when it is dropped.
func (t *translation) next(r rune) (rune, bool) {
	at := slices.Index(t.from, r)
	in := at >= 0
	if t.complement {
		in = !in
		at = len(t.to) - 1
	}
	if in && t.remove {
		return 0, false
	}
	squeezed := in
	if in && len(t.to) > 0 && !t.remove {
		r = t.to[min(at, len(t.to)-1)]
	}
	if len(t.to) > 0 {
		squeezed = slices.Contains(t.to, r)
	}
	if t.squeeze && squeezed && t.any && r == t.last {
		return 0, false
	}
	t.last, t.any = r, true
	return r, true
}

// expandSet writes out the ranges, classes and escapes of a set.
func expandSet(text string) ([]rune, error) {
	in := []rune(text)
	var out []rune
	for i := 0; i < len(in); {
		if class, size := classAt(in[i:]); size > 0 {
			if class == nil {
				return nil, fmt.Errorf("unknown class in %q", text)
			}
			out = append(out, class...)
			i += size
			continue
		}
		first, size := escapedRune(in[i:])
		i += size
		if i+1 >= len(in) || in[i] != '-' {
			out = append(out, first)
			continue
		}
		last, size := escapedRune(in[i+1:])
		i += 1 + size
		if last < first {
			return nil, fmt.Errorf("the range %c-%c is backwards", first, last)
		}
		for r := first; r <= last; r++ {
			out = append(out, r)
		}
	}
	return out, nil
}

// classAt reads [:name:]; size is 0 when there is none, the class nil when its
// name is unknown.
func classAt(in []rune) (class []rune, size int) {
	if len(in) < 5 || in[0] != '[' || in[1] != ':' {
		return nil, 0
	}
	end := slices.Index(in[2:], ':')
	if end < 0 || 2+end+1 >= len(in) || in[2+end+1] != ']' {
		return nil, 0
	}
	spans := map[string]string{
		"alnum": "09AZaz", "alpha": "AZaz", "digit": "09", "lower": "az", "upper": "AZ", "space": "\t\r  ",
		"blank": "\t\t  ", "punct": "!/:@[`{~", "xdigit": "09AFaf", "cntrl": "\x00\x1f\x7f\x7f", "print": " ~", "graph": "!~",
	}[string(in[2:2+end])]
	for i := 0; i+1 < len(spans); i += 2 {
		for b := int(spans[i]); b <= int(spans[i+1]); b++ {
			class = append(class, rune(b))
		}
	}
	return class, 2 + end + 2
}

// escapedRune reads one character and what a backslash makes of it.
func escapedRune(in []rune) (rune, int) {
	if in[0] != '\\' || len(in) == 1 {
		return in[0], 1
	}
	switch in[1] {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'a':
		return '\a', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'v':
		return '\v', 2
	}
	n, size := rune(0), 1
	for size < len(in) && size < 4 && in[size] >= '0' && in[size] <= '7' {
		n = n*8 + in[size] - '0'
		size++
	}
	if size > 1 {
		return n, size
	}
	return in[1], 2
}

func eachRune(r io.Reader, fn func(r rune) error) error {
	in := bufio.NewReader(r)
	for {
		r, _, err := in.ReadRune()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
}
