package cli

import (
	"io"
	"unicode/utf8"
)

// plain writes a program's output as text: without escape sequences and control
// characters, one "\n" a line.
type plain struct {
	w    io.Writer
	scan scanner
	cut  []byte // the beginning of a character that was split
}

func (p *plain) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b))
	p.scan.feed(b, func(kind token, raw []byte) {
		if kind == tokenText {
			out = p.text(out, raw)
		}
	})
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *plain) text(out, raw []byte) []byte {
	if len(p.cut) > 0 {
		raw = append(p.cut, raw...)
		p.cut = nil
	}
	for len(raw) > 0 {
		if !utf8.FullRune(raw) {
			p.cut = append([]byte(nil), raw...)
			return out
		}
		r, size := utf8.DecodeRune(raw)
		switch {
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		case r < 0x20 || r >= 0x7f && r < 0xa0: // C0, DEL and C1, which some terminals obey
		default:
			out = utf8.AppendRune(out, r)
		}
		raw = raw[size:]
	}
	return out
}
