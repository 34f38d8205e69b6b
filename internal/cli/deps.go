package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/seed-8e62c83d/mur/client"
)

// deps is what a verb works with: main's streams and environment.
type deps struct {
	args           []string // after the program's name
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	color          string // auto, always or never
	now            func() time.Time
}

// getenv gives a variable's value.
func (d *deps) getenv(name string) string {
	value, _ := d.lookupEnv(name)
	return value
}

// lookupEnv tells too whether it is set; the last of several counts.
func (d *deps) lookupEnv(name string) (value string, ok bool) {
	for _, entry := range d.environ {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}

// stateRoot is where the sessions are.
func (d *deps) stateRoot() (string, error) {
	for _, name := range []string{"MURMUR_STATE", "MUR_HOME"} {
		if path := d.getenv(name); path != "" {
			return path, absolute(name, path)
		}
	}
	if path := d.userDir("XDG_STATE_HOME", ".local/state"); path != "" {
		return path, nil
	}
	return "", fail(causeFailed, "export MUR_HOME=/some/private/directory",
		"cannot find a place for sessions: none of MUR_HOME, XDG_STATE_HOME and HOME is set to an absolute path")
}

// absolute refuses a path that means another place in each directory: a session
// must be found from everywhere.
func absolute(name, path string) error {
	if filepath.IsAbs(path) {
		return nil
	}
	return fail(causeFailed, "export "+name+`="$PWD"/`+quoted([]string{path}),
		"cannot use %s %s: it is not an absolute path, and sessions must be found from any directory", name, path)
}

// cacheDir is where compiled modules are kept; without a home beside the sessions.
func (d *deps) cacheDir() (string, error) {
	if path := d.getenv("MURMUR_CACHE"); path != "" {
		return path, absolute("MURMUR_CACHE", path)
	}
	if path := d.userDir("XDG_CACHE_HOME", ".cache"); path != "" {
		return path, nil
	}
	root, err := d.stateRoot()
	return filepath.Join(root, "cache"), err
}

// userDir follows the XDG base directory rules: a relative path does not count.
// Empty: there is none.
func (d *deps) userDir(name, below string) string {
	if path := d.getenv(name); filepath.IsAbs(path) {
		return filepath.Join(path, "mur")
	}
	home := d.getenv("HOME")
	if !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, below, "mur")
}

// client opens the state directory, which is made if need be.
func (d *deps) client() (*client.Client, error) {
	root, err := d.stateRoot()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Root: root})
}

// existing is client for those who only look: nil if nothing was ever made there.
func (d *deps) existing() (*client.Client, error) {
	root, err := d.stateRoot()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(root, "sessions")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return client.New(client.Options{Root: root})
}

// session opens the session that text names.
func (d *deps) session(verb, text string) (*client.Session, error) {
	c, err := d.existing()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, cannot(verb, text, &client.Error{
			Code: client.CodeNoSession, Message: fmt.Sprintf("no session is called %q", text), Hint: "mur ls",
		})
	}
	s, err := c.Open(text)
	return s, cannot(verb, text, err)
}

// say is talk: one line on stderr.
func (d *deps) say(format string, args ...any) {
	fmt.Fprintf(d.stderr, "mur: "+format+"\n", args...)
}

// terminal gives the file behind a stream if it is a terminal, else nil.
func terminal(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// called is how people call a session: by its name if it has one.
func called(s *client.Session) string {
	if name := s.Name(); name != "" {
		return name
	}
	return s.ID()
}
