package shell

import (
	"fmt"
	"io"
	"os"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/edit"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
)

const (
	historyName = ".mur_history"
	// historyLines bounds the history; the file is cut when it holds twice as
	// many lines.
	historyLines = 1000
	// historyBytes bounds what is read of a file somebody else may have made.
	historyBytes = 4 << 20
)

// historyFile keeps the lines across sessions: in HISTFILE, else in the home
// directory, which is the work folder.
type historyFile struct {
	files *fsys.FS
	path  string
}

func (s *Shell) openHistory() historyFile {
	name := lookup(s.Env, "HISTFILE")
	if name == "" {
		home := lookup(s.Env, "HOME")
		if home == "" {
			home = s.home
		}
		name = cmds.Abs(home, historyName)
	}
	return historyFile{files: s.Files, path: cmds.Abs(s.home, name)}
}

// load returns the lines of earlier sessions. A history that cannot be read is
// an empty one.
func (h historyFile) load() []string {
	file, err := h.files.Open(h.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, historyBytes))
	if err != nil {
		return nil
	}
	all := edit.DecodeHistory(string(data), historyBytes)
	kept := all[max(0, len(all)-historyLines):]
	if len(all) > 2*historyLines {
		h.rewrite(kept) // the long file still serves
	}
	return kept
}

// rewrite replaces the file, so that a crash leaves the old or the new one.
func (h historyFile) rewrite(lines []string) error {
	fresh := h.path + ".new"
	text := ""
	for _, line := range lines {
		text += edit.EncodeLine(line)
	}
	if err := h.write(fresh, os.O_TRUNC, text); err != nil {
		return err
	}
	return h.files.Rename(fresh, h.path)
}

// add appends a line.
func (h historyFile) add(line string) error {
	return h.write(h.path, os.O_APPEND, edit.EncodeLine(line))
}

func (h historyFile) write(name string, mode int, text string) error {
	file, err := h.files.OpenFile(name, os.O_WRONLY|os.O_CREATE|mode, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// remember adds a command to the history.
func (s *session) remember(line string) {
	history, added := edit.Remember(s.history, line, historyLines)
	s.history = history
	if !added || s.store.path == "" {
		return
	}
	if err := s.store.add(history[len(history)-1]); err != nil {
		fmt.Fprintf(s.screen, "mur shell: the history is not kept: %s\n", cmds.Reason(err))
		s.store.path = "" // said once
	}
}
