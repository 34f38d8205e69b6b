package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/edit"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/line"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// screen is the terminal as an output: it knows whether the cursor is at the
// start of a row, so that a prompt never follows unfinished output.
type screen struct {
	mu   sync.Mutex // guards all below; background commands write too
	to   io.Writer
	open bool // the row has text
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) > 0 {
		s.open = p[len(p)-1] != '\n'
	}
	return s.to.Write(p)
}

// IsTerminal is for "test -t".
func (s *screen) IsTerminal() bool { return true }

// freshRow ends an unfinished row.
func (s *screen) freshRow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.open = false
		io.WriteString(s.to, "\r\n")
	}
}

// onScreen says whether a stream is the terminal of a session.
func (s *Shell) onScreen(w io.Writer) bool {
	screen, ok := w.(*screen)
	return ok && screen == s.screen
}

// pagerTerminal is the terminal for a command that wants keys.
func (s *Shell) pagerTerminal() *cmds.Terminal {
	return &cmds.Terminal{
		Size: s.Terminal.Size,
		ReadKeys: func(context.Context) ([]byte, error) {
			s.discipline.Keys(true) // until the command ends
			buf := make([]byte, 256)
			n, err := s.discipline.Read(buf)
			return buf[:n], err
		},
	}
}

// session is a shell that talks to a terminal.
type session struct {
	*Shell
	r       *interp.Runner
	editor  *edit.Editor
	raw     bool
	input   chan []byte
	pending []byte // read, but not used yet
	changes uint32
	status  int
	store   historyFile
}

func (s *Shell) session(dir string, c call) int {
	s.screen = &screen{to: s.Stdout}
	s.discipline = line.New()
	ses := &session{Shell: s, input: make(chan []byte)}
	var err error
	ses.r, err = s.runner(streams{s.discipline, s.screen, s.screen}, dir, s.Env, c)
	if err == nil {
		err = interp.Interactive(true)(ses.r)
	}
	if err != nil {
		fmt.Fprintf(s.Stderr, "mur shell: %v\n", err)
		return statusSyntax
	}
	s.functions = func() []string { return slices.Sorted(maps.Keys(ses.r.Funcs)) }
	ses.store = s.openHistory()
	s.history = ses.store.load()
	ses.editor = &edit.Editor{Complete: ses.complete, Layout: cmds.Columns}
	ses.raw = s.Terminal.SetRaw(true) == nil
	go ses.pump()
	status := ses.loop()
	if ses.raw {
		s.Terminal.SetRaw(false) // the host does it again
	}
	return status
}

// pump reads the terminal for as long as the process lives.
func (s *session) pump() {
	defer close(s.input)
	for {
		buf := make([]byte, 4096)
		n, err := s.Stdin.Read(buf)
		if n > 0 {
			s.input <- buf[:n]
		}
		if err != nil {
			return
		}
	}
}

func (s *session) loop() int {
	fmt.Fprint(s.screen, "mur shell: help lists the commands, exit or ^D ends it\n")
	for {
		stmts, err := s.readCommand()
		switch {
		case errors.Is(err, io.EOF):
			s.foreground(func(ctx context.Context) { s.runExitTrap(ctx, s.r) })
			return s.status
		case err != nil:
			fmt.Fprintln(s.screen, syntaxMessage(err))
			s.setStatus(statusSyntax)
			continue
		}
		for _, stmt := range stmts {
			exited, interrupted := s.runStmt(stmt)
			if exited {
				return s.status
			}
			if interrupted {
				break
			}
		}
	}
}

// runStmt runs one statement in the foreground.
func (s *session) runStmt(stmt *syntax.Stmt) (exited, interrupted bool) {
	s.foreground(func(ctx context.Context) {
		err := s.r.Run(ctx, stmt)
		var status interp.ExitStatus
		// The interpreter also counts a fatal error as an exit of the shell.
		exited = s.r.Exited() && (err == nil || errors.As(err, &status))
		interrupted = ctx.Err() != nil
		s.status = s.Shell.status(ctx, s.screen, err)
	})
	if interrupted {
		s.setStatus(cmds.StatusInterrupted)
		return false, true
	}
	return exited, false
}

// setStatus makes $? what an interrupted or wrong command left.
func (s *session) setStatus(status int) {
	s.status = status
	file, err := newParser().Parse(strings.NewReader(fmt.Sprintf("(exit %d)", status)), "")
	if err == nil {
		s.r.Run(context.Background(), file.Stmts[0]) // it fails by design
	}
}

// foreground runs fn with the terminal's input going to it and ^C ending it.
func (s *session) foreground(fn func(ctx context.Context)) {
	ctx := newForeground()
	s.discipline.Begin()
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		s.feed(ctx, s.pending)
		for {
			select {
			case <-stop:
				return
			case chunk, ok := <-s.input:
				if !ok {
					ctx.interrupt() // the terminal is gone
					s.discipline.Hangup()
					return
				}
				s.feed(ctx, chunk)
			}
		}
	}()
	fn(ctx)
	close(stop)
	<-watched
	s.pending = s.discipline.Finish()
}

func (s *session) feed(ctx *foreground, chunk []byte) {
	for len(chunk) > 0 {
		echo, interrupted, rest := s.discipline.Feed(chunk)
		if s.raw {
			s.screen.Write(echo)
		}
		if interrupted {
			ctx.interrupt()
		}
		chunk = rest
	}
}
