package machine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
)

func TestTheLoginIsToldByTheCgroup(t *testing.T) {
	for groups, want := range map[string]Login{
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                     {Scope: "session-3.scope", UID: "1000"},
		"0::/user.slice/user-1000.slice/session-c2.scope/mur\n":                                {Scope: "session-c2.scope", UID: "1000"},
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/mur@work.service\n":        {Manager: "user@1000.service", UID: "1000"},
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/session-mine.scope\n":      {Manager: "user@1000.service", UID: "1000"},
		"9:name=systemd:/user.slice/user-5.slice/session-1.scope\n4:memory:/session-9.scope\n": {Scope: "session-1.scope", UID: "5"},
		"4:memory:/user.slice/user-5.slice/session-1.scope\n0::/\n":                            {},
		"0::/system.slice/cron.service\n":                                                      {},
		"0::/\n":                                                                               {},
		"0::/machine.slice/libpod-1.scope/user.slice/user-7.slice/session-4.scope\n":           {Scope: "session-4.scope", UID: "7"},
		"0::/session-.scope/user@.service/user-.slice\n":                                       {},
		"": {},
	} {
		if got := findLogin(cgroup.ParseMemberships(groups)); got != want {
			t.Errorf("%q: %+v, want %+v", groups, got, want)
		}
	}
}

// files makes a directory with these files.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTheLastSettingOfKillUserProcessesCounts(t *testing.T) {
	const (
		main   = "etc/systemd/logind.conf"
		local  = "etc/systemd/logind.conf.d/"
		run    = "run/systemd/logind.conf.d/"
		vendor = "usr/lib/systemd/logind.conf.d/"
		yes    = "[Login]\nKillUserProcesses=yes\n"
		no     = "[Login]\nKillUserProcesses=no\n"
	)
	for _, c := range []struct {
		name         string
		files        map[string]string
		user         string
		kills, known bool
		from         string
	}{
		{"no file", nil, "u", false, false, ""},
		{"a file that says nothing", map[string]string{main: "[Login]\n"}, "u", false, false, ""},
		{"what was built in", map[string]string{main: "[Login]\n#KillUserProcesses=yes\n#KillExcludeUsers=root\n"}, "u", true, true, "built in, shown in /etc/systemd/logind.conf"},
		{"the main file", map[string]string{main: "[Login]\n#KillUserProcesses=no\nKillUserProcesses=on\n"}, "u", true, true, "/etc/systemd/logind.conf"},
		{"an addition goes before the main file", map[string]string{main: yes, vendor + "a.conf": no}, "u", false, true, "/" + vendor + "a.conf"},
		{"the name that sorts last, wherever it is", map[string]string{local + "10-a.conf": yes, vendor + "20-b.conf": no}, "u", false, true, "/" + vendor + "20-b.conf"},
		{"of one name, the administrator's", map[string]string{local + "a.conf": yes, run + "a.conf": no, vendor + "a.conf": no}, "u", true, true, "/" + local + "a.conf"},
		{"an empty file hides another", map[string]string{main: no, local + "a.conf": "", vendor + "a.conf": yes}, "u", false, true, "/" + main},
		{"the first main file only", map[string]string{main: "[Login]\n", "usr/lib/systemd/logind.conf": yes}, "u", false, false, ""},
		{"an addition's comment is no default", map[string]string{local + "a.conf": "#KillUserProcesses=yes\n"}, "u", false, false, ""},
		{"other names are not read", map[string]string{local + "a.conf.bak": yes}, "u", false, false, ""},
		{"outside of a section", map[string]string{local + "a.conf": "KillUserProcesses=yes\n"}, "u", false, false, ""},
		{"in another section", map[string]string{local + "a.conf": "[Sleep]\nKillUserProcesses=yes\n"}, "u", false, false, ""},
		{"a word that is none", map[string]string{main: yes, local + "a.conf": "[Login]\nKillUserProcesses=perhaps\nKillUserProcesses=\n"}, "u", true, true, "/" + main},
		{"root is left alone", map[string]string{main: yes}, "root", false, true, "KillExcludeUsers"},
		{"unless it is not", map[string]string{main: yes + "KillExcludeUsers=\n"}, "root", true, true, "/" + main},
		{"others may be left alone", map[string]string{main: yes + "KillExcludeUsers=u  \"v\"\n"}, "v", false, true, "KillExcludeUsers"},
		{"and root then is not", map[string]string{main: yes + "KillExcludeUsers=u\n"}, "root", true, true, "/" + main},
		{"some are killed all the same", map[string]string{main: no, local + "a.conf": "[Login]\nKillOnlyUsers=u\nKillOnlyUsers=v\n"}, "u", true, true, "KillOnlyUsers"},
		{"and the rest is not", map[string]string{main: yes + "KillOnlyUsers=v\n"}, "u", false, true, "KillOnlyUsers"},
		{"a list begun anew", map[string]string{main: yes + "KillOnlyUsers=v\nKillOnlyUsers=\n"}, "u", true, true, "/" + main},
	} {
		p, err := ReadKillPolicy(files(t, c.files))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if kills, known, from := p.Kills(c.user); kills != c.kills || known != c.known || from != c.from {
			t.Errorf("%s: kills %v, known %v, from %q, want %v, %v, %q", c.name, kills, known, from, c.kills, c.known, c.from)
		}
	}
}

func TestWhatCannotBeReadIsSaidAndTheRestIsRead(t *testing.T) {
	root := files(t, map[string]string{
		"etc/systemd/logind.conf":               "[Login]\nKillUserProcesses=yes\n",
		"etc/systemd/logind.conf.d/a.conf/file": "",
	})
	p, err := ReadKillPolicy(root)
	if err == nil {
		t.Error("a directory was read as a file")
	}
	if kills, known, _ := p.Kills("u"); !kills || !known {
		t.Error("the main file was not read")
	}
}

func TestSettingsAreReadAsSystemdReadsThem(t *testing.T) {
	for text, want := range map[string][]string{
		"[A]\nx=1\n":                {"A x=1"},
		"[A]\n  x = 1  \r\n":        {"A x=1"},
		"[A]\n#x=1\n;x=2\nx=3":      {"A x=3"},
		"[A]\nx=1 \\\n# why\n  2\n": {"A x=1  2"},
		"[A]\nx=1\\\\\ny=2\n":       {`A x=1\\`, "A y=2"},
		"[A]\nx=1\\":                {"A x=1"},
		"x=1\n[A\ny=2\n[B]\nz=3\n":  {"B z=3"},
		"[A]\nnothing\n=1\nx=a=b\n": {"A =1", "A x=a=b"},
		"[A]\n\n[B]\nx=\n":          {"B x="},
	} {
		var got []string
		eachSetting(text, func(section, key, value string) { got = append(got, section+" "+key+"="+value) })
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzLogin(f *testing.F) {
	f.Add("9:name=systemd:/user.slice/user-1.slice/session-1.scope\n0::/\n")
	f.Fuzz(func(t *testing.T, groups string) {
		if l := findLogin(cgroup.ParseMemberships(groups)); l.Scope != "" && l.Manager != "" {
			t.Errorf("both in a scope and in a manager: %+v", l)
		}
	})
}

func FuzzLogind(f *testing.F) {
	f.Add("[Login]\n#KillUserProcesses=no\nKillUserProcesses=yes\nKillOnlyUsers=a b\n", "a")
	f.Add("[Login]\nKillExcludeUsers=\\\n a\\\n", "root")
	f.Add("[\n]=\n\\", "")
	f.Fuzz(func(t *testing.T, text, user string) {
		var p KillPolicy
		p.defaults("file", text)
		p.read("file", text)
		kills, known, from := p.Kills(user)
		if kills && !known || known && from == "" {
			t.Errorf("kills %v, known %v, from %q", kills, known, from)
		}
	})
}
