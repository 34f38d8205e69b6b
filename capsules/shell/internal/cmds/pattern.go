package cmds

import (
	"fmt"
	"regexp"
	"strings"
)

// compilePattern compiles a POSIX pattern, basic or extended, in the dialect
// of grep and sed. Go's engine runs in time linear in the text and so has no
// back references: they are refused.
func compilePattern(pattern string, extended, foldCase bool) (*regexp.Regexp, error) {
	translated, err := translatePattern(pattern, extended)
	if err != nil {
		return nil, err
	}
	if foldCase {
		translated = "(?i)" + translated
	}
	re, err := regexp.Compile("(?s)" + translated)
	if err != nil {
		return nil, fmt.Errorf("bad pattern %q: %s", pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	re.Longest()
	return re, nil
}

// translatePattern writes a POSIX pattern as one of Go's.
func translatePattern(pattern string, extended bool) (string, error) {
	var b strings.Builder
	start := true // nothing before here that could be repeated
	for i := 0; i < len(pattern); i++ {
		ch := pattern[i]
		switch {
		case ch == '[':
			end, err := bracket(&b, pattern[i:])
			if err != nil {
				return "", err
			}
			i += end
			start = false
		case ch == '\\':
			i++
			if i == len(pattern) {
				return "", fmt.Errorf("bad pattern %q: it ends with a backslash", pattern)
			}
			var err error
			if start, err = escape(&b, pattern[i], extended); err != nil {
				return "", err
			}
		case ch == '*' && start:
			b.WriteString(`\*`)
			start = false
		case ch == '^' && !extended && !start, ch == '$' && !extended && !endsHere(pattern[i+1:]):
			b.WriteString(`\` + string(ch))
		case strings.IndexByte("+?(){}|", ch) >= 0 && !extended:
			b.WriteString(`\` + string(ch))
			start = false
		default:
			b.WriteByte(ch)
			start = ch == '(' || ch == '|' || ch == '^'
		}
	}
	return b.String(), nil
}

// endsHere says whether a basic pattern, or a group of it, ends: only there a
// dollar is an anchor.
func endsHere(rest string) bool {
	return rest == "" || strings.HasPrefix(rest, `\)`) || strings.HasPrefix(rest, `\|`)
}

// escape writes what a backslash and ch mean and whether a group starts.
func escape(b *strings.Builder, ch byte, extended bool) (start bool, err error) {
	switch {
	case ch >= '1' && ch <= '9':
		return false, fmt.Errorf("back references such as \\%c are not supported in patterns", ch)
	case ch == '<' || ch == '>':
		b.WriteString(`\b`)
	case strings.IndexByte("wWsSbB", ch) >= 0:
		b.WriteString(`\` + string(ch))
	case ch == 'n' || ch == 't':
		b.WriteString(`\` + string(ch))
	case !extended && strings.IndexByte("+?(){}|", ch) >= 0:
		b.WriteByte(ch)
		return ch == '(' || ch == '|', nil
	default:
		b.WriteString(regexp.QuoteMeta(string(ch)))
	}
	return false, nil
}

// bracket writes a bracket expression, in which a backslash stands for itself,
// and returns the index of its end.
func bracket(b *strings.Builder, text string) (int, error) {
	i := 1
	b.WriteByte('[')
	if i < len(text) && text[i] == '^' {
		b.WriteByte('^')
		i++
	}
	for first := true; i < len(text); i, first = i+1, false {
		switch {
		case text[i] == ']' && !first:
			b.WriteByte(']')
			return i, nil
		case text[i] == '[' && i+1 < len(text) && text[i+1] == ':':
			end := strings.Index(text[i:], ":]")
			if end < 0 {
				return 0, fmt.Errorf("bad pattern: unclosed class in %q", text)
			}
			b.WriteString(text[i : i+end+2])
			i += end + 1
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == 'n' || text[i+1] == 't'):
			b.WriteString(text[i : i+2])
			i++
		case text[i] == '\\' || text[i] == '[' || text[i] == ']' || text[i] == '&' || text[i] == '~':
			b.WriteString(`\` + string(text[i]))
		default:
			b.WriteByte(text[i])
		}
	}
	return 0, fmt.Errorf("bad pattern: unclosed bracket in %q", text)
}
