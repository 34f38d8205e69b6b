package shell

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/edit"
)

// word is the word before the cursor.
type word struct {
	start   int    // in bytes, after an opening quote
	quote   byte   // the quote it is in, or 0
	text    string // without quotes and backslashes
	command bool   // it is where a command stands
}

// lastWord finds the word a line ends in.
func lastWord(before string) word {
	w := word{command: true}
	var text strings.Builder
	any := false       // the word has begun
	assigning := false // it follows NAME=
	end := func(at int, command bool) {
		w = word{start: at, command: command}
		text.Reset()
		any, assigning = false, false
	}
	first := true // no word of this command ended yet
	for i := 0; i < len(before); i++ {
		ch := before[i]
		switch {
		case w.quote != 0:
			if ch == w.quote {
				w.quote = 0
			} else {
				text.WriteByte(ch)
			}
		case ch == '\\' && i+1 < len(before):
			i++
			text.WriteByte(before[i])
			any = true
		case ch == '\'' || ch == '"':
			w.quote = ch
			if !any {
				w.start = i + 1
			}
			any = true
		case ch == ' ' || ch == '\t':
			if any {
				first = first && (assigning || opensCommand(text.String()))
			}
			end(i+1, first)
		case strings.IndexByte("|&;(\n`", ch) >= 0:
			first = true
			end(i+1, true)
		case ch == '<' || ch == '>':
			end(i+1, false)
			first = false
		case ch == '=' && first && any:
			end(i+1, false)
			any, assigning = true, true
		default:
			text.WriteByte(ch)
			any = true
		}
	}
	w.text = text.String()
	return w
}

// opensCommand says that another command follows the word.
func opensCommand(text string) bool {
	return slices.Contains(strings.Fields("if then else elif do while until ! { time sudo exec command xargs"), text)
}

// complete finds what the word before the cursor can become.
func (s *session) complete(before string) edit.Completion {
	w := lastWord(before)
	var names, ends []string
	if w.command && !strings.Contains(w.text, "/") && w.quote == 0 {
		for _, name := range s.commandNames() {
			if strings.HasPrefix(name, w.text) {
				names, ends = append(names, name), append(ends, " ")
			}
		}
	}
	dir, prefix := path.Split(w.text)
	if len(names) == 0 {
		names, ends = s.fileNames(dir, prefix)
	} else {
		dir = ""
	}
	c := edit.Completion{Start: utf8.RuneCountInString(before[:w.start]), Shown: slices.Clone(names)}
	for i, name := range names {
		inserted := quoteName(dir+name, w.quote)
		end := ends[i]
		if end == "/" {
			inserted += end
			c.Shown[i] += end
		} else if len(names) == 1 {
			if w.quote != 0 {
				inserted += string(w.quote)
			}
			inserted += end
		}
		c.Words = append(c.Words, inserted)
	}
	return c
}

func (s *session) commandNames() []string {
	names := slices.Concat(slices.Collect(maps.Keys(s.commands)), slices.Collect(maps.Keys(s.own)), languageBuiltins())
	if s.functions != nil {
		names = append(names, s.functions()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fileNames lists the entries of a directory with a prefix; an end is a slash
// for a directory and a blank for others.
func (s *session) fileNames(dir, prefix string) (names, ends []string) {
	full := dir
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		full = path.Join(s.home, rest)
	}
	list, err := s.Files.ReadDir(cmds.Abs(s.r.Dir, full))
	if err != nil {
		return nil, nil
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), prefix) || e.Name()[0] == '.' && prefix == "" {
			continue
		}
		names = append(names, e.Name())
		ends = append(ends, s.endOf(cmds.Abs(s.r.Dir, full), e))
	}
	return names, ends
}

func (s *session) endOf(dir string, e fs.DirEntry) string {
	isDir := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		info, err := s.Files.Stat(path.Join(dir, e.Name()))
		isDir = err == nil && info.IsDir()
	}
	if isDir {
		return "/"
	}
	return " "
}

// quoteName writes a name so that the shell reads it as one word.
func quoteName(name string, quote byte) string {
	var b strings.Builder
	for i, r := range name {
		special := strings.ContainsRune(" \t\n\\'\"|&;()<>$`*?[]#!{}", r) && !(r == '#' && i > 0)
		switch {
		case quote == '\'':
			special = false // nothing is special, and a quote cannot be written
		case quote == '"':
			special = strings.ContainsRune("\\\"$`", r)
		}
		if special {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
