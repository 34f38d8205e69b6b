package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Cgroup is the control group, of version 2, that the calling process is in.
type Cgroup struct {
	Mount string // where the hierarchy is mounted; empty: nowhere
	Path  string // the group's name in the kernel's own words
	Dir   string // its directory; empty: it cannot be seen from here
	// Denied is why no group could be made in it; nil: one was made, and removed.
	Denied error
	// Kill: the one that was made could be killed as a whole.
	Kill bool
}

// OwnCgroup finds the calling process's group and tries to make one in it.
func OwnCgroup() (Cgroup, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Cgroup{}, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Cgroup{}, err
	}
	c := findCgroup(parseMemberships(string(groups)), parseMounts(string(mounts)))
	if c.Dir != "" {
		c.Kill, c.Denied = tryCgroup(c.Dir)
	}
	return c, nil
}

func findCgroup(groups []membership, mounts []mount) Cgroup {
	var c Cgroup
	for _, g := range groups {
		if g.hierarchy == 0 {
			c.Path = g.path
		}
	}
	for _, m := range mounts {
		if m.kind != "cgroup2" {
			continue
		}
		if c.Mount == "" {
			c.Mount = m.point
		}
		if rest, below := under(c.Path, m.root); below {
			c.Mount, c.Dir = m.point, filepath.Join(m.point, rest)
			break
		}
	}
	return c
}

// under gives what of a path comes after root. A path that leads out of the
// process's namespace begins with "/..", and nothing is under it.
func under(path, root string) (rest string, ok bool) {
	if path == "" || path == "/.." || strings.HasPrefix(path, "/../") {
		return "", false
	}
	if root == "/" {
		return path, true
	}
	rest, ok = strings.CutPrefix(path, root)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// tryCgroup makes a group, kills all of nothing in it, and removes it.
func tryCgroup(dir string) (kill bool, err error) {
	made := filepath.Join(dir, "mur-doctor-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(made, 0o700); err != nil {
		return false, err
	}
	all, err := os.OpenFile(filepath.Join(made, "cgroup.kill"), os.O_WRONLY, 0)
	if err == nil {
		_, err = all.WriteString("1")
		kill = err == nil
		all.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a kernel before it
	}
	return kill, errors.Join(err, os.Remove(made))
}

// membership is one line of /proc/PID/cgroup: see cgroups(7).
type membership struct {
	hierarchy   int // 0 is version 2
	controllers string
	path        string
}

func parseMemberships(text string) []membership {
	var all []membership
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		n, err := strconv.Atoi(parts[0])
		if err != nil || n < 0 {
			continue
		}
		all = append(all, membership{hierarchy: n, controllers: parts[1], path: parts[2]})
	}
	return all
}

// mount is what is used of one line of /proc/PID/mountinfo: see
// proc_pid_mountinfo(5).
type mount struct {
	root  string // which directory of the file system is mounted
	point string // where
	kind  string
}

func parseMounts(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		// Optional fields, of any number, end with a dash; the kind comes after it.
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		if !ok || len(f) < 6 || kind == "" {
			continue
		}
		all = append(all, mount{root: unescape(f[3]), point: unescape(f[4]), kind: kind})
	}
	return all
}

// unescape puts back the blanks, tabs, newlines and backslashes that the kernel
// writes as a backslash and three octal digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// String is how people are told about it.
func (c Cgroup) String() string {
	switch {
	case c.Mount == "":
		return "version 2 is not mounted"
	case c.Dir == "":
		return fmt.Sprintf("version 2 at %s, this process's group is not visible there", c.Mount)
	default:
		return c.Dir
	}
}
