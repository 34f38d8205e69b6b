package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
)

// Login is how the calling process belongs to a login, after the names that
// systemd gives to control groups.
type Login struct {
	// Scope is the unit of the login session, such as session-3.scope; empty: the
	// process is in none.
	Scope string
	// Manager is the user's own service manager, such as user@1000.service, if the
	// process belongs to that instead.
	Manager string
	// UID is whose login it is, in digits; empty: that is not known.
	UID string
}

// OwnLogin tells where the calling process belongs.
func OwnLogin() (Login, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Login{}, err
	}
	return findLogin(cgroup.ParseMemberships(string(groups))), nil
}

// findLogin looks at systemd's own hierarchy, which is version 2 or, on older
// machines, one that is named after it.
func findLogin(groups []cgroup.Membership) Login {
	for _, g := range groups {
		if g.Hierarchy != 0 && g.Controllers != "name=systemd" {
			continue
		}
		uid := ""
		for unit := range strings.SplitSeq(g.Path, "/") {
			if id, ok := between(unit, "user-", ".slice"); ok {
				uid = id
			}
			// Whatever is below these was named by the user.
			if id, ok := between(unit, "user@", ".service"); ok {
				return Login{Manager: unit, UID: id}
			}
			if _, ok := between(unit, "session-", ".scope"); ok {
				return Login{Scope: unit, UID: uid}
			}
		}
	}
	return Login{}
}

func between(text, before, after string) (string, bool) {
	rest, ok1 := strings.CutPrefix(text, before)
	inner, ok2 := strings.CutSuffix(rest, after)
	return inner, ok1 && ok2 && inner != ""
}

// lingerDir has a file for each user whose service manager runs from boot on and
// stays after the last logout.
const lingerDir = "/var/lib/systemd/linger"

// Lingers tells whether a user's service manager outlives the logins.
func Lingers(user string) bool {
	if user == "" || strings.Contains(user, "/") {
		return false
	}
	_, err := os.Lstat(filepath.Join(lingerDir, user))
	return err == nil
}

// KillPolicy is what logind.conf(5) says about the processes of a login session
// when its user logs out.
type KillPolicy struct {
	kill       setting
	only       []string
	exclude    []string
	excludeSet bool // else root is excluded
}

type setting struct {
	known bool
	value bool
	from  string // the file that decided
	shown bool   // it only shows what was built in
}

// Kills tells whether the processes of a user's login sessions are killed at
// logout. from is the file that says so; known is false where no file does, and
// then it is as systemd was built.
func (p KillPolicy) Kills(user string) (kills, known bool, from string) {
	excluded := p.exclude
	if !p.excludeSet {
		excluded = []string{"root"}
	}
	switch {
	case slices.Contains(excluded, user):
		return false, true, "KillExcludeUsers"
	case len(p.only) > 0:
		return slices.Contains(p.only, user), true, "KillOnlyUsers"
	case p.kill.shown:
		return p.kill.value, true, "built in, shown in " + p.kill.from
	default:
		return p.kill.value, p.kill.known, p.kill.from
	}
}

// ReadKillPolicy reads logind's configuration below root, which is "/".
func ReadKillPolicy(root string) (KillPolicy, error) {
	var p KillPolicy
	main, additions, err := logindFiles(root)
	for _, path := range append([]string{main}, additions...) {
		if path == "" {
			continue
		}
		text, readErr := os.ReadFile(path)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		shown := strings.TrimPrefix(path, strings.TrimSuffix(root, "/"))
		if path == main {
			p.defaults(shown, string(text))
		}
		p.read(shown, string(text))
	}
	return p, err
}

// logindFiles finds what is read: the first main file there is, if any, then the
// additions in the order of their names, wherever they are. Of two with one name
// the directory that comes first here has the one that counts.
func logindFiles(root string) (main string, additions []string, err error) {
	var names []string
	chosen := make(map[string]string)
	for _, dir := range []string{"etc", "run", "usr/local/lib", "usr/lib"} {
		base := filepath.Join(root, dir, "systemd/logind.conf")
		if _, statErr := os.Stat(base); statErr == nil && main == "" {
			main = base
		}
		entries, readErr := os.ReadDir(base + ".d")
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
		for _, e := range entries {
			if _, taken := chosen[e.Name()]; !taken && strings.HasSuffix(e.Name(), ".conf") {
				chosen[e.Name()] = filepath.Join(base+".d", e.Name())
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		additions = append(additions, chosen[name])
	}
	return main, additions, err
}

// defaults takes what the main file shows in a comment: systemd is shipped with
// its built-in defaults there.
func (p *KillPolicy) defaults(file, text string) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), "#KillUserProcesses=")
		if b, valid := parseBool(value); ok && valid {
			p.kill = setting{known: true, value: b, from: file, shown: true}
		}
	}
}

// read takes the settings of one file; those of a later one replace them, and
// lists are added to.
func (p *KillPolicy) read(file, text string) {
	eachSetting(text, func(section, key, value string) {
		if section != "Login" {
			return
		}
		switch key {
		case "KillUserProcesses":
			if b, valid := parseBool(value); valid { // others are ignored, as logind does
				p.kill = setting{known: true, value: b, from: file}
			}
		case "KillOnlyUsers":
			p.only = addWords(p.only, value)
		case "KillExcludeUsers":
			p.exclude, p.excludeSet = addWords(p.exclude, value), true
		}
	})
}

// addWords follows systemd.syntax(7): an empty value begins the list anew.
func addWords(list []string, value string) []string {
	if value == "" {
		return nil
	}
	for _, w := range strings.Fields(value) {
		list = append(list, strings.Trim(w, `"'`))
	}
	return list
}

// eachSetting walks through a file in the syntax of systemd.syntax(7). Lines that
// end with a backslash go on in the next one that is no comment.
func eachSetting(text string, fn func(section, key, value string)) {
	section, begun := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\n"), " \t\r")
		if line != "" && strings.ContainsRune("#;", rune(line[0])) {
			continue
		}
		line = begun + line
		begun = ""
		if slashes := len(line) - len(strings.TrimRight(line, `\`)); slashes%2 == 1 {
			begun = line[:len(line)-1] + " "
			continue
		}
		section = oneSetting(section, line, fn)
	}
	oneSetting(section, begun, fn) // the file ended in the middle
}

// oneSetting gives the section that the next line is in.
func oneSetting(section, line string, fn func(section, key, value string)) string {
	line = strings.TrimSpace(line)
	if inner, ok := strings.CutPrefix(line, "["); ok {
		if name, closed := strings.CutSuffix(inner, "]"); closed {
			return name
		}
		return section
	}
	if key, value, ok := strings.Cut(line, "="); ok && section != "" {
		fn(section, strings.TrimSpace(key), strings.TrimSpace(value))
	}
	return section
}

// parseBool knows the words of systemd.syntax(7).
func parseBool(text string) (value, valid bool) {
	switch strings.ToLower(text) {
	case "1", "yes", "y", "true", "t", "on":
		return true, true
	case "0", "no", "n", "false", "f", "off":
		return false, true
	default:
		return false, false
	}
}
