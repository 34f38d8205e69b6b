package fsys

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func names(list []fs.DirEntry) (out []string) {
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestParentsOfGivenDirectoriesCanBeListed(t *testing.T) {
	f := New([]string{"/work", "/data/in", "/data/out", "./data/in/deep"})
	for _, tc := range []struct {
		dir  string
		want []string
	}{
		{"/", []string{"data", "work"}},
		{"/data", []string{"in", "out"}},
	} {
		list, err := f.ReadDir(tc.dir)
		if err != nil || !equal(names(list), tc.want) {
			t.Errorf("ReadDir(%q) = %v, %v; want %v", tc.dir, names(list), err, tc.want)
		}
		if info, err := f.Stat(tc.dir); err != nil || !info.IsDir() {
			t.Errorf("Stat(%q) = %v, %v", tc.dir, info, err)
		}
	}
}

func TestALongerNameIsNotMistakenForAGivenDirectory(t *testing.T) {
	base := t.TempDir()
	given := filepath.Join(base, "work")
	other := filepath.Join(base, "workshop")
	for _, dir := range []string{given, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := New([]string{given})
	if _, err := f.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	if _, err := f.OpenFile(filepath.Join(other, "x"), os.O_CREATE|os.O_WRONLY, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenFile: %v", err)
	}
	if _, err := f.ReadDir(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadDir: %v", err)
	}
}

func TestGivenDirectoriesAndTheirParentsStay(t *testing.T) {
	base := t.TempDir()
	given := filepath.Join(base, "work")
	if err := os.Mkdir(given, 0o755); err != nil {
		t.Fatal(err)
	}
	f := New([]string{given})
	for what, err := range map[string]error{
		"remove given":    f.Remove(given),
		"remove parent":   f.Remove(base),
		"rename given":    f.Rename(given, filepath.Join(given, "x")),
		"rename out":      f.Rename(filepath.Join(given, "x"), filepath.Join(base, "x")),
		"mkdir in parent": f.Mkdir(filepath.Join(base, "new"), 0o755),
		"touch parent":    f.Chtimes(base, time.Now()),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := f.Mkdir(base, 0o755); !errors.Is(err, fs.ErrExist) {
		t.Errorf("mkdir parent: %v", err)
	}
	if err := f.Mkdir(filepath.Join(given, "new"), 0o755); err != nil {
		t.Errorf("mkdir inside: %v", err)
	}
}

func TestTheNullDeviceIsEverywhere(t *testing.T) {
	f := New([]string{"/nowhere"})
	file, err := f.OpenFile("/dev/null", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if n, err := io.WriteString(file, "gone"); n != 4 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if data, err := io.ReadAll(file); len(data) != 0 || err != nil {
		t.Errorf("read: %q, %v", data, err)
	}
	if info, err := f.Stat("/dev/null"); err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		t.Errorf("stat: %v, %v", info, err)
	}
}
