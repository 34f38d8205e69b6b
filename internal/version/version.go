// Package version tells which build of the programs this is. It keeps nothing
// and reads nothing but what the linker left in the executable.
package version

import (
	"regexp"
	"runtime/debug"
)

// Number is the version of the sources, the first entry of CHANGELOG.md.
const Number = "0.1.0"

// String is the version, with the commit where the build knows it.
func String() string {
	if commit := Commit(); commit != "" {
		return Number + " " + commit
	}
	return Number
}

// Commit is the beginning of the commit that was built, with "+dirty" if there
// were changes; empty if the build does not know it.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitOf(info)
}

// commitLength is how much of a commit tells it, as in a pseudo-version.
const commitLength = 12

func commitOf(info *debug.BuildInfo) string {
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), commitLength)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if commit == "" {
		// One that was built as a module, from elsewhere, says it in its version only:
		// https://go.dev/ref/mod#pseudo-versions
		found := regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+dirty)?$`).FindStringSubmatch(info.Main.Version)
		if found == nil {
			return ""
		}
		return found[1] + found[2]
	}
	return commit + dirty
}
