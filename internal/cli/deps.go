package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/seed-8e62c83d/mur/client"
)

// deps is what a verb works with: main's streams and environment.
type deps struct {
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
			return path, nil
		}
	}
	return d.userDir("XDG_STATE_HOME", ".local/state")
}

// cacheDir is where compiled modules are kept.
func (d *deps) cacheDir() (string, error) {
	if path := d.getenv("MURMUR_CACHE"); path != "" {
		return path, nil
	}
	return d.userDir("XDG_CACHE_HOME", ".cache")
}

// userDir follows the XDG base directory rules: a relative path does not count.
func (d *deps) userDir(name, below string) (string, error) {
	if path := d.getenv(name); filepath.IsAbs(path) {
		return filepath.Join(path, "mur"), nil
	}
	home := d.getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fail(causeFailed, "export MUR_HOME=/some/private/directory",
			"cannot find a place for sessions: neither MUR_HOME nor %s nor HOME is set to a path", name)
	}
	return filepath.Join(home, below, "mur"), nil
}

func (d *deps) client() (*client.Client, error) {
	root, err := d.stateRoot()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{Root: root})
	return c, cannot("open", "the state directory "+root, err)
}

// session opens the session that text names.
func (d *deps) session(verb, text string) (*client.Session, error) {
	c, err := d.client()
	if err != nil {
		return nil, err
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

// completeSessions offers the names, or ids, of the sessions.
func (d *deps) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := d.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	all, _ := c.List(cmd.Context())
	var out []string
	for _, st := range all {
		if st.Name != "" {
			out = append(out, st.Name)
		} else {
			out = append(out, st.Session)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
