package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-8e62c83d/mur/internal/bundled"
	"github.com/seed-8e62c83d/mur/internal/capsule"
)

// loadCapsule finds a capsule by a bundled name, which nothing can shadow, or by
// its path. ref is how another process names the same.
func (d *deps) loadCapsule(name string) (c *capsule.Capsule, ref string, err error) {
	if short, ok := bundled.Name(name); ok {
		files, ok := bundled.Open(short)
		if !ok {
			return nil, "", &failure{
				cause: causeNotFound, code: "not_found", hint: "make build",
				err: fmt.Errorf("cannot load capsule %s: built without bundled capsules; run make build", name),
			}
		}
		c, err := capsule.LoadFS(files, "mur/"+short)
		return c, short, err
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, "", err
	}
	if c, err = capsule.Load(path); err == nil {
		return c, path, nil
	}
	f := &failure{cause: causeNotStarted, code: "not_a_capsule", hint: d.programHint(name), err: err}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", f
	}
	f.cause, f.code = causeNotFound, "not_found"
	switch info, statErr := os.Stat(path); {
	case statErr != nil:
		f.err = fmt.Errorf("cannot load capsule %s: there is no such file, and no bundled capsule of that name%s", name, thereAre())
	case info.IsDir() && missing(filepath.Join(path, capsule.ManifestFile)):
		f.err = fmt.Errorf("cannot load capsule %s: there is no %s in this directory", name, capsule.ManifestFile)
	}
	return nil, "", f
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func thereAre() string {
	names := bundled.Names()
	if len(names) == 0 {
		return ""
	}
	return " (bundled are " + strings.Join(names, ", ") + ")"
}

// programHint is for those who mean a plain program: if there is one.
func (d *deps) programHint(name string) string {
	path := d.inPath(name)
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 || !strings.Contains(path, "/") {
		return ""
	}
	return "mur start -- " + quoted([]string{name})
}
