package shell

import (
	"bytes"
	"io"
	"strings"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/edit"
	"mvdan.cc/sh/v3/syntax"
)

// prompt shows where the shell is.
func (s *session) prompt() string { return "mur:" + s.r.Dir + "$ " }

// morePrompt asks for the rest of a command.
const morePrompt = "> "

// readCommand reads lines until they are a whole command. It returns io.EOF
// when the user ends the shell, nothing when a line was cancelled.
func (s *session) readCommand() ([]*syntax.Stmt, error) {
	text := ""
	prompt := s.prompt()
	for {
		line, event := s.readLine(prompt)
		switch event {
		case edit.Cancel:
			s.setStatus(cmds.StatusInterrupted)
			return nil, nil
		case edit.End:
			if text == "" {
				return nil, io.EOF
			}
			_, err := newParser().Parse(strings.NewReader(text), "")
			return nil, err
		}
		text += line + "\n"
		if strings.HasSuffix(trailingBackslashes(line), `\`) {
			prompt = morePrompt
			continue
		}
		file, err := newParser().Parse(strings.NewReader(text), "")
		if err != nil && syntax.IsIncomplete(err) {
			prompt = morePrompt
			continue
		}
		s.remember(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return nil, err
		}
		return file.Stmts, nil
	}
}

// trailingBackslashes returns a backslash when the line ends in an odd number
// of them, which joins it with the next one.
func trailingBackslashes(line string) string {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return strings.Repeat(`\`, n%2)
}

// readLine lets the user edit a line.
func (s *session) readLine(prompt string) (string, edit.Event) {
	s.screen.freshRow()
	if !s.raw {
		return s.readPlain(prompt)
	}
	s.editor.History = s.history
	s.changes = s.Terminal.Changes() // first: a change after it is seen at the next key
	cols, rows := s.Terminal.Size()
	s.screen.Write(s.editor.Start(prompt, cols, rows))
	for {
		chunk := s.next()
		if chunk == nil {
			s.screen.Write([]byte("\r\n"))
			return "", edit.End
		}
		if changes := s.Terminal.Changes(); changes != s.changes {
			s.changes = changes
			s.screen.Write(s.editor.Resize(s.Terminal.Size()))
		}
		output, event, rest := s.editor.Feed(chunk)
		s.screen.Write(output)
		if event != edit.None {
			s.pending = rest
			return s.editor.Text(), event
		}
	}
}

// readPlain reads a line that the terminal's own driver lets the user edit.
func (s *session) readPlain(prompt string) (string, edit.Event) {
	io.WriteString(s.screen, prompt)
	s.screen.open = false
	var text []byte
	for {
		chunk := s.next()
		if chunk == nil {
			io.WriteString(s.screen, "\n")
			return "", edit.End
		}
		if at := bytes.IndexAny(chunk, "\n\x03"); at >= 0 {
			text = append(text, chunk[:at]...)
			s.pending = chunk[at+1:]
			if chunk[at] == 0x03 {
				return "", edit.Cancel
			}
			return string(text), edit.Line
		}
		text = append(text, chunk...)
	}
}

// next returns the next input, nil at its end.
func (s *session) next() []byte {
	if len(s.pending) > 0 {
		chunk := s.pending
		s.pending = nil
		return chunk
	}
	return <-s.input
}
