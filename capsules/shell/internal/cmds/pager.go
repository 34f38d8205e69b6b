package cmds

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
)

// pager shows lines a screen at a time. It redraws the whole screen, so that
// it needs no more of a terminal than erasing and positioning.
type pager struct {
	name       string
	lines      []string
	cols, rows int
	top        int
	search     *regexp.Regexp
	match      int // the line that was found last, -1 for none
	message    string
	keys       []byte // read, but not used yet
}

func runLess(ctx context.Context, c *Call) int {
	f, err := c.parse("NRSFXi", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	if c.Terminal == nil {
		c.Args = append([]string{"cat", "--"}, f.args...)
		return runCat(ctx, c)
	}
	p := &pager{name: strings.Join(f.args, " ")}
	status := c.eachFile(ctx, f.args, func(_ string, r io.Reader) error {
		return lines(r, func(line string, _ bool) error {
			p.lines = append(p.lines, shown(line))
			return nil
		})
	})
	if status != statusOK || ctx.Err() != nil {
		return status
	}
	p.resize(c.Terminal.Size())
	if len(p.lines) <= p.page() {
		for _, line := range p.lines {
			c.println(line)
		}
		return statusOK
	}
	for ctx.Err() == nil {
		c.out.WriteString(p.draw())
		c.flush()
		key, err := p.nextKey(ctx, c)
		if err != nil {
			break
		}
		if p.key(ctx, c, key) {
			break
		}
	}
	c.out.WriteString("\r\x1b[K")
	return statusOK
}

// shown is a line with its tabs written out and nothing that acts.
func shown(line string) string {
	var b strings.Builder
	at := 0
	for _, r := range strings.TrimSuffix(line, "\r") {
		switch {
		case r == '\t':
			n := 8 - at%8
			b.WriteString(strings.Repeat(" ", n))
			at += n
		case r < 0x20 || r >= 0x7F && r < 0xA0:
			fmt.Fprintf(&b, "^%c", r&0x1F|0x40)
			at += 2
		default:
			b.WriteRune(r)
			at += width.Rune(r)
		}
	}
	return b.String()
}

func (p *pager) resize(cols, rows int) {
	p.cols, p.rows = max(cols, 10), max(rows, 3)
	p.scroll(0)
}

func (p *pager) page() int { return p.rows - 1 }

func (p *pager) scroll(by int) { p.top = max(0, min(p.top+by, len(p.lines)-p.page())) }

func (p *pager) draw() string {
	var b strings.Builder
	b.WriteString("\x1b[H\x1b[2J")
	for _, line := range p.lines[p.top:min(p.top+p.page(), len(p.lines))] {
		b.WriteString(clip(line, p.cols) + "\r\n")
	}
	status := p.message
	if status == "" {
		last := min(p.top+p.page(), len(p.lines))
		status = fmt.Sprintf("%s lines %d-%d of %d", p.name, p.top+1, last, len(p.lines))
		if last == len(p.lines) {
			status += " (end)"
		}
		status += "  space next, b back, / search, q quit"
	}
	p.message = ""
	b.WriteString("\x1b[7m" + clip(strings.TrimSpace(status), p.cols-1) + "\x1b[0m")
	return b.String()
}

// clip cuts a line where the screen ends.
func clip(line string, cols int) string {
	at := 0
	for i, r := range line {
		w := width.Rune(r)
		if at+w > cols {
			return line[:i]
		}
		at += w
	}
	return line
}

// nextKey returns one key: a byte, or an escape sequence that arrived whole. It
// acts on the screen as that is by then.
func (p *pager) nextKey(ctx context.Context, c *Call) (string, error) {
	if len(p.keys) == 0 {
		keys, err := c.Terminal.ReadKeys(ctx)
		if err != nil {
			return "", err
		}
		p.keys = keys
		p.resize(c.Terminal.Size())
	}
	size := 1
	if len(p.keys) > 2 && p.keys[0] == 0x1b && (p.keys[1] == '[' || p.keys[1] == 'O') {
		size = 3
		for size < len(p.keys) && p.keys[size-1] < 0x40 {
			size++
		}
	}
	key := string(p.keys[:size])
	p.keys = p.keys[size:]
	return key, nil
}

// key acts on a key and says whether to end.
func (p *pager) key(ctx context.Context, c *Call, key string) bool {
	switch key {
	case "q", "Q", "\x03", "\x04":
		return true
	case " ", "f", "\x06", "\x1b[6~":
		p.scroll(p.page())
	case "b", "\x02", "\x1b[5~":
		p.scroll(-p.page())
	case "d":
		p.scroll(p.page() / 2)
	case "u":
		p.scroll(-p.page() / 2)
	case "j", "\r", "\n", "e", "\x1b[B", "\x1bOB":
		p.scroll(1)
	case "k", "y", "\x1b[A", "\x1bOA":
		p.scroll(-1)
	case "g", "<", "\x1b[H", "\x1b[1~":
		p.top = 0
	case "G", ">", "\x1b[F", "\x1b[4~":
		p.scroll(len(p.lines))
	case "n":
		p.next(1)
	case "N":
		p.next(-1)
	case "/":
		p.ask(ctx, c)
	}
	return false
}

// ask reads what to search for on the last line.
func (p *pager) ask(ctx context.Context, c *Call) {
	var text []byte
	for {
		c.out.WriteString("\r\x1b[K/" + string(text))
		c.flush()
		key, err := p.nextKey(ctx, c)
		if err != nil {
			return
		}
		switch {
		case key == "\r" || key == "\n":
			re, err := compilePattern(string(text), true, strings.ToLower(string(text)) == string(text))
			if err != nil {
				p.message = err.Error()
				return
			}
			p.search, p.match = re, -1
			p.next(1)
			return
		case key == "\x03" || key[0] == 0x1b:
			return
		case key == "\x7f" || key == "\b":
			_, size := utf8.DecodeLastRune(text)
			text = text[:len(text)-size]
		case key[0] >= 0x20:
			text = append(text, key...)
		}
	}
}

// next goes to the next line that matches, down or up.
func (p *pager) next(step int) {
	if p.search == nil {
		p.message = "nothing to search for: type / first"
		return
	}
	at := p.top
	if p.match >= p.top && p.match < p.top+p.page() {
		at = p.match + step // the end of the text may not be at the top
	}
	for ; at >= 0 && at < len(p.lines); at += step {
		if p.search.MatchString(p.lines[at]) {
			p.top, p.match = at, at
			p.scroll(0)
			return
		}
	}
	p.message = "not found"
}
