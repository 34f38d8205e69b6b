package bundled

import (
	"io/fs"
	"testing"
)

func TestNamesOfBundledCapsules(t *testing.T) {
	for name, want := range map[string]string{
		"shell": "shell", "mur/shell": "shell", "hello": "hello", "mur/hello": "hello",
		"./shell": "", "other/shell": "", "shells": "", "": "", "mur/mur/shell": "",
	} {
		short, ok := Name(name)
		if short != want || ok != (want != "") {
			t.Errorf("Name(%q) = %q, %v; want %q", name, short, ok, want)
		}
	}
}

func TestABundledCapsuleIsWholeOrAbsent(t *testing.T) {
	for _, name := range known() {
		capsule, ok := Open(name)
		if !ok {
			t.Logf("%s: this build has none", name)
			continue
		}
		for _, file := range []string{manifest, "capsule.wasm"} {
			if info, err := fs.Stat(capsule, file); err != nil || info.Size() == 0 {
				t.Errorf("%s: %s: %v", name, file, err)
			}
		}
	}
	for _, name := range Names() {
		if _, ok := Open(name); !ok {
			t.Errorf("%s is named and not there", name)
		}
	}
	if _, ok := Open("nothing"); ok {
		t.Error("a capsule was found that nobody put there")
	}
}
