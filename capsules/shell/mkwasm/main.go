//go:build linux

// Command mkwasm builds the shell's capsule for wasip1.
//
// It exists because the interpreter mvdan.cc/sh/v3/interp joins the sides of a
// pipeline by a pipe of the system. For GOOS=js, which has none, it has a build
// with pipes inside the process; wasip1 has none either, but is left out of
// that build constraint. mkwasm makes a copy of the module as it is in the
// module cache, checked by go.sum, moves that one constraint, and builds with a
// go.mod that points to the copy. The project's go.mod is not touched.
//
// As the copy is there, it also gets right what the interpreter gives no handle
// to: the name it goes by, who complains of a redirection, and whether a stream
// is a terminal. See [edits].
//
// By default the copy is made under a fixed name below the module's root, because
// a binary records where a replaced module came from: so the same input gives
// the same bytes on every machine. It is removed when the build is done; a build
// that is killed leaves it behind and the next one replaces it. Two builds at a
// time in one tree take turns.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	module = "mvdan.cc/sh/v3"
	target = "./capsules/shell"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stderr))
}

func run(args, env []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("mkwasm", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("o", "", "write the module to `FILE`")
	tree := flags.String("tree", "bin/mkwasm", "make the patched copy in `DIR`, from the module's root on")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *out == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "mkwasm: cannot build: -o FILE is needed, and nothing else")
		return 2
	}
	if err := build(*out, *tree, env, stderr); err != nil {
		fmt.Fprintf(stderr, "mkwasm: %v\n", err)
		return 1
	}
	return 0
}

func build(out, tree string, env []string, stderr io.Writer) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", out, err)
	}
	gomod, err := query("env", "GOMOD")
	if err != nil {
		return err
	}
	root := filepath.Dir(gomod)
	cached, err := source(module)
	if err != nil {
		return err
	}
	dir := tree
	if !filepath.IsAbs(tree) {
		dir = filepath.Join(root, tree)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	defer os.RemoveAll(filepath.Join(dir, "sh"))
	if err := prepare(root, dir, cached); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-modfile="+filepath.Join(dir, "go.mod"),
		"-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, target)
	cmd.Dir = root
	cmd.Env = append(env, "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build %s: %w", target, err)
	}
	return nil
}

// source gives the directory of a module's source. On a machine that never built
// anything it is fetched first: "go list -m" would only say that it is not there.
func source(module string) (string, error) {
	answer, err := query("mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var found struct{ Dir string }
	if err := json.Unmarshal([]byte(answer), &found); err != nil {
		return "", fmt.Errorf("cannot read what go mod download says of %s: %w", module, err)
	}
	return found.Dir, nil
}

// query asks the go command one question.
func query(args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot run go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(answer)), nil
}

// lock makes builds in one tree take turns. The kernel drops the lock when the
// process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	return func() { file.Close() }, nil
}

// prepare makes the copy, the go.mod that points to it and its go.sum.
func prepare(root, dir, cached string) error {
	if err := copyModule(cached, filepath.Join(dir, "sh")); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return fmt.Errorf("cannot read go.mod: %w", err)
	}
	source := filepath.Join(dir, "sh")
	if rel, err := filepath.Rel(root, source); err == nil && filepath.IsLocal(rel) {
		source = "./" + rel
	}
	mod = append(mod, "\nreplace "+module+" => "+source+"\n"...)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return fmt.Errorf("cannot read go.sum: %w", err)
	}
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// copyModule copies the sources of a module, without its tests, and moves the
// constraint.
func copyModule(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("cannot remove the old copy: %w", err)
	}
	moved, edited := 0, 0
	err := filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if e.Name() == "testdata" || rel == "cmd" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o777)
		}
		if filepath.Ext(name) != ".go" && rel != "go.mod" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch rel {
		case "interp/stdin_os.go":
			data, err = constrain(data, "!js", "!js && !wasip1")
			moved++
		case "interp/stdin_js.go":
			data, err = constrain(data, "js", "js || wasip1")
			rel = "interp/stdin_process.go" // the old name alone would mean js
			moved++
		}
		for _, e := range edits() {
			if e.file == filepath.ToSlash(rel) && err == nil {
				data, err = e.apply(data)
				edited++
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o666)
	})
	if err == nil && (moved != 2 || edited != len(edits())) {
		err = errors.New("its files are not those expected: look what the new version does by itself now")
	}
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", module, err)
	}
	return nil
}

// constrain replaces a build constraint that must be there.
func constrain(source []byte, from, to string) ([]byte, error) {
	old := []byte("\n//go:build " + from + "\n")
	if bytes.Count(source, old) != 1 {
		return nil, fmt.Errorf("no build constraint %q", from)
	}
	return bytes.Replace(source, old, []byte("\n//go:build "+to+"\n"), 1), nil
}

// edit replaces a text that must be there a known number of times.
type edit struct {
	file  string
	old   string
	new   string
	times int
}

func (e edit) apply(source []byte) ([]byte, error) {
	if got := bytes.Count(source, []byte(e.old)); got != e.times {
		return nil, fmt.Errorf("%q is there %d times, not %d", e.old, got, e.times)
	}
	return bytes.ReplaceAll(source, []byte(e.old), []byte(e.new)), nil
}

// edits are the changes of the interpreter's code.
func edits() []edit {
	const anyError, ourError = `r.errf("%v\n", err)`, `r.errf("mur shell: %v\n", err)`
	return []edit{
		{"interp/vars.go", `vr.Str = "gosh"`, `vr.Str = "shell"`, 1},
		{"interp/vars.go", anyError, ourError, 1},
		{"interp/runner.go", anyError, ourError, 2},
		// There are no file descriptors to ask the system about, so the stream
		// itself is asked.
		{
			"interp/test.go", "\t\tif f, ok := f.(interface{ Fd() uintptr }); ok {\n",
			"\t\tif s, ok := f.(jsReader); ok {\n\t\t\tf = s.Reader\n\t\t}\n" +
				"\t\tif f, ok := f.(interface{ IsTerminal() bool }); ok {\n\t\t\treturn f.IsTerminal()\n\t\t}\n" +
				"\t\tif f, ok := f.(interface{ Fd() uintptr }); ok {\n", 1,
		},
	}
}
