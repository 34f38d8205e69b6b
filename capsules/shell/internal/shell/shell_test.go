package shell

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/cmds"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/edit"
	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
	"mvdan.cc/sh/v3/interp"
)

// script runs a shell in a directory that is all it sees.
func script(t *testing.T, dir, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(Config{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Env: []string{"PWD=" + dir}, Files: fsys.New([]string{dir}),
	})
	return status, out.String(), errs.String()
}

func TestArgumentsOfTheShell(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want call
		err  string
	}{
		{nil, call{name: "shell", params: nil}, ""},
		{[]string{"-c", "x"}, call{inline: true, text: "x", name: "shell", params: []string{}}, ""},
		{[]string{"-ec", "x", "n", "a"}, call{inline: true, text: "x", name: "n", options: []string{"-e"}, params: []string{"a"}}, ""},
		{[]string{"-u", "f", "-c"}, call{file: "f", name: "f", options: []string{"-u"}, params: []string{"-c"}}, ""},
		{[]string{"--", "-f"}, call{file: "-f", name: "-f", params: []string{}}, ""},
		{[]string{"-c"}, call{}, "option -c needs a script"},
		{[]string{"-Z"}, call{}, "unknown option -Z (shell --help lists them)"},
	} {
		got, err := parseArgs(tc.args)
		switch {
		case tc.err != "":
			if err == nil || err.Error() != tc.err {
				t.Errorf("%q: error %v, want %s", tc.args, err, tc.err)
			}
		case err != nil || !reflect.DeepEqual(got, tc.want):
			t.Errorf("%q: got %+v, %v; want %+v", tc.args, got, err, tc.want)
		}
	}
}

func TestScriptsOnTheHost(t *testing.T) {
	for _, tc := range []struct {
		script         string
		status         int
		stdout, stderr string
	}{
		{`echo -e 'a\tb\x41\0101\c no'; echo -n x; echo -E '\t'`, 0, "a\tbAAx\\t\n", ""},
		{`echo -- -n; echo '-'`, 0, "-- -n\n-\n", ""},
		{"echo a | cat | tr a b", 0, "b\n", ""},
		{"x=1; export y=2; env | grep -E '^[xy]='", 0, "y=2\n", ""},
		{"type cd ls nosuch", 1, "cd is a shell builtin\nls is a shell builtin\n", "type: nosuch: not found\n"},
		{"type -t ls", 0, "builtin\n", ""},
		{"which ls if nosuch", 1, "ls: shell builtin\nif: shell keyword\n", "which: no nosuch here\n"},
		{"command echo hi; command -V ls", 0, "hi\nls is a shell builtin\n", ""},
		{"find . -maxdepth 0 -exec test -d {} \\; -exec echo dir {} \\;", 0, "dir .\n", ""},
		{"echo 'exit 5' | sh; echo $?", 0, "5\n", ""},
		{"help cat", 0, "cat [-n] [FILE...]\n    show files one after the other\n", ""},
		{"help echo | head -n 1", 0, "echo [-n] [-e] [TEXT...]\n", ""},
		{"mkdir d; ./d", 126, "", "mur shell: ./d: is a directory\n"},
		{"./nosuch", 127, "", "mur shell: cannot open ./nosuch: no such file or directory\n"},
		{"printf '#!/usr/bin/python\\n' > p; ./p", 126, "", "mur shell: cannot run ./p: there is no /usr/bin/python here\n"},
		{"printf '#!/usr/bin/env bash\\necho ok\\n' > p; ./p", 0, "ok\n", ""},
		{"printf 'a\\0b' > p; ./p", 126, "", "mur shell: cannot run ./p: it is no script, and programs cannot be started here\n"},
		{"history 1", 0, "", ""},
		{"kill 1", 1, "", "mur shell: kill: there are no other processes here\n"},
		{"echo 1 | xargs kill", 123, "", "mur shell: kill: there are no other processes here\n"},
		{"fg || bg", 1, "", "mur shell: fg: there is no job control here\nmur shell: bg: there is no job control here\n"},
		{"type kill; which fg; command -v jobs", 1, "", "type: kill: not found\nwhich: no fg here\n"},
		{"help kill", 0, "kill\n    not here: there are no other processes here\n", ""},
		{"ls --help; sh --help; echo --help; true --help", 0, "usage: ls [-laAhtSrRdF1] [FILE...]\n" +
			"usage: sh [-c SCRIPT | FILE] [ARGUMENT...]\n--help\n", ""},
		{"cd --help; help -s wc", 0, "cd: cd [-L|[-P [-e]]] [dir]\nusage: wc [-l] [-w] [-c] [-m] [FILE...]\n", ""},
		{"exec echo a; echo no", 0, "a\n", ""},
		{"exec basename a/b; echo no", 0, "b\n", ""},
		{"exec false; echo no", 1, "", ""},
		{"exec pwd > f; echo no", 0, "", ""},
		{"exec nosuch; echo no", 127, "", "mur shell: nosuch: command not found (help lists the commands)\n"},
		{"(exec sh -c 'exit 3'); echo $?", 0, "3\n", ""},
		{"exec > f; echo a; exec cat < f >&2", 0, "", "a\n"},
		{"cd /nosuch", 1, "", "cd: no such file or directory: \"/nosuch\"\n"},
	} {
		status, stdout, stderr := script(t, t.TempDir(), "", "-c", tc.script)
		if status != tc.status || stdout != tc.stdout || stderr != tc.stderr {
			t.Errorf("%s\ngot  %d %q %q\nwant %d %q %q", tc.script, status, stdout, stderr, tc.status, tc.stdout, tc.stderr)
		}
	}
}

func TestInputIsRunCommandByCommand(t *testing.T) {
	status, stdout, stderr := script(t, t.TempDir(), "echo one\nif true\nthen echo two; fi\ntrap 'echo bye' EXIT\nfalse\n")
	if status != 1 || stdout != "one\ntwo\nbye\n" || stderr != "" {
		t.Errorf("got %d %q %q", status, stdout, stderr)
	}
	status, stdout, stderr = script(t, t.TempDir(), "echo one\n)\necho two\n")
	if status != 2 || stdout != "one\n" || !strings.HasPrefix(stderr, "mur shell: syntax error: ") {
		t.Errorf("got %d %q %q", status, stdout, stderr)
	}
}

func TestHelpListsWhatThereIs(t *testing.T) {
	_, stdout, _ := script(t, t.TempDir(), "", "-c", "help")
	for _, cmd := range cmds.Table() {
		if !strings.Contains(stdout, cmd.Name) {
			t.Errorf("help does not name %s", cmd.Name)
		}
	}
	for _, name := range languageBuiltins() {
		if !interp.IsBuiltin(name) {
			t.Errorf("%s is no builtin", name)
		}
	}
	for name := range ownCommands() {
		if ownHelp()[name] == "" {
			t.Errorf("%s has no help", name)
		}
	}
}

func TestTheWordBeforeTheCursor(t *testing.T) {
	for _, tc := range []struct {
		before string
		want   word
	}{
		{"", word{command: true}},
		{"ls", word{text: "ls", command: true}},
		{"ls ", word{start: 3}},
		{"ls a", word{start: 3, text: "a"}},
		{"ls | gr", word{start: 5, text: "gr", command: true}},
		{"a; b", word{start: 3, text: "b", command: true}},
		{"if tr", word{start: 3, text: "tr", command: true}},
		{"X=1 ec", word{start: 4, text: "ec", command: true}},
		{"X=fi", word{start: 2, text: "fi"}},
		{"cat <fi", word{start: 5, text: "fi"}},
		{`cat a\ b`, word{start: 4, text: "a b"}},
		{`cat "a b`, word{start: 5, text: "a b", quote: '"'}},
		{`cat 'a"b`, word{start: 5, text: `a"b`, quote: '\''}},
		{"echo $(ca", word{start: 7, text: "ca", command: true}},
	} {
		if got := lastWord(tc.before); got != tc.want {
			t.Errorf("%q: got %+v, want %+v", tc.before, got, tc.want)
		}
	}
}

func newSession(t *testing.T, dir string) *session {
	t.Helper()
	s := &Shell{Config: Config{Files: fsys.New([]string{dir})}, commands: map[string]cmds.Command{}, own: ownCommands(), home: dir}
	for _, cmd := range cmds.Table() {
		s.commands[cmd.Name] = cmd
	}
	r, err := s.runner(streams{}, dir, nil, call{})
	if err != nil {
		t.Fatal(err)
	}
	return &session{Shell: s, r: r}
}

func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b", "dir/x1", "dir/x2", ".hid", "it's", "#c"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSession(t, dir)
	for _, tc := range []struct {
		before string
		start  int
		words  string // joined by commas
	}{
		{"basen", 0, "basename "},
		{"pus", 0, "pushd "},
		{"cat a", 4, `a\ b `},
		{`cat "a`, 5, `a b" `},
		{`cat i`, 4, `it\'s `},
		{`cat \#`, 4, `\#c `},
		{"cd d", 3, "dir/"},
		{"cat dir/", 4, "dir/x1,dir/x2"},
		{"cat ~/dir/x1", 4, "~/dir/x1 "},
		{"cat .h", 4, ".hid "},
		{"cat zz", 4, ""},
		{"äö ba", 3, ""},
		{"./d", 0, "./dir/"},
		{"cat /nosuch/x", 4, ""},
	} {
		got := s.complete(tc.before)
		if words := strings.Join(got.Words, ","); words != tc.words || got.Start != tc.start {
			t.Errorf("%q: got %d %q, want %d %q", tc.before, got.Start, words, tc.start, tc.words)
		}
	}
}

func TestALongHistoryFileIsCut(t *testing.T) {
	dir := t.TempDir()
	h := historyFile{files: fsys.New([]string{dir}), path: filepath.Join(dir, historyName)}
	if got := h.load(); got != nil {
		t.Errorf("without a file: %v", got)
	}
	text := strings.Repeat(edit.EncodeLine("old"), 2*historyLines) + edit.EncodeLine("a\nb\\")
	if err := os.WriteFile(h.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := h.load()
	if len(got) != historyLines || got[historyLines-1] != "a\nb\\" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	if again := h.load(); !reflect.DeepEqual(got, again) {
		t.Error("the cut file holds something else")
	}
	if data, err := os.ReadFile(h.path); err != nil || bytes.Count(data, []byte("\n")) != historyLines {
		t.Errorf("the file was not cut: %v", err)
	}
	if err := h.add("new"); err != nil || len(h.load()) != historyLines {
		t.Errorf("add: %v", err)
	}
}

func TestAnInterruptedForegroundEnds(t *testing.T) {
	f := newForeground()
	if f.Err() != nil {
		t.Errorf("fresh: %v", f.Err())
	}
	inner, cancel := context.WithTimeout(f, time.Hour)
	defer cancel()
	f.interrupt()
	f.interrupt()
	if !errors.Is(f.Err(), context.Canceled) {
		t.Errorf("interrupted: %v", f.Err())
	}
	select {
	case <-inner.Done():
	case <-time.After(10 * time.Second):
		t.Error("what is derived from it goes on")
	}
}

func TestWhoAsksForTheEndBreathes(t *testing.T) {
	f := newForeground()
	f.start = time.Now().Add(-10 * breathLate)
	f.Err()
	if f.last.Load() == 0 {
		t.Error("a late breath was not taken")
	}
}
