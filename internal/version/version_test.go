package version

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheCommitIsFoundWhereverTheBuildPutsIt(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, c := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{}, ""},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, ""},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, ""},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20250102030405-0123456789ab"}}, "0123456789ab"},
		{debug.BuildInfo{Main: debug.Module{Version: "v0.1.1-0.20250102030405-0123456789ab+dirty"}}, "0123456789ab+dirty"},
		{debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", strings.Repeat("ab", 20)), setting("vcs.modified", "true")}}, "abababababab+dirty"},
		{debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "false")}}, "abc"},
	} {
		if got := commitOf(&c.info); got != c.want {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
}

func TestTheVersionIsThatOfTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\S+)`).FindSubmatch(text)
	if newest == nil || string(newest[1]) != Number {
		t.Errorf("the newest entry is %s, the version is %s", newest, Number)
	}
	if got := String(); !strings.HasPrefix(got, Number) {
		t.Error(got)
	}
}
