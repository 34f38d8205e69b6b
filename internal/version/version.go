// Package version tells which build of the programs this is. It keeps nothing
// and reads nothing but what the linker left in the executable.
package version

import "runtime/debug"

// String is the module's version, with the commit where the build knows it.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+dirty"
			}
		}
	}
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if commit == "" {
		return v
	}
	return v + " " + commit + dirty
}
