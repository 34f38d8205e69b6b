package cmds

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// sedRun is one pass of a script over one stream.
type sedRun struct {
	script []sedCommand
	quiet  bool
	write  func(text string) error

	in     *bufio.Reader
	ahead  string // the next line with its end, "" at the end of the input
	number int
	quit   bool
}

func runSed(ctx context.Context, c *Call) int {
	f, err := c.parse("nErise:", map[string]byte{
		"quiet": 'n', "silent": 'n', "regexp-extended": 'E', "in-place": 'i', "expression": 'e',
	})
	if err != nil {
		return c.usage("%v", err)
	}
	scripts, files := f.values['e'], f.args
	if len(scripts) == 0 {
		if len(files) == 0 {
			return c.usage("a script is needed")
		}
		scripts, files = files[:1], files[1:]
	}
	source := strings.Join(scripts, "\n")
	extended := f.has('E') || f.has('r')
	if _, err := parseSed(source, extended); err != nil {
		return c.usage("%v", err)
	}
	fresh := func(write func(string) error) *sedRun {
		script, _ := parseSed(source, extended) // ranges must not outlive a run
		return &sedRun{script: script, quiet: f.has('n'), write: write}
	}
	if f.has('i') {
		return c.sedInPlace(ctx, files, fresh)
	}
	run := fresh(func(text string) error {
		_, err := c.out.WriteString(text)
		return err
	})
	// The files are one stream: lines are counted through and "$" is the last
	// line of the last.
	pipe := &joined{ctx: ctx, call: c, names: files}
	if len(files) == 0 {
		pipe.names = []string{"-"}
	}
	err = run.all(pipe)
	pipe.close()
	if err != nil && !c.stopped(ctx) {
		return c.fail("cannot read: %s", reason(err))
	}
	return pipe.status
}

func (c *Call) sedInPlace(ctx context.Context, files []string, fresh func(func(string) error) *sedRun) int {
	if len(files) == 0 {
		return c.usage("option -i needs a file")
	}
	replaced := statusOK
	status := c.eachFile(ctx, files, func(name string, r io.Reader) error {
		var b strings.Builder
		run := fresh(func(text string) error {
			_, err := b.WriteString(text)
			return err
		})
		if err := run.all(r); err != nil {
			return err
		}
		replaced = max(replaced, c.replaceFile(name, b.String()))
		return nil
	})
	return max(status, replaced)
}

// joined reads several files as one, and gives a last line without an end one
// when another file follows.
type joined struct {
	ctx    context.Context
	call   *Call
	names  []string
	file   io.ReadCloser
	last   byte
	status int
}

func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.file == nil {
			if len(j.names) == 0 {
				return 0, io.EOF
			}
			name := j.names[0]
			j.names = j.names[1:]
			file, err := j.call.open(j.ctx, name)
			if err != nil {
				j.status = j.call.fileError("open", name, err)
				continue
			}
			j.file = file
			if j.last != 0 && j.last != '\n' {
				p[0], j.last = '\n', '\n'
				return 1, nil
			}
		}
		n, err := j.file.Read(p)
		if n > 0 {
			j.last = p[n-1]
			return n, nil
		}
		if err == io.EOF {
			j.close()
			continue
		}
		return 0, err
	}
}

func (j *joined) close() {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

func (s *sedRun) all(r io.Reader) error {
	s.in = bufio.NewReaderSize(r, 32<<10)
	if err := s.advance(); err != nil {
		return err
	}
	for s.ahead != "" && !s.quit {
		if err := s.cycle(); err != nil {
			return err
		}
	}
	return nil
}

// advance reads the line after the current one.
func (s *sedRun) advance() error {
	line, err := s.in.ReadString('\n')
	s.ahead = line
	if err == io.EOF {
		err = nil
	}
	return err
}

// take makes the line ahead the current one.
func (s *sedRun) take() (line, end string, err error) {
	line, ended := strings.CutSuffix(s.ahead, "\n")
	if ended {
		end = "\n"
	}
	s.number++
	return line, end, s.advance()
}

// cycle runs the script over one line.
func (s *sedRun) cycle() error {
	line, end, err := s.take()
	if err != nil {
		return err
	}
	after := ""
	shown := !s.quiet
	for i := range s.script {
		cmd := &s.script[i]
		if !s.selects(cmd, line) {
			continue
		}
		switch cmd.name {
		case 's':
			var done bool
			if line, done = cmd.substitute(line); done && cmd.print {
				err = s.write(line + "\n")
			}
		case 'y':
			line = strings.Map(func(r rune) rune {
				if to, ok := cmd.table[r]; ok {
					return to
				}
				return r
			}, line)
		case 'p':
			err = s.write(line + "\n")
		case '=':
			err = s.write(strconv.Itoa(s.number) + "\n")
		case 'i':
			err = s.write(cmd.text + "\n")
		case 'a':
			after += cmd.text + "\n"
		case 'c', 'd':
			if cmd.name == 'c' && (cmd.to == nil || !cmd.active) {
				err = s.write(cmd.text + "\n")
			}
			if err != nil {
				return err
			}
			return s.write(after)
		case 'n':
			if shown {
				err = s.write(line + "\n")
			}
			if s.ahead == "" {
				return err
			}
			if err == nil {
				line, end, err = s.take()
			}
		case 'q':
			s.quit = true
		}
		if err != nil {
			return err
		}
		if s.quit {
			break
		}
	}
	if shown {
		if err := s.write(line + end); err != nil {
			return err
		}
	}
	if after != "" && end == "" {
		after = "\n" + after
	}
	return s.write(after)
}

// selects says whether a command applies to the current line.
func (s *sedRun) selects(cmd *sedCommand, line string) bool {
	return s.inRange(cmd, line) != cmd.negated
}

func (s *sedRun) inRange(cmd *sedCommand, line string) bool {
	switch {
	case cmd.from == nil:
		return true
	case cmd.to == nil:
		return s.at(cmd.from, line)
	case cmd.active:
		switch {
		case cmd.to.line > 0:
			cmd.active = s.number < cmd.to.line
			return s.number <= cmd.to.line
		default:
			cmd.active = !s.at(cmd.to, line)
		}
		return true
	case !s.at(cmd.from, line):
		return false
	}
	// A pattern that ends a range is looked for from the next line on.
	cmd.active = cmd.to.re != nil || cmd.to.last && s.ahead != "" || cmd.to.line > s.number
	return true
}

func (s *sedRun) at(a *sedAddress, line string) bool {
	switch {
	case a.last:
		return s.ahead == ""
	case a.re != nil:
		return a.re.MatchString(line)
	}
	return a.line == s.number
}

// substitute returns the line with the pattern replaced, and whether it was.
func (cmd *sedCommand) substitute(line string) (string, bool) {
	matches := allMatches(cmd.re, line, cmd.global || cmd.nth > 1)
	nth := max(cmd.nth, 1)
	if len(matches) < nth {
		return line, false
	}
	var b strings.Builder
	at := 0
	for i, m := range matches {
		if i+1 < nth || i+1 > nth && !cmd.global {
			continue
		}
		b.WriteString(line[at:m[0]])
		for _, part := range cmd.replacement {
			switch {
			case part.group < 0:
				b.WriteString(part.text)
			case part.group*2+1 < len(m) && m[part.group*2] >= 0:
				b.WriteString(line[m[part.group*2]:m[part.group*2+1]])
			}
		}
		at = m[1]
	}
	b.WriteString(line[at:])
	return b.String(), true
}

func allMatches(re *regexp.Regexp, line string, all bool) [][]int {
	if all {
		return re.FindAllStringSubmatchIndex(line, -1)
	}
	if m := re.FindStringSubmatchIndex(line); m != nil {
		return [][]int{m}
	}
	return nil
}
