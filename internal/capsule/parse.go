package capsule

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

const bareName = `[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?`

// ParseManifest reads a manifest. The name is the file's, for the error, which is always a *ManifestError.
func ParseManifest(name string, data []byte) (*Manifest, error) {
	d := &decoder{file: name}
	if len(data) > MaxManifestBytes {
		return nil, d.faultAt(nil, fmt.Sprintf("a manifest is at most %s", Size(MaxManifestBytes)), "")
	}
	root, err := d.parse(data)
	if err != nil {
		return nil, err
	}
	m := empty()
	if err := d.object(root, "the manifest", d.manifest(m)); err != nil {
		return nil, err
	}
	for _, missing := range []struct {
		key    string
		absent bool
	}{{"name", m.Name == ""}, {"version", m.Version == ""}, {"requires_files", m.RequiresFiles == nil}} {
		if missing.absent {
			return nil, d.faultAt(nil, fmt.Sprintf("key %q is missing", missing.key), "")
		}
	}
	if m.Entry.Workdir == "" {
		m.Entry.Workdir = defaultWorkdir(m.Capabilities.Filesystem)
	}
	return m, nil
}

func defaultWorkdir(fs *Filesystem) string {
	if fs != nil && slices.ContainsFunc(fs.Scope, func(s Scope) bool { return s.Guest == WorkGuest }) {
		return WorkGuest
	}
	return "/"
}

func (d *decoder) manifest(m *Manifest) []field {
	return []field{
		{name: "name", set: func(n ast.Node) (err error) { m.Name, err = d.name(n); return err }},
		{name: "version", set: func(n ast.Node) (err error) { m.Version, err = d.version(n); return err }},
		{name: "description", set: func(n ast.Node) (err error) { m.Description, err = d.line(n, "description", 200); return err }},
		{name: "entry", set: func(n ast.Node) error { return d.entry(n, &m.Entry) }},
		{name: "requires_files", set: func(n ast.Node) (err error) {
			m.RequiresFiles, err = d.names(n, "requires_files", false, packedPath)
			return err
		}},
		{name: "capabilities", set: func(n ast.Node) error { return d.object(n, "capabilities", d.capabilities(&m.Capabilities)) }},
		{name: "containment", set: func(n ast.Node) error {
			w, err := d.word(n, "containment", string(Advisory), string(Scoped), string(Sealed))
			m.Containment = Containment(w)
			return err
		}},
		{name: "kind", set: func(n ast.Node) error {
			w, err := d.word(n, "kind", string(Program), string(Script), "service")
			if err == nil && w == "service" {
				return d.fault(n, "kind %q is not supported by this version: only programs and scripts run", w)
			}
			m.Kind = Kind(w)
			return err
		}},
		d.later("authentication", "it belongs to services"),
	}
}

func (d *decoder) name(n ast.Node) (string, error) {
	s, err := d.line(n, "name", 201)
	if err != nil {
		return "", err
	}
	if ok := regexp.MustCompile(`^(` + bareName + `/)?` + bareName + `$`).MatchString(s); !ok {
		return "", d.fault(n, "name %q must be [scope/]name of lowercase letters, digits and inner hyphens, each at most 100", s)
	}
	return s, nil
}

// version also refuses what could not be the name of a directory, since a store keeps each version in one.
func (d *decoder) version(n ast.Node) (string, error) {
	s, err := d.line(n, "version", 128)
	switch {
	case err != nil:
		return "", err
	case s == "latest" || s == "stable" || s == "edge":
		return "", d.fault(n, "version %q names no version: it would move", s)
	case s == "" || s == "." || s == ".." || strings.ContainsAny(s, `/\`) || strings.TrimSpace(s) != s:
		return "", d.fault(n, "version %q must not be empty, contain a slash or start or end with a space", s)
	}
	return s, nil
}

func (d *decoder) entry(n ast.Node, e *Entry) error {
	return d.object(n, "entry", []field{
		{name: "args", set: func(n ast.Node) error {
			return d.list(n, "entry.args", true, func(v ast.Node) error {
				s, err := d.text(v, "an element of entry.args")
				if err == nil && strings.ContainsRune(s, 0) {
					return d.fault(v, "an argument cannot hold a zero byte")
				}
				e.Args = append(e.Args, s)
				return err
			})
		}},
		{name: "workdir", set: func(n ast.Node) (err error) { e.Workdir, err = d.guestPath(n, "entry.workdir"); return err }},
	})
}

func (d *decoder) capabilities(c *Capabilities) []field {
	return []field{
		{name: "filesystem", set: func(n ast.Node) (err error) { c.Filesystem, err = d.filesystem(n); return err }},
		{name: "env", set: func(n ast.Node) error { return d.env(n, &c.Env) }},
		{name: "clock", set: func(n ast.Node) error {
			w, err := d.word(n, "clock", string(ClockNone), string(ClockFixed), string(ClockReal))
			c.Clock = Clock(w)
			return err
		}},
		{name: "random", set: func(n ast.Node) (err error) { c.Random, err = d.random(n); return err }},
		{name: "terminal", set: func(n ast.Node) (err error) { c.Terminal, err = d.terminal(n); return err }},
		{name: "limits", set: func(n ast.Node) error { return d.limits(n, &c.Limits) }},
		d.later("network", "there is no fetch for guests yet"),
		d.later("spawn", "a capsule cannot start others yet"),
	}
}

func (d *decoder) filesystem(n ast.Node) (*Filesystem, error) {
	fs := &Filesystem{}
	err := d.section(n, "filesystem", []field{
		{name: "scope", set: func(n ast.Node) error {
			return d.list(n, "filesystem.scope", false, func(v ast.Node) error {
				s, err := d.scope(v)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(fs.Scope, func(o Scope) bool { return o.Guest == s.Guest }) {
					return d.fault(v, "guest directory %q is in filesystem.scope twice", s.Guest)
				}
				fs.Scope = append(fs.Scope, s)
				return nil
			})
		}},
		{name: "read_only", set: func(n ast.Node) (err error) {
			fs.ReadOnly, err = d.names(n, "filesystem.read_only", false, guestPathFault)
			return err
		}},
		d.later("quota", "only limits.output is counted"),
	})
	if err == nil && fs.Scope == nil {
		fs.Scope = []Scope{{Guest: WorkGuest, Writable: true}}
	}
	return fs, err
}

func (d *decoder) scope(n ast.Node) (Scope, error) {
	var s Scope
	var mode string
	err := d.object(n, "an element of filesystem.scope", []field{
		{name: "guest", set: func(n ast.Node) (err error) { s.Guest, err = d.guestPath(n, "guest"); return err }},
		{name: "mode", set: func(n ast.Node) (err error) { mode, err = d.word(n, "mode", "rw", "ro"); return err }},
	})
	switch {
	case err != nil:
		return s, err
	case s.Guest == "":
		return s, d.fault(n, "an element of filesystem.scope needs the key %q", "guest")
	case mode == "":
		return s, d.fault(n, "an element of filesystem.scope needs the key %q: rw or ro", "mode")
	}
	s.Writable = mode == "rw"
	return s, nil
}

func (d *decoder) guestPath(n ast.Node, what string) (string, error) {
	s, err := d.text(n, what)
	if err != nil {
		return "", err
	}
	if reason := guestPathFault(s); reason != "" {
		return "", d.fault(n, "%s: %q %s", what, s, reason)
	}
	return s, nil
}

func guestPathFault(s string) string {
	if !path.IsAbs(s) || path.Clean(s) != s || len(s) > 1024 || strings.ContainsRune(s, 0) {
		return "must be a guest path: absolute, without `.`, `..` or doubled slashes"
	}
	return ""
}

// packedPath says why a file name cannot be part of a capsule.
func packedPath(s string) string {
	switch {
	case s == "" || path.IsAbs(s) || path.Clean(s) != s || s == ".." || strings.HasPrefix(s, "../") || s == ".":
		return "must be a path below the manifest, without `.`, `..` or doubled slashes"
	case strings.ContainsAny(s, "\\\x00") || len(s) > 1024:
		return "must be at most 1024 bytes without a backslash"
	case s == ManifestFile:
		return "is the manifest itself, which is always packed"
	}
	return ""
}

func (d *decoder) env(n ast.Node, e *Env) error {
	return d.section(n, "env", []field{
		{name: "allow", set: func(n ast.Node) (err error) { e.Allow, err = d.names(n, "env.allow", false, envNameFault); return err }},
		{name: "secrets", set: func(n ast.Node) (err error) {
			e.Secrets, err = d.names(n, "env.secrets", true, envNameFault)
			return err
		}},
	})
}

func envNameFault(s string) string {
	switch {
	case !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(s):
		return "must be the exact name of an environment variable"
	case strings.HasPrefix(s, "MURMUR_"):
		return "belongs to the runtime"
	}
	return ""
}

func (d *decoder) random(n ast.Node) (Random, error) {
	s, err := d.text(n, "random")
	if err != nil {
		return Random{}, err
	}
	if seed, ok := strings.CutPrefix(s, "seed:"); ok {
		v, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			return Random{}, d.fault(n, "random %q needs a whole number after seed:", s)
		}
		return Random{Mode: RandomSeed, Seed: v}, nil
	}
	w, err := d.word(n, "random", string(RandomNone), "seed:N", string(RandomReal))
	if w == "seed:N" {
		return Random{}, d.fault(n, "random %q needs a whole number for N", s)
	}
	return Random{Mode: RandomMode(w)}, err
}

// TerminalGrants are the words of terminal.allow: what a capsule's output may make a terminal do beyond showing text.
func TerminalGrants() []string {
	return []string{
		"alt-screen", "mouse", "title", "hyperlink", "clipboard-write", "notify", "images", "keyboard-protocol", "bell",
		"palette", "queries",
	}
}

func (d *decoder) terminal(n ast.Node) (*Terminal, error) {
	t := &Terminal{Interrupt: InterruptStop}
	err := d.section(n, "terminal", []field{
		{name: "allow", set: func(n ast.Node) error {
			return d.list(n, "terminal.allow", false, func(v ast.Node) error {
				w, err := d.word(v, "an element of terminal.allow", TerminalGrants()...)
				if err == nil && slices.Contains(t.Allow, w) {
					return d.fault(v, "%q is in terminal.allow twice", w)
				}
				t.Allow = append(t.Allow, w)
				return err
			})
		}},
		{name: "raw", set: func(n ast.Node) (err error) { t.Raw, err = d.boolean(n, "terminal.raw"); return err }},
		{name: "interrupt", set: func(n ast.Node) error {
			w, err := d.word(n, "terminal.interrupt", string(InterruptStop), string(InterruptInput))
			t.Interrupt = Interrupt(w)
			return err
		}},
	})
	return t, err
}

func (d *decoder) limits(n ast.Node, l *Limits) error {
	const most = 1 << 40
	return d.section(n, "limits", []field{
		{name: "memory", set: func(n ast.Node) (err error) { l.Memory, err = d.size(n, "limits.memory", 4<<30); return err }},
		{name: "deadline", set: func(n ast.Node) (err error) { l.Deadline, err = d.duration(n, "limits.deadline"); return err }},
		{name: "cpu_seconds", set: func(n ast.Node) (err error) { l.CPUSeconds, err = d.count(n, "limits.cpu_seconds", 1<<32); return err }},
		{name: "output", set: func(n ast.Node) (err error) { l.Output, err = d.size(n, "limits.output", most<<10); return err }},
		{name: "open_files", set: func(n ast.Node) error {
			v, err := d.count(n, "limits.open_files", 1<<16)
			l.OpenFiles = int(v)
			return err
		}},
	})
}
