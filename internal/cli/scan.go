package cli

// token is a kind of what a terminal program writes.
type token int

const (
	tokenText     token = iota // characters and single control characters
	tokenSequence              // one whole escape sequence
	tokenPart                  // a piece of a string sequence too long to keep
)

// scanKeep is how much of a sequence is kept; no query and no mode needs more.
const scanKeep = 4096

type scanState int

const (
	scanGround       scanState = iota
	scanEscape                 // after ESC
	scanInter                  // after ESC and intermediates
	scanCSI                    // after ESC [
	scanString                 // in OSC, DCS, SOS, PM or APC
	scanStringEscape           // there after ESC
)

// scanner splits a program's output into text and escape sequences (ECMA-48),
// wherever it is cut. It keeps at most scanKeep bytes.
type scanner struct {
	state scanState
	seq   []byte
	long  bool // the beginning of this string was given as a part
}

// feed gives each token of b as soon as it is whole. raw is valid during emit.
func (s *scanner) feed(b []byte, emit func(kind token, raw []byte)) {
	begin := 0
	for i := 0; i < len(b); i++ {
		if s.state == scanGround {
			if b[i] != 0x1b {
				continue
			}
			if i > begin {
				emit(tokenText, b[begin:i])
			}
			s.begin(b[i])
			continue
		}
		again := s.step(b[i], emit)
		if again {
			i--
		}
		if s.state == scanGround {
			begin = i + 1
		}
	}
	if s.state == scanGround && begin < len(b) {
		emit(tokenText, b[begin:])
	}
}

func (s *scanner) begin(esc byte) {
	s.state, s.long = scanEscape, false
	s.seq = append(s.seq[:0], esc)
}

// step takes one byte of a sequence; again: the byte is to be looked at anew.
func (s *scanner) step(c byte, emit func(token, []byte)) (again bool) {
	switch s.state {
	case scanEscape:
		return s.afterEscape(c, emit)
	case scanInter:
		if c >= 0x20 && c <= 0x2f {
			s.keep(c, emit)
			return false
		}
		return s.finish(c, c >= 0x30 && c <= 0x7e, emit)
	case scanCSI:
		if c >= 0x20 && c <= 0x3f || c < 0x18 {
			s.keep(c, emit)
			return false
		}
		return s.finish(c, c >= 0x40 && c <= 0x7e, emit)
	case scanStringEscape:
		if c == '\\' {
			return s.finish(c, true, emit)
		}
		s.seq = s.seq[:len(s.seq)-1]
		s.give(emit)
		s.begin(0x1b)
		return true
	default:
		return s.inString(c, emit)
	}
}

func (s *scanner) afterEscape(c byte, emit func(token, []byte)) (again bool) {
	switch {
	case c == '[':
		s.state = scanCSI
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		s.state = scanString
	case c >= 0x20 && c <= 0x2f:
		s.state = scanInter
	default:
		return s.finish(c, c >= 0x30 && c <= 0x7e, emit)
	}
	s.keep(c, emit)
	return false
}

func (s *scanner) inString(c byte, emit func(token, []byte)) (again bool) {
	switch c {
	case 0x1b:
		// Not by keep: what is kept last must still be there to be taken back.
		s.seq = append(s.seq, c)
		s.state = scanStringEscape
	case 0x18, 0x1a:
		return s.finish(c, true, emit)
	case 0x07: // xterm's end of an OSC
		if s.long || s.seq[1] == ']' {
			return s.finish(c, true, emit)
		}
		s.keep(c, emit)
	default:
		s.keep(c, emit)
	}
	return false
}

// finish ends the sequence, with c if it belongs to it.
func (s *scanner) finish(c byte, with bool, emit func(token, []byte)) (again bool) {
	if with || c == 0x18 || c == 0x1a {
		s.seq = append(s.seq, c)
		with = true
	}
	s.give(emit)
	s.state = scanGround
	return !with
}

func (s *scanner) give(emit func(token, []byte)) {
	kind := tokenSequence
	if s.long {
		kind = tokenPart
	}
	emit(kind, s.seq)
}

func (s *scanner) keep(c byte, emit func(token, []byte)) {
	s.seq = append(s.seq, c)
	if len(s.seq) < scanKeep {
		return
	}
	emit(tokenPart, s.seq)
	s.seq, s.long = s.seq[:0], true
	if s.state != scanString {
		// No terminal reads a control sequence of this length.
		s.state = scanGround
	}
}
