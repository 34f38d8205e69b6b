//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWrongCallIsRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"-o", "x", "y"}, {"-z"}} {
		var stderr bytes.Buffer
		if status := run(args, nil, &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%q: status %d, %q", args, status, stderr.String())
		}
	}
}

func TestAConstraintIsMovedOrMissed(t *testing.T) {
	source := "// c\n\n//go:build js\n\npackage x\n"
	got, err := constrain([]byte(source), "js", "js || wasip1")
	if want := strings.Replace(source, "js", "js || wasip1", 1); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := constrain([]byte(source), "!js", "x"); err == nil {
		t.Error("a constraint that is not there was replaced")
	}
}

func TestATextIsEditedOrMissed(t *testing.T) {
	e := edit{old: "a", new: "b", times: 2}
	if got, err := e.apply([]byte("xaya")); err != nil || string(got) != "xbyb" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := e.apply([]byte("xa")); err == nil {
		t.Error("a text that is not there as often was replaced")
	}
}

func TestAModuleThatChangedIsNotBuilt(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "sh")
	if err := os.Mkdir(filepath.Join(from, "interp"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":              "module x\n",
		"interp/stdin_js.go":  "// c\n//go:build js\npackage interp\n",
		"interp/x_test.go":    "package interp\n",
		"interp/other.go":     "package interp\n",
		"interp/other.canary": "",
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := copyModule(from, to)
	if err == nil || !strings.Contains(err.Error(), "not those expected") {
		t.Errorf("got %v", err)
	}
	for name, want := range map[string]bool{
		"go.mod": true, "interp/other.go": true, "interp/stdin_process.go": true,
		"interp/x_test.go": false, "interp/other.canary": false, "interp/stdin_js.go": false,
	} {
		if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// A machine that never built anything has no module's source yet: the registry is
// played by what this machine has downloaded.
func TestTheSourceIsFetchedWhereItNeverWas(t *testing.T) {
	cache, err := query("env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source(module); err != nil { // it may be the first here, too
		t.Fatal(err)
	}
	fresh := t.TempDir()
	t.Setenv("GOMODCACHE", fresh)
	t.Setenv("GOPROXY", "file://"+filepath.Join(cache, "cache", "download"))
	t.Setenv("GOFLAGS", "-modcacherw") // so that it can be removed
	t.Setenv("GOSUMDB", "off")         // go.sum decides
	dir, err := source(module)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(dir, fresh) {
		t.Errorf("the source is in %s, not in the new cache %s", dir, fresh)
	}
	if _, err := os.Stat(filepath.Join(dir, "interp", "api.go")); err != nil {
		t.Error(err)
	}
}
