package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const stranger = 65_534 // nobody

func chown(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away to see them refused")
	}
	if err := os.Lchown(path, stranger, stranger); err != nil {
		t.Fatal(err)
	}
}

func TestStateRootThatIsNotOursAloneIsRefused(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, root string){
		"foreign":          chown,
		"open to others":   func(t *testing.T, root string) { must(t, os.Chmod(root, 0o701)) },
		"open to group":    func(t *testing.T, root string) { must(t, os.Chmod(root, 0o710)) },
		"link":             relink,
		"file":             func(t *testing.T, root string) { replaceBy(t, root, "file") },
		"foreign sessions": func(t *testing.T, root string) { chown(t, filepath.Join(root, "sessions")) },
		"linked sessions":  func(t *testing.T, root string) { relink(t, filepath.Join(root, "sessions")) },
		"open names":       func(t *testing.T, root string) { must(t, os.Chmod(filepath.Join(root, "names"), 0o777)) },
		"linked names":     func(t *testing.T, root string) { relink(t, filepath.Join(root, "names")) },
	} {
		t.Run(what, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "state")
			r := openRoot(t, root)
			d := create(t, r, newID(), CreateOptions{})
			spoil(t, root)
			if again, err := OpenRoot(root); !errors.Is(err, ErrUnsafe) {
				t.Errorf("OpenRoot gives %v, %v", again, err)
			}
			if again, err := Open(d.Path()); strings.Contains(what, "names") == (err != nil) {
				t.Errorf("Open gives %v, %v", again, err)
			} else if err == nil {
				again.Close()
			}
		})
	}
	if _, err := OpenRoot("/"); !errors.Is(err, ErrUnsafe) {
		t.Errorf("the root directory as state root gives %v", err)
	}
}

func TestSessionThatIsNotOursAloneIsRefused(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, dir string){
		"foreign":           chown,
		"open":              func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o750)) },
		"link":              relink,
		"socket":            func(t *testing.T, dir string) { replaceBy(t, dir, "socket") },
		"foreign bootstrap": func(t *testing.T, dir string) { chown(t, filepath.Join(dir, BootstrapFile)) },
		"open bootstrap":    func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, BootstrapFile), 0o640)) },
		"linked bootstrap":  func(t *testing.T, dir string) { relink(t, filepath.Join(dir, BootstrapFile)) },
		"bootstrap fifo":    func(t *testing.T, dir string) { replaceBy(t, filepath.Join(dir, BootstrapFile), "fifo") },
		"bootstrap socket":  func(t *testing.T, dir string) { replaceBy(t, filepath.Join(dir, BootstrapFile), "socket") },
		"bootstrap two names": func(t *testing.T, dir string) {
			must(t, os.Link(filepath.Join(dir, BootstrapFile), filepath.Join(dir, "second")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRoot(t)
			id := newID()
			d := create(t, r, id, CreateOptions{Name: "n"})
			other := create(t, r, newID(), CreateOptions{Name: "other"})
			spoil(t, d.Path())
			for call, err := range map[string]error{
				"Root.Open": opened1(r.Open(d.ID())),
				"Open":      opened1(Open(d.Path())),
				"Create":    created1(r.Create(id, CreateOptions{Name: "n"})),
			} {
				if !errors.Is(err, ErrUnsafe) {
					t.Errorf("%s gives %v", call, err)
				}
			}
			// What cannot be judged keeps its name, and nobody else suffers.
			var taken *NameTakenError
			if err := created1(r.Create(newID(), CreateOptions{Name: "n"})); !errors.As(err, &taken) {
				t.Errorf("its name is given to another: %v", err)
			}
			if ids, err := r.List(); err != nil || len(ids) != 2 {
				t.Errorf("listed %v, %v", ids, err)
			}
			if _, err := other.Read(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDamagedBootstrapIsNamed(t *testing.T) {
	good := func(b Bootstrap) []byte {
		data, err := protocol.Marshal(b)
		must(t, err)
		return data
	}
	for what, change := range map[string]func(b Bootstrap) []byte{
		"empty":        func(Bootstrap) []byte { return nil },
		"trailing":     func(b Bootstrap) []byte { return append(good(b), 0) },
		"cut":          func(b Bootstrap) []byte { data := good(b); return data[:len(data)-1] },
		"too long":     func(b Bootstrap) []byte { return append(good(b), make([]byte, maxBootstrap)...) },
		"format":       func(b Bootstrap) []byte { b.Format = 2; return good(b) },
		"other id":     func(b Bootstrap) []byte { b.Session = protocol.NewSessionID(newID()); return good(b) },
		"bad id":       func(b Bootstrap) []byte { b.Session = "x"; return good(b) },
		"short secret": func(b Bootstrap) []byte { b.Secret = b.Secret[:31]; return good(b) },
		"zero token":   func(b Bootstrap) []byte { b.ExecutionToken = make([]byte, 32); return good(b) },
		"no key":       func(b Bootstrap) []byte { b.RefereeKey = nil; return good(b) },
		"bad name":     func(b Bootstrap) []byte { b.Name = "../x"; return good(b) },
		"bad size":     func(b Bootstrap) []byte { b.Size = &protocol.Size{}; return good(b) },
	} {
		r := newRoot(t)
		d := create(t, r, newID(), CreateOptions{})
		must(t, os.WriteFile(filepath.Join(d.Path(), BootstrapFile), change(d.Bootstrap()), 0o600))
		var corrupt *CorruptError
		err := opened1(r.Open(d.ID()))
		if !errors.As(err, &corrupt) || corrupt.File != BootstrapFile || corrupt.Session != d.ID() {
			t.Errorf("%s: %v", what, err)
		}
		var format *FormatError
		if errors.As(err, &format) != (what == "format") {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := newRoot(t)
	d := create(t, r, newID(), CreateOptions{})
	must(t, os.Remove(filepath.Join(d.Path(), BootstrapFile)))
	var corrupt *CorruptError
	if err := opened1(r.Open(d.ID())); !errors.As(err, &corrupt) {
		t.Errorf("missing: %v", err)
	}
}

func TestLinkAboveTheStateRootIsTheUsersBusiness(t *testing.T) {
	base := t.TempDir()
	must(t, os.Mkdir(filepath.Join(base, "real"), 0o755))
	must(t, os.Symlink("real", filepath.Join(base, "home")))
	r := openRoot(t, filepath.Join(base, "home", "state"))
	d := create(t, r, newID(), CreateOptions{})
	again, err := Open(d.Path())
	must(t, err)
	again.Close()
}

func TestPathsOfAnyLength(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "m")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	var paths []string
	for _, length := range []int{60, 100, 107, 108, 200} {
		paths = append(paths, base+"/"+strings.Repeat("x", length-len(base)-1))
	}
	paths = append(paths, base+"/"+strings.Repeat("長い/道", 30), base+"/ö \n'\"")
	for _, path := range paths {
		r := openRoot(t, path)
		d := create(t, r, newID(), CreateOptions{Name: "n"})
		again, err := Open(d.Path())
		must(t, err)
		if view, err := again.Read(); err != nil || view.Snapshot.Name != "n" {
			t.Errorf("%q: %v, %v", path, view, err)
		}
		again.Close()
		w, err := d.Watch(t.Context())
		must(t, err)
		retire(t, d)
		must(t, w.Wait(bounded(t)))
		w.Close()
		must(t, r.Purge(d.ID()))
	}
}

func TestEveryWayToOpenRefusesLinks(t *testing.T) {
	base := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(base, "a/b/c"), 0o700))
	must(t, os.Symlink("b", filepath.Join(base, "a/link")))
	must(t, os.Symlink("/proc/self/cwd", filepath.Join(base, "magic")))
	dir, err := os.Open(base)
	must(t, err)
	defer dir.Close()
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for path, want := range map[string]error{
		"a/b/c": nil, ".": nil, "a": nil,
		"a/link": ErrUnsafe, "a/link/c": ErrUnsafe, "magic": ErrUnsafe, "..": ErrUnsafe, "a/../..": ErrUnsafe,
		"none": fs.ErrNotExist, "none/x": fs.ErrNotExist,
	} {
		f, err := openBelow(dir, path, unix.O_RDONLY|unix.O_DIRECTORY)
		if !errors.Is(err, want) {
			t.Errorf("openat2: %s gives %v, want %v", path, err, want)
		}
		if err == nil {
			f.Close()
		}
		fd, err := walkBelow(int(dir.Fd()), path, flags)
		f, err = opened(fd, path, flags, err)
		if !errors.Is(err, want) {
			t.Errorf("step by step: %s gives %v, want %v", path, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened1(d *Dir, err error) error {
	if err == nil {
		d.Close()
	}
	return err
}

func created1(d *Dir, _ bool, err error) error { return opened1(d, err) }

// relink puts a link in the place of path, to where it was moved.
func relink(t *testing.T, path string) {
	t.Helper()
	must(t, os.Rename(path, path+"-moved"))
	must(t, os.Symlink(filepath.Base(path)+"-moved", path))
}

func replaceBy(t *testing.T, path, kind string) {
	t.Helper()
	must(t, os.Rename(path, path+"-moved"))
	switch kind {
	case "file":
		must(t, os.WriteFile(path, nil, 0o600))
	case "fifo":
		must(t, unix.Mkfifo(path, 0o600))
	case "socket":
		must(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0))
	default:
		t.Fatal(fmt.Errorf("unknown kind %s", kind))
	}
}
