package cgroup

import (
	"os"
	"strings"
	"testing"
)

func TestTheOwnCgroupIsFoundThroughItsMount(t *testing.T) {
	const (
		plain  = "30 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "30 22 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
			"31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
			"40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		part = "50 24 0:27 /docker/ab /sys/fs/cgroup ro,nosuid master:3 shared:9 - cgroup2 cgroup rw\n"
		both = part + "51 24 0:27 /docker/ab/work /mnt/two\\040words rw - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct {
		name, groups, mounts string
		want                 Place
	}{
		{
			"a desktop", "0::/user.slice/user-1000.slice/session-3.scope\n", plain,
			Place{Mount: "/sys/fs/cgroup", Path: "/user.slice/user-1000.slice/session-3.scope", Dir: "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"},
		},
		{"the root group", "0::/\n", plain, Place{Mount: "/sys/fs/cgroup", Path: "/", Dir: "/sys/fs/cgroup"}},
		{"beside version 1", "9:name=systemd:/x\n4:memory:/y\n0::/z\n", hybrid, Place{Mount: "/sys/fs/cgroup/unified", Path: "/z", Dir: "/sys/fs/cgroup/unified/z"}},
		{"version 1 only", "4:memory:/y\n", strings.ReplaceAll(hybrid, "cgroup2", "cgroup"), Place{}},
		{"part of it is mounted", "0::/docker/ab/x\n", part, Place{Mount: "/sys/fs/cgroup", Path: "/docker/ab/x", Dir: "/sys/fs/cgroup/x"}},
		{"another part is mounted", "0::/docker/abc\n", part, Place{Mount: "/sys/fs/cgroup", Path: "/docker/abc"}},
		{"outside of the namespace", "0::/../x\n", plain, Place{Mount: "/sys/fs/cgroup", Path: "/../x"}},
		{"two mounts", "0::/docker/ab/work\n", strings.Replace(both, "/docker/ab ", "/docker/zz ", 1), Place{Mount: "/mnt/two words", Path: "/docker/ab/work", Dir: "/mnt/two words"}},
		{"a name with colons", "0::/a:b::c\n", plain, Place{Mount: "/sys/fs/cgroup", Path: "/a:b::c", Dir: "/sys/fs/cgroup/a:b::c"}},
		{"nothing", "", "", Place{}},
		{"what is not understood", "x::/a\n-1::/a\n0:/a\n0::a\n", "30 24 0:27 / /sys/fs/cgroup\n1 2 - cgroup2 cgroup2 rw\n", Place{}},
	} {
		if got := find(ParseMemberships(c.groups), parseMounts(c.mounts)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestEscapedPathsOfMountsAreReadAsTheyAre(t *testing.T) {
	for escaped, want := range map[string]string{
		`/a`: "/a", `/a\040b`: "/a b", `\011\012\134`: "\t\n\\", `\04`: `\04`, `\999`: `\999`, `\777`: `\777`, `a\`: `a\`, `\134040`: `\040`,
	} {
		if got := unescape(escaped); got != want {
			t.Errorf("%s: %q, want %q", escaped, got, want)
		}
	}
}

func FuzzMounts(f *testing.F) {
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(own), "0::/a\n")
	f.Add("1 2 0:1 / /a\\040b rw a:1 b:2 - cgroup2 c rw\n", "9:name=systemd:/user.slice/user-1.slice/session-1.scope\n0::/\n")
	f.Add("1 2 0:1 /x /y rw - cgroup2", "0::/../x")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		c := find(ParseMemberships(groups), parseMounts(mounts))
		if c.Dir != "" && c.Mount == "" {
			t.Errorf("a group %q without a mount", c.Dir)
		}
	})
}
