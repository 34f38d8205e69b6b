package capsule

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocsHaveEveryKey compares docs/capsules.md with the keys that the decoder
// itself names when it meets an unknown one.
func TestDocsHaveEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/capsules.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := string(text)
	for section, manifest := range map[string]string{
		"":            "zzz: 1",
		"entry.":      "entry: {zzz: 1}",
		"cap.":        "capabilities: {zzz: 1}",
		"filesystem.": "capabilities: {filesystem: {zzz: 1}}",
		"env.":        "capabilities: {env: {zzz: 1}}",
		"terminal.":   "capabilities: {terminal: {zzz: 1}}",
		"limits.":     "capabilities: {limits: {zzz: 1}}",
	} {
		_, err := ParseManifest("m", []byte(manifest))
		var fault *ManifestError
		if !errors.As(err, &fault) {
			t.Fatalf("%s: %v", manifest, err)
		}
		_, list, ok := strings.Cut(fault.Reason, ", known are ")
		if !ok {
			t.Fatalf("%s: %v lists no keys", manifest, err)
		}
		for _, key := range strings.Split(list, ", ") {
			row := "| `" + section + key + "` |"
			if section == "cap." {
				row = "| `" + key // a section, or the first of its keys
			}
			if !strings.Contains(docs, row) && key != "entry" {
				t.Errorf("docs/capsules.md has no row for %s%s", section, key)
			}
		}
	}
	for _, word := range TerminalGrants() {
		if !regexp.MustCompile(`\b` + word + `\b`).MatchString(docs) {
			t.Errorf("docs/capsules.md does not name the terminal grant %s", word)
		}
	}
}

func TestDocsHaveAManifestThatIsRead(t *testing.T) {
	text, err := os.ReadFile("../../docs/capsules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	manifest, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/capsules.md has no example")
	}
	m, err := ParseManifest("docs/capsules.md", []byte(manifest))
	if err != nil || len(m.Capabilities.Filesystem.Scope) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}
