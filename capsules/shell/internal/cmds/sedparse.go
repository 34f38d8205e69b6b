package cmds

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// sedAddress selects a line: by number, the last one, or by pattern.
type sedAddress struct {
	line int
	last bool
	re   *regexp.Regexp
}

// sedCommand is one command of a script.
type sedCommand struct {
	from, to *sedAddress
	negated  bool
	name     byte

	// s
	re          *regexp.Regexp
	replacement []sedPart
	global      bool
	print       bool
	nth         int
	// a i c
	text string
	// y
	table map[rune]rune

	active bool // inside a range
}

// sedPart is a piece of a replacement: a text, or a group by number.
type sedPart struct {
	text  string
	group int // -1 for a text
}

// sedParser reads a script from the front.
type sedParser struct {
	text     string
	extended bool
}

func parseSed(script string, extended bool) ([]sedCommand, error) {
	p := &sedParser{text: script, extended: extended}
	var list []sedCommand
	for {
		p.text = strings.TrimLeft(p.text, " \t\n;")
		if p.text == "" {
			return list, nil
		}
		if p.text[0] == '#' {
			_, p.text, _ = strings.Cut(p.text, "\n")
			continue
		}
		cmd, err := p.command()
		if err != nil {
			return nil, err
		}
		list = append(list, cmd)
	}
}

func (p *sedParser) command() (sedCommand, error) {
	cmd := sedCommand{}
	var err error
	if cmd.from, err = p.address(); err != nil {
		return cmd, err
	}
	if cmd.from != nil && strings.HasPrefix(p.text, ",") {
		p.text = p.text[1:]
		if cmd.to, err = p.address(); err == nil && cmd.to == nil {
			err = errors.New("an address is missing after the comma")
		}
		if err != nil {
			return cmd, err
		}
	}
	p.skipBlanks()
	if strings.HasPrefix(p.text, "!") {
		cmd.negated = true
		p.text = p.text[1:]
		p.skipBlanks()
	}
	if p.text == "" {
		return cmd, errors.New("a command is missing after the address")
	}
	cmd.name = p.text[0]
	p.text = p.text[1:]
	switch cmd.name {
	case 's':
		err = p.substitution(&cmd)
	case 'y':
		err = p.transliteration(&cmd)
	case 'a', 'i', 'c':
		p.insertion(&cmd)
		return cmd, nil
	case 'p', 'd', 'q', '=', 'n':
	default:
		err = fmt.Errorf("command %q is not supported: s, y, p, d, q, n, =, a, i and c are", string(cmd.name))
	}
	if err != nil {
		return cmd, err
	}
	p.skipBlanks()
	if p.text != "" && p.text[0] != ';' && p.text[0] != '\n' {
		return cmd, fmt.Errorf("%q is not expected after command %c", p.text, cmd.name)
	}
	return cmd, nil
}

func (p *sedParser) skipBlanks() { p.text = strings.TrimLeft(p.text, " \t") }

func (p *sedParser) address() (*sedAddress, error) {
	p.skipBlanks()
	switch {
	case p.text == "":
		return nil, nil
	case p.text[0] == '$':
		p.text = p.text[1:]
		return &sedAddress{last: true}, nil
	case p.text[0] == '/':
		pattern, err := p.delimited('/', true)
		if err != nil {
			return nil, err
		}
		re, err := compilePattern(pattern, p.extended, strings.HasPrefix(p.text, "I"))
		p.text = strings.TrimPrefix(p.text, "I")
		return &sedAddress{re: re}, err
	}
	digits := 0
	for digits < len(p.text) && p.text[digits] >= '0' && p.text[digits] <= '9' {
		digits++
	}
	if digits == 0 {
		return nil, nil
	}
	n, err := strconv.Atoi(p.text[:digits])
	p.text = p.text[digits:]
	if err != nil || n == 0 {
		return nil, errors.New("lines are counted from 1")
	}
	return &sedAddress{line: n}, nil
}

// delimited reads up to the next unescaped delimiter; the text starts with
// one. In a pattern a bracket hides it.
func (p *sedParser) delimited(delimiter byte, pattern bool) (string, error) {
	var b strings.Builder
	in := p.text[1:]
	bracketed := false
	for i := 0; i < len(in); i++ {
		switch {
		case in[i] == '\\' && i+1 < len(in):
			i++
			if in[i] != delimiter {
				b.WriteByte('\\')
			}
			b.WriteByte(in[i])
			continue
		case in[i] == '[' && pattern:
			bracketed = true
		case in[i] == ']' && bracketed:
			bracketed = false
		case in[i] == delimiter && !bracketed:
			p.text = in[i+1:]
			return b.String(), nil
		}
		b.WriteByte(in[i])
	}
	return "", fmt.Errorf("the closing %q is missing", string(delimiter))
}

// pair reads the two parts of s and y.
func (p *sedParser) pair(name byte) (first, second string, err error) {
	if p.text == "" || p.text[0] == '\\' || p.text[0] == '\n' {
		return "", "", fmt.Errorf("command %c needs a delimiter", name)
	}
	delimiter := p.text[0]
	if first, err = p.delimited(delimiter, name == 's'); err != nil {
		return "", "", err
	}
	p.text = string(delimiter) + p.text
	second, err = p.delimited(delimiter, false)
	return first, second, err
}

func (p *sedParser) substitution(cmd *sedCommand) error {
	pattern, replacement, err := p.pair('s')
	if err != nil {
		return err
	}
	fold := false
	for p.text != "" {
		switch flag := p.text[0]; {
		case flag == 'g':
			cmd.global = true
		case flag == 'p':
			cmd.print = true
		case flag == 'i' || flag == 'I':
			fold = true
		case flag >= '0' && flag <= '9':
			cmd.nth = cmd.nth*10 + int(flag-'0')
		case strings.IndexByte(" \t\n;", flag) >= 0:
			cmd.re, err = compilePattern(pattern, p.extended, fold)
			cmd.replacement = parseReplacement(replacement)
			return err
		default:
			return fmt.Errorf("flag %q of command s is not supported: g, p, i and a number are", string(flag))
		}
		p.text = p.text[1:]
	}
	cmd.re, err = compilePattern(pattern, p.extended, fold)
	cmd.replacement = parseReplacement(replacement)
	return err
}

func parseReplacement(text string) []sedPart {
	var parts []sedPart
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			parts = append(parts, sedPart{text: b.String(), group: -1})
			b.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '&':
			flush()
			parts = append(parts, sedPart{group: 0})
		case text[i] != '\\' || i+1 == len(text):
			b.WriteByte(text[i])
		default:
			i++
			switch ch := text[i]; {
			case ch >= '0' && ch <= '9':
				flush()
				parts = append(parts, sedPart{group: int(ch - '0')})
			case ch == 'n':
				b.WriteByte('\n')
			case ch == 't':
				b.WriteByte('\t')
			default:
				b.WriteByte(ch)
			}
		}
	}
	flush()
	return parts
}

func (p *sedParser) transliteration(cmd *sedCommand) error {
	first, second, err := p.pair('y')
	if err != nil {
		return err
	}
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t")
	from, to := []rune(unescape.Replace(first)), []rune(unescape.Replace(second))
	if len(from) != len(to) {
		return errors.New("the two parts of command y differ in length")
	}
	cmd.table = map[rune]rune{}
	for i, r := range from {
		if _, twice := cmd.table[r]; !twice {
			cmd.table[r] = to[i]
		}
	}
	return nil
}

// insertion reads the text of a, i and c: the rest of the line, and further
// ones while they end in a backslash.
func (p *sedParser) insertion(cmd *sedCommand) {
	p.skipBlanks()
	if rest, ok := strings.CutPrefix(p.text, `\`); ok {
		p.text = strings.TrimPrefix(strings.TrimLeft(rest, " \t"), "\n")
	}
	var b strings.Builder
	for i := 0; ; i++ {
		switch {
		case i >= len(p.text):
			p.text = ""
			cmd.text = b.String()
			return
		case p.text[i] == '\\' && i+1 < len(p.text):
			i++
			b.WriteByte(p.text[i])
		case p.text[i] == '\n':
			p.text = p.text[i:]
			cmd.text = b.String()
			return
		default:
			b.WriteByte(p.text[i])
		}
	}
}
