package cli

import "bytes"

// replay takes out of old output what a terminal would answer: the answer would
// be typed into the session long after the question, for whoever runs there now.
type replay struct{ scan scanner }

// filter gives what of b can be shown; an unfinished sequence waits for its rest.
func (r *replay) filter(b []byte) []byte {
	out := make([]byte, 0, len(b))
	r.scan.feed(b, func(kind token, raw []byte) {
		switch {
		case kind == tokenText:
			for _, c := range raw {
				if c != 0x05 { // ENQ
					out = append(out, c)
				}
			}
		case kind == tokenPart || !asks(raw):
			out = append(out, raw...)
		}
	})
	return out
}

// rest gives the beginning of a sequence whose rest is no longer old output.
func (r *replay) rest() []byte {
	if r.scan.state == scanGround {
		return nil
	}
	return r.scan.seq
}

// asks tells whether a terminal answers the sequence.
func asks(seq []byte) bool {
	if len(seq) < 2 {
		return false
	}
	switch seq[1] {
	case 'Z': // DECID
		return true
	case '[':
		return asksControl(seq[2:len(seq)-1], seq[len(seq)-1])
	case ']': // colours, the clipboard and the like: a question mark in the value's place
		return bytes.Contains(seq, []byte(";?"))
	case 'P': // DECRQSS, XTGETTCAP
		return bytes.HasPrefix(seq[2:], []byte("$q")) || bytes.HasPrefix(seq[2:], []byte("+q"))
	case '_': // kitty graphics
		return bytes.HasPrefix(seq[2:], []byte("G"))
	}
	return false
}

func asksControl(params []byte, final byte) bool {
	switch final {
	case 'c': // DA1, DA2, DA3
		return true
	case 'n': // DSR; with ">" it is a setting of xterm's
		return !bytes.HasPrefix(params, []byte(">"))
	case 'p': // DECRQM
		return bytes.HasSuffix(params, []byte("$"))
	case 'q': // XTVERSION
		return bytes.HasPrefix(params, []byte(">"))
	case 'u': // kitty keyboard, not the restoring of the cursor
		return bytes.HasPrefix(params, []byte("?"))
	case 'x': // DECREQTPARM
		return !bytes.ContainsAny(params, "$*")
	case 't': // window reports
		return len(params) > 0 && (params[0] == '1' || params[0] == '2') && len(params) >= 2
	case 'S': // XTSMGRAPHICS
		return bytes.HasPrefix(params, []byte("?"))
	case 'w', 'y': // DECRQPSR, DECRQCRA
		return bytes.HasSuffix(params, []byte("$")) || bytes.HasSuffix(params, []byte("*"))
	}
	return false
}
