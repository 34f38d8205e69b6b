package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// host builds and compiles the capsule once and runs it in this process.
type host struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

// TestCapsule builds the capsule as it is shipped and uses it.
func TestCapsule(t *testing.T) {
	h := &host{}
	t.Cleanup(func() {
		if h.runtime != nil {
			h.runtime.Close(context.Background())
		}
	})
	if err := h.build(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		test func(t *testing.T, h *host)
	}{
		{"ScriptsInTheCapsule", scriptsInTheCapsule},
		{"AScriptIsReadFromAFileOrFromTheInput", aScriptIsReadFromAFileOrFromTheInput},
		{"ASessionAtATerminal", aSessionAtATerminal},
		{"InterruptStopsWhateverRuns", interruptStopsWhateverRuns},
		{"CommandsReadTheTerminalByLines", commandsReadTheTerminalByLines},
		{"HistoryOutlivesASession", historyOutlivesASession},
		{"CompletionInASession", completionInASession},
		{"ThePagerTakesKeys", thePagerTakesKeys},
		{"WithoutRawModeTheTerminalsOwnDriverEdits", withoutRawModeTheTerminalsOwnDriverEdits},
		{"ASessionEndsWithItsTerminal", aSessionEndsWithItsTerminal},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, h) })
	}
}

func (h *host) build(dir string) error {
	wasm := filepath.Join(dir, "shell.wasm")
	cmd := exec.Command("go", "run", "./mkwasm", "-o", wasm, "-tree", filepath.Join(dir, "tree"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build: %w\n%s", err, output)
	}
	code, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	ctx := context.Background()
	h.runtime = wazero.NewRuntime(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, h.runtime); err != nil {
		return err
	}
	if err := exportTerminal(ctx, h.runtime); err != nil {
		return err
	}
	h.module, err = h.runtime.CompileModule(ctx, code)
	return err
}

// tty is what the import module murmur_tty answers from.
type tty struct {
	streams uint32
	noRaw   bool
	raw     atomic.Bool
	size    atomic.Uint64 // columns, then rows
	changes atomic.Uint32
}

type terminalKey struct{}

// exportTerminal links murmur_tty; each guest finds its terminal in the context.
func exportTerminal(ctx context.Context, r wazero.Runtime) error {
	of := func(ctx context.Context) *tty { return ctx.Value(terminalKey{}).(*tty) }
	_, err := r.NewHostModuleBuilder("murmur_tty").
		NewFunctionBuilder().WithFunc(func(ctx context.Context, m api.Module, cols, rows uint32) uint32 {
		size := of(ctx).size.Load()
		if size == 0 {
			return 59
		}
		m.Memory().WriteUint32Le(cols, uint32(size>>32))
		m.Memory().WriteUint32Le(rows, uint32(size))
		return 0
	}).Export("get_size").
		NewFunctionBuilder().WithFunc(func(ctx context.Context, on uint32) uint32 {
		if of(ctx).noRaw {
			return 76
		}
		of(ctx).raw.Store(on == 1)
		return 0
	}).Export("set_raw").
		NewFunctionBuilder().WithFunc(func(ctx context.Context) uint32 {
		return of(ctx).changes.Load()
	}).Export("size_changes").
		NewFunctionBuilder().WithFunc(func(ctx context.Context) uint32 {
		return of(ctx).streams
	}).Export("streams").
		Instantiate(ctx)
	return err
}

// config is the guest as the host of mur starts it: PWD is the work folder,
// which is all there is.
func config(work string, args []string) wazero.ModuleConfig {
	return wazero.NewModuleConfig().WithName("").WithArgs(append([]string{"shell"}, args...)...).
		WithEnv("PWD", "/work").WithSysWalltime().WithSysNanotime().WithSysNanosleep().
		WithFSConfig(wazero.NewFSConfig().WithDirMount(work, "/work"))
}

// instantiate runs the guest to its end and returns its status.
func (h *host) instantiate(tty *tty, cfg wazero.ModuleConfig) (int, error) {
	ctx := context.WithValue(context.Background(), terminalKey{}, tty)
	m, err := h.runtime.InstantiateModule(ctx, h.module, cfg)
	if m != nil {
		m.Close(ctx)
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return int(exit.ExitCode()), nil
	}
	return 0, err
}

type result struct {
	status         int
	stdout, stderr string
}

// run runs the guest without a terminal.
func (h *host) run(t *testing.T, work, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cfg := config(work, args).WithStdin(strings.NewReader(stdin)).WithStdout(&stdout).WithStderr(&stderr)
	status, err := h.instantiate(&tty{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return result{status, stdout.String(), stderr.String()}
}

func scriptsInTheCapsule(t *testing.T, h *host) {
	for _, tc := range []struct {
		name, script   string
		status         int
		stdout, stderr string
	}{
		{"arithmetic", "echo $((6*7))", 0, "42\n", ""},
		{"exit status", "exit 3", 3, "", ""},
		{"status of the last command", "true; false", 1, "", ""},
		{"pipe", "printf 'b\\na\\n' | sort | head -n 1", 0, "a\n", ""},
		{"redirections", "echo one > f; echo two >> f; cat < f; cat < f | wc -l; rm f; ls", 0, "one\ntwo\n2\n", ""},
		{"here-document", "x=1; cat <<E | tr a-z A-Z\nv $x\nE", 0, "V 1\n", ""},
		{"here-string", "read a b <<< 'x y'; echo $b$a", 0, "yx\n", ""},
		{"read in a pipe", "seq 3 | while read n; do echo $((n*n)); done", 0, "1\n4\n9\n", ""},
		{"the root is walkable", "cd /; pwd; ls; echo *; cd work; pwd", 0, "/\nwork\nwork\n/work\n", ""},
		{"no other place", "ls /etc; cat /workshop", 1, "", "ls: cannot list /etc: no such file or directory\n" +
			"cat: cannot open /workshop: no such file or directory\n"},
		{"globs", "mkdir d; touch d/a d/b; echo d/*; cd d; echo ?; cd ..; rm -r d", 0, "d/a d/b\na b\n", ""},
		{"not found", "frob", 127, "", "mur shell: frob: command not found (help lists the commands)\n"},
		{"syntax error", "if", 2, "", "mur shell: syntax error: shell:1:1: `if` must be followed by a statement list\n"},
		{"broken pipe ends a writer", "yes | head -n 1; while :; do echo z; done | head -n 1", 0, "y\nz\n", ""},
		{"null device", "echo x > /dev/null; cat /dev/null; ls nosuch 2>/dev/null; echo $?", 0, "1\n", ""},
		{"functions and set -e", "f() { echo in $1; return 4; }; f a || echo $?; set -e; false; echo no", 1, "in a\n4\n", ""},
		{"exit trap", "trap 'echo bye' EXIT; exit 5", 5, "bye\n", ""},
		{"background", "{ sleep 0.01; echo late; } & wait; echo end", 0, "late\nend\n", ""},
		{"script file", "echo 'echo \"$1-$#\"; exit 9' > s; ./s a b; echo $?; rm s", 0, "a-2\n9\n", ""},
		{"nested shell", "A=1; export A; sh -c 'echo $A$0$1' x y", 0, "1xy\n", ""},
		{"xargs and find", "touch a.t b.t; find . -name '*.t' | sort | xargs rm -v; find . -name '*.t'", 0, "removed ./a.t\nremoved ./b.t\n", ""},
		{"what a name is", "command -v ls; type ls; command -v nosuch || echo none", 0, "ls\nls is a shell builtin\nnone\n", ""},
		{"cannot open", "cat < nosuch; echo $?", 0, "1\n", "mur shell: cannot open nosuch: no such file or directory\n"},
		{"pieces", "for i in one two three; do echo $i; done | cat", 0, "one\ntwo\nthree\n", ""},
		{"a strange redirection", "echo x >&3", 1, "", "mur shell: unhandled >& arg: \"3\"\n"},
		{"a fixed variable", "readonly a=1; a=2", 1, "", "mur shell: a: readonly variable\n"},
		{"its name", "echo $0 ${SHELL-none}; eval 'echo $0'", 0, "shell none\nshell\n", ""},
		{"no terminal", "[ -t 0 ] || [[ -t 1 ]] || test -t 2 || echo none", 0, "none\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := h.run(t, t.TempDir(), "", "-c", tc.script)
			if want := (result{tc.status, tc.stdout, tc.stderr}); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func aScriptIsReadFromAFileOrFromTheInput(t *testing.T, h *host) {
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "x.sh"), []byte("echo file $1\nexit 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := h.run(t, work, "", "x.sh", "arg"), (result{4, "file arg\n", ""}); got != want {
		t.Errorf("file: got %+v, want %+v", got, want)
	}
	if got, want := h.run(t, work, "x=5\nif true; then\necho in $x\nfi\nexit 6\necho no\n"), (result{6, "in 5\n", ""}); got != want {
		t.Errorf("input: got %+v, want %+v", got, want)
	}
	if got, want := h.run(t, work, "echo $0\n"), (result{0, "shell\n", ""}); got != want {
		t.Errorf("the name: got %+v, want %+v", got, want)
	}
	if got, want := h.run(t, work, "cat; echo end", "-c", "cat; echo; echo mine"), (result{0, "cat; echo end\nmine\n", ""}); got != want {
		t.Errorf("the input of -c is the script's own: got %+v, want %+v", got, want)
	}
}

// typist is a person at the guest's terminal.
type typist struct {
	t     *testing.T
	tty   *tty
	keys  *os.File
	ended chan result

	mu   sync.Mutex
	seen []byte
	more chan struct{}
	from int // what was looked at already
}

// Write takes what the guest shows.
func (p *typist) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, data...)
	close(p.more)
	p.more = make(chan struct{})
	return len(data), nil
}

func (h *host) sit(t *testing.T, work string, tty *tty) *typist {
	t.Helper()
	input, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &typist{t: t, tty: tty, keys: keys, ended: make(chan result, 1), more: make(chan struct{})}
	tty.streams = 7
	tty.size.Store(80<<32 | 24)
	go func() {
		status, err := h.instantiate(tty, config(work, nil).WithStdin(input).WithStdout(p).WithStderr(p))
		input.Close()
		stderr := ""
		if err != nil {
			stderr = err.Error()
		}
		p.ended <- result{status: status, stderr: stderr}
	}()
	t.Cleanup(func() {
		keys.Close() // a shell whose terminal is gone ends
		if p.ended == nil {
			return
		}
		select {
		case <-p.ended:
		case <-time.After(20 * time.Second):
			t.Error("the shell outlives its terminal")
		}
	})
	return p
}

func (p *typist) types(keys string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until text was shown after what was seen before.
func (p *typist) sees(text string) {
	p.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		at := strings.Index(string(p.seen[p.from:]), text)
		if at >= 0 {
			p.from += at + len(text)
			p.mu.Unlock()
			return
		}
		shown, more := string(p.seen[p.from:]), p.more
		p.mu.Unlock()
		select {
		case <-more:
		case <-limit:
			p.t.Fatalf("%q is not shown, but %q", text, shown)
		}
	}
}

func (p *typist) ends(status int) {
	p.t.Helper()
	select {
	case got := <-p.ended:
		p.ended = nil
		if got.status != status || got.stderr != "" {
			p.t.Errorf("ended with %+v, want status %d", got, status)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatal("the shell does not end")
	}
}

func aSessionAtATerminal(t *testing.T, h *host) {
	work := t.TempDir()
	p := h.sit(t, work, &tty{})
	p.sees("mur:/work$ ")
	if !p.tty.raw.Load() {
		t.Error("the terminal is not raw")
	}
	p.types("echo $((6*7))\r")
	p.sees("\r\n42\n")
	p.sees("mur:/work$ ")
	p.types("mkdir dir; cd dir\r")
	p.sees("mur:/work/dir$ ")
	p.types("cd /; ls\r")
	p.sees("work\n")
	p.sees("mur:/$ ")
	p.types("cd\r")
	p.sees("mur:/work$ ")
	p.types("for i in 1 2\r")
	p.sees("> ")
	p.types("do echo n$i; done\r")
	p.sees("n1\nn2\n")
	p.types("cat <<E | tr a-z A-Z\r")
	p.sees("> ")
	p.types("here\rE\r")
	p.sees("HERE\n")
	p.types("echo $0; [ -t 0 ] && [[ -t 1 && -t 2 ]] && echo a terminal\r")
	p.sees("\nshell\na terminal\n")
	p.types("echo x | { [ -t 0 ] || echo a pipe; }; [ -t 1 ] > f || echo a file; rm f\r")
	p.sees("\na pipe\na file\n")
	p.types("exec nosuch\r")
	p.sees("nosuch: command not found")
	p.sees("mur:/work$ ")
	p.types("printf unfinished\r")
	p.sees("unfinished\r\n")
	p.sees("mur:/work$ ")
	p.types("false\r")
	p.sees("mur:/work$ ")
	p.types("echo s$?; exit 7\r")
	p.sees("s1\n")
	p.ends(7)
	if p.tty.raw.Load() {
		t.Error("the terminal is still raw")
	}
}

func interruptStopsWhateverRuns(t *testing.T, h *host) {
	p := h.sit(t, t.TempDir(), &tty{})
	p.sees("$ ")
	for _, command := range []string{
		"echo go; sleep 1000",
		"echo go; while :; do :; done",
		"echo go; while ((1)); do ((i++)); done",
		"echo go; yes > /dev/null",
		"echo go; yes | cat | cat > /dev/null",
		"echo go; cat",
		"echo go; read x",
		"echo go; cat | sort",
		"echo go; for i in $(seq 100000); do (echo $i | tr 0 1) > /dev/null; done",
		"echo go; sh -c 'while :; do :; done'",
	} {
		p.types(command + "\r")
		p.sees("\r\n")
		p.sees("go\n")
		p.types("\x03")
		p.sees("^C\r\n")
		p.sees("$ ")
		p.types("echo status $?.\r")
		p.sees("status 130.\n")
		p.sees("$ ")
	}
	p.types("half a li\x03")
	p.sees("^C")
	p.sees("$ ")
	p.types("\x04")
	p.ends(130)
}

func commandsReadTheTerminalByLines(t *testing.T, h *host) {
	p := h.sit(t, t.TempDir(), &tty{})
	p.sees("$ ")
	p.types("read name; echo hi $name.\r")
	p.sees("\r\n")
	p.types("wrongg\x15right\r")
	p.sees("hi right.\n")
	p.sees("$ ")
	p.types("tr a-z A-Z\r")
	p.sees("\r\n")
	p.types("one\r")
	p.sees("one\r\nONE\n")
	p.types("two\r")
	p.sees("TWO\n")
	p.types("\x04")
	p.sees("$ ")
	p.types("sleep 0.2\recho typed ahead\r")
	p.sees("\ntyped ahead\n")
	p.sees("$ ")
	p.types("\x04")
	p.ends(0)
}

func historyOutlivesASession(t *testing.T, h *host) {
	work := t.TempDir()
	p := h.sit(t, work, &tty{})
	p.sees("$ ")
	p.types("echo first\recho second\r echo secret\r")
	p.sees("secret\n")
	p.types("exit\r")
	p.ends(0)

	p = h.sit(t, work, &tty{})
	p.sees("$ ")
	p.types("\x1b[A\x1b[A\r")
	p.sees("\nsecond\n")
	p.types("\x12fir\r")
	p.sees("\nfirst\n")
	p.types("history\r")
	p.sees("echo first")
	p.types("\x04")
	p.ends(0)
	data, err := os.ReadFile(filepath.Join(work, ".mur_history"))
	if want := "echo first\necho second\nexit\necho second\necho first\nhistory\n"; err != nil || string(data) != want {
		t.Errorf("history file %q, %v; want %q", data, err, want)
	}
}

func completionInASession(t *testing.T, h *host) {
	work := t.TempDir()
	for _, name := range []string{"alpha one.txt", "beta.txt", "beth.txt"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := h.sit(t, work, &tty{})
	p.sees("$ ")
	p.types("cat al\t\r")
	p.sees("\nalpha one.txt\n")
	p.sees("$ ")
	p.types("sha25\t beta.\t\r")
	p.sees("  beta.txt\n")
	p.sees("$ ")
	p.types("cat b\t\t\t")
	p.sees("beta.txt  beth.txt")
	p.types("h\t\r")
	p.sees("\nbeth.txt\n")
	p.types("exit\r")
	p.ends(0)
}

func thePagerTakesKeys(t *testing.T, h *host) {
	p := h.sit(t, t.TempDir(), &tty{})
	p.sees("$ ")
	p.types("seq 100 | less\r")
	p.sees("lines 1-23 of 100")
	p.types(" ")
	p.sees("lines 24-46 of 100")
	p.types("/77\r")
	p.sees("lines 77-99 of 100")
	p.types("q")
	p.sees("$ ")
	p.types("seq 3 | less\r")
	p.sees("1\n2\n3\n")
	p.sees("$ ")
	p.types("exit\r")
	p.ends(0)
}

func withoutRawModeTheTerminalsOwnDriverEdits(t *testing.T, h *host) {
	p := h.sit(t, t.TempDir(), &tty{noRaw: true})
	p.sees("mur:/work$ ")
	p.types("echo plain\n")
	p.sees("plain\n")
	p.sees("$ ")
	p.types("read x; echo got $x\n")
	p.types("word\n")
	p.sees("got word\n")
	p.types("exit 2\n")
	p.ends(2)
}

func aSessionEndsWithItsTerminal(t *testing.T, h *host) {
	for _, command := range []string{"", "sleep 1000\r", "cat\r", "while :; do :; done\r"} {
		p := h.sit(t, t.TempDir(), &tty{})
		p.sees("$ ")
		p.types(command)
		if command != "" {
			p.sees("\r\n")
		}
		p.keys.Close()
		select {
		case got := <-p.ended:
			p.ended = nil
			if got.stderr != "" {
				t.Errorf("%q: %s", command, got.stderr)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q: the shell goes on", command)
		}
	}
}
