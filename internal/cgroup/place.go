package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Place is where the calling process is in the hierarchy of version 2.
type Place struct {
	Mount string // where the hierarchy is mounted; empty: nowhere
	Path  string // the group's name in the kernel's own words
	Dir   string // its directory; empty: it cannot be seen from here
}

// Own finds the calling process's place.
func Own() (Place, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Place{}, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Place{}, err
	}
	return find(ParseMemberships(string(groups)), parseMounts(string(mounts))), nil
}

func find(groups []Membership, mounts []mount) Place {
	var p Place
	for _, g := range groups {
		if g.Hierarchy == 0 {
			p.Path = g.Path
		}
	}
	for _, m := range mounts {
		if m.kind != "cgroup2" {
			continue
		}
		if p.Mount == "" {
			p.Mount = m.point
		}
		if rest, below := under(p.Path, m.root); below {
			p.Mount, p.Dir = m.point, filepath.Join(m.point, rest)
			break
		}
	}
	return p
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

// Membership is one line of /proc/PID/cgroup: see cgroups(7).
type Membership struct {
	Hierarchy   int // 0 is version 2
	Controllers string
	Path        string
}

// ParseMemberships reads /proc/PID/cgroup.
func ParseMemberships(text string) []Membership {
	var all []Membership
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		n, err := strconv.Atoi(parts[0])
		if err != nil || n < 0 {
			continue
		}
		all = append(all, Membership{Hierarchy: n, Controllers: parts[1], Path: parts[2]})
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
