package capsule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const full = `name: local/notes
version: "1.2.0"
description: keeps notes
entry: { args: [-v], workdir: /work }
requires_files: [capsule.wasm, data/words.txt]
capabilities:
  filesystem:
    scope: [{ guest: /work, mode: rw }, { guest: /data, mode: ro }]
    read_only: [/work/.git]
  env: { allow: [LANG, TZ], secrets: [] }
  clock: fixed
  random: seed:42
  terminal: { allow: [title, alt-screen], raw: true, interrupt: input }
  limits: { memory: 64MiB, deadline: 8h, cpu_seconds: 3600, output: 1GiB, open_files: 16 }
containment: scoped
kind: script
`

func TestAFullManifestIsReadAsWritten(t *testing.T) {
	got, err := ParseManifest("murmur.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{
		Name: "local/notes", Version: "1.2.0", Description: "keeps notes",
		Entry:         Entry{Args: []string{"-v"}, Workdir: "/work"},
		RequiresFiles: []string{"capsule.wasm", "data/words.txt"},
		Capabilities: Capabilities{
			Filesystem: &Filesystem{
				Scope:    []Scope{{Guest: "/work", Writable: true}, {Guest: "/data"}},
				ReadOnly: []string{"/work/.git"},
			},
			Env:      Env{Allow: []string{"LANG", "TZ"}},
			Clock:    ClockFixed,
			Random:   Random{Mode: RandomSeed, Seed: 42},
			Terminal: &Terminal{Allow: []string{"title", "alt-screen"}, Raw: true, Interrupt: InterruptInput},
			Limits:   Limits{Memory: 64 << 20, Deadline: 8 * time.Hour, CPUSeconds: 3600, Output: 1 << 30, OpenFiles: 16},
		},
		Containment: Scoped,
		Kind:        Script,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestWhatIsLeftOutGrantsNothingButTimeAndRandomness(t *testing.T) {
	got, err := ParseManifest("murmur.yaml", []byte("name: a\nversion: v1\nrequires_files: [a.wasm]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := empty()
	want.Name, want.Version, want.RequiresFiles, want.Entry.Workdir = "a", "v1", []string{"a.wasm"}, "/"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestAFilesystemWithoutScopeIsTheWorkFolder(t *testing.T) {
	got, err := ParseManifest("murmur.yaml", []byte(head+"capabilities: {filesystem: {read_only: [/work/.git]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Filesystem{Scope: []Scope{{Guest: "/work", Writable: true}}, ReadOnly: []string{"/work/.git"}}
	if diff := cmp.Diff(want, got.Capabilities.Filesystem); diff != "" {
		t.Fatal(diff)
	}
	if got.Entry.Workdir != "/work" {
		t.Fatalf("workdir %q", got.Entry.Workdir)
	}
}

const head = "name: a\nversion: v1\nrequires_files: [a.wasm]\n"

func TestFaultsHaveAPlaceAReasonAndAnAlternative(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"empty file":         {"", "m:1:1: the manifest is empty"},
		"not a mapping":      {"- a", "m:1:1: the manifest must be a mapping, not a list"},
		"two documents":      {head + "---\nname: b\n", "m:5:5: a manifest is one document, this is a second"},
		"unknown key":        {head + "capabilites: {}\n", `m:4:1: the manifest has no key "capabilites", known are name, version, description, entry, requires_files, capabilities, containment, kind (did you mean "capabilities"?)`},
		"unknown inner key":  {head + "capabilities:\n  limits: {memry: 1MiB}\n", `m:5:12: limits has no key "memry", known are memory, deadline, cpu_seconds, output, open_files (did you mean "memory"?)`},
		"far unknown key":    {head + "zzz: 1\n", `m:4:1: the manifest has no key "zzz"`},
		"duplicate key":      {head + "name: b\n", "m:4:1: mapping key \"name\" already defined at [1:1]"},
		"missing version":    {"name: a\nrequires_files: [a.wasm]\n", `m:1:1: key "version" is missing`},
		"null value":         {head + "description:\n", `m:4:1: key "description" has no value`},
		"numeric version":    {"name: a\nversion: 1.10\n", "m:2:10: version must be a text, not a number: put it in quotes"},
		"moving version":     {"name: a\nversion: latest\n", `m:2:10: version "latest" names no version: it would move`},
		"slashed version":    {"name: a\nversion: a/b\n", `m:2:10: version "a/b" must not be empty, contain a slash or start or end with a space`},
		"bad name":           {"name: Local/Notes\n", `m:1:7: name "Local/Notes" must be [scope/]name of lowercase letters, digits and inner hyphens, each at most 100`},
		"outer hyphen":       {"name: -a\n", `m:1:7: name "-a" must be [scope/]name of lowercase letters, digits and inner hyphens, each at most 100`},
		"empty requires":     {"requires_files: []\n", "m:1:17: requires_files is an empty list and grants nothing: leave it out"},
		"dotdot":             {"requires_files: [../a.wasm]\n", "m:1:18: \"../a.wasm\" must be a path below the manifest, without `.`, `..` or doubled slashes"},
		"absolute":           {"requires_files: [/a.wasm]\n", "m:1:18: \"/a.wasm\" must be a path below the manifest, without `.`, `..` or doubled slashes"},
		"twice":              {"requires_files: [a.wasm, a.wasm]\n", `m:1:26: "a.wasm" is in requires_files twice`},
		"empty scope":        {head + "capabilities: {filesystem: {scope: []}}\n", "m:4:36: filesystem.scope is an empty list and grants nothing: leave it out"},
		"empty filesystem":   {head + "capabilities: {filesystem: {}}\n", "m:4:28: filesystem is empty and grants nothing: leave it out"},
		"empty allow":        {head + "capabilities: {env: {allow: []}}\n", "m:4:29: env.allow is an empty list and grants nothing: leave it out"},
		"runtime's variable": {head + "capabilities: {env: {allow: [MURMUR_STATE]}}\n", `m:4:30: "MURMUR_STATE" belongs to the runtime`},
		"scope without mode": {head + "capabilities: {filesystem: {scope: [{guest: /a}]}}\n", `m:4:37: an element of filesystem.scope needs the key "mode": rw or ro`},
		"relative scope":     {head + "capabilities: {filesystem: {scope: [{guest: a, mode: ro}]}}\n", "m:4:45: guest: \"a\" must be a guest path: absolute, without `.`, `..` or doubled slashes"},
		"bad mode":           {head + "capabilities: {filesystem: {scope: [{guest: /a, mode: rx}]}}\n", `m:4:55: mode is "rx", known are rw, ro (did you mean "rw"?)`},
		"zero limit":         {head + "capabilities: {limits: {memory: 0}}\n", "m:4:33: limits.memory must be between 1B and 4GiB"},
		"zero count":         {head + "capabilities: {limits: {open_files: 0}}\n", "m:4:37: limits.open_files must be between 1 and 65536"},
		"zero deadline":      {head + "capabilities: {limits: {deadline: 0s}}\n", "m:4:35: limits.deadline must be longer than nothing"},
		"unitless deadline":  {head + "capabilities: {limits: {deadline: 5}}\n", "m:4:35: limits.deadline must be a duration like 8h or 90s, not a number"},
		"bad size":           {head + "capabilities: {limits: {output: 5PiB}}\n", `m:4:33: limits.output: "5PiB" is not a size like 512MiB`},
		"bad seed":           {head + "capabilities: {random: seed:x}\n", `m:4:24: random "seed:x" needs a whole number after seed:`},
		"bad terminal word":  {head + "capabilities: {terminal: {allow: [titel]}}\n", `(did you mean "title"?)`},
		"network":            {head + "capabilities: {network: {allow: [x]}}\n", `m:4:25: "network" is not supported by this version: there is no fetch for guests yet`},
		"spawn":              {head + "capabilities: {spawn: {depth: 3}}\n", `"spawn" is not supported by this version: a capsule cannot start others yet`},
		"quota":              {head + "capabilities: {filesystem: {quota: {files: 1}}}\n", `"quota" is not supported by this version: only limits.output is counted`},
		"authentication":     {head + "authentication: none\n", `"authentication" is not supported by this version: it belongs to services`},
		"service":            {head + "kind: service\n", `m:4:7: kind "service" is not supported by this version: only programs and scripts run`},
		"alias":              {"name: &n a\nversion: *n\n", "must be a text, not an anchor or alias"},
		"merge key":          {"<<: {name: a}\n", "a key must be a plain word, not a merge key"},
		"tag":                {"name: !!str a\n", "name must be a text, not a tagged value"},
		"broken yaml":        {"name: [a\n", "m:1:7: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseManifest("m", []byte(c.yaml))
			var fault *ManifestError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestSizesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]Size{"1": 1, "7B": 7, "512MiB": 512 << 20, "1 GiB": 1 << 30, "2KB": 2000} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "-1", "+1", "1.5GiB", "8388608TiB", "99999999999999999999", "1 2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 1000: "1000B", 512 << 20: "512MiB", 3 << 40: "3TiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is shown as %q", int64(size), got)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(head))
	f.Add([]byte("a: &a [*a, *a]\n<<: *a\n? {x: y}\n: |\n  z\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest("m", data)
		if err != nil {
			var fault *ManifestError
			if !errors.As(err, &fault) || fault.Line < 1 || fault.Column < 1 || fault.Reason == "" {
				t.Fatalf("an error without a place or reason: %#v", err)
			}
			return
		}
		if m.Name == "" || m.Version == "" || len(m.RequiresFiles) == 0 || m.Capabilities.Limits.Memory < 1 {
			t.Fatalf("accepted %+v", m)
		}
		for _, file := range m.RequiresFiles {
			if strings.HasPrefix(file, "/") || strings.Contains("/"+file+"/", "/../") {
				t.Fatalf("accepted the path %q", file)
			}
		}
	})
}

func TestDeepNestingIsRefusedBeforeItCosts(t *testing.T) {
	for name, text := range map[string]string{
		"lists":     "entry: " + strings.Repeat("[", 20_000),
		"maps":      "entry: " + strings.Repeat("{a: ", 10_000),
		"sequences": "entry:\n  " + strings.Repeat("- ", 20_000),
	} {
		_, err := ParseManifest("murmur.yaml", []byte(text))
		var bad *ManifestError
		if !errors.As(err, &bad) || !strings.Contains(bad.Reason, "deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
