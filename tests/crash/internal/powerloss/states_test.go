package powerloss

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// history makes calls that follow each other, as on one thread.
type history struct {
	root  string
	calls []tracer.Call
}

func (h *history) add(name, path string, set func(*tracer.Call)) {
	n := 2 * len(h.calls)
	c := tracer.Call{Path: filepath.Join(h.root, path), Done: true, Entered: n, Left: n + 1}
	c.Name = name
	if set != nil {
		set(&c)
	}
	h.calls = append(h.calls, c)
}

func (h *history) write(path, text string, inode uint64) {
	h.add("open", path, func(c *tracer.Call) { c.Flags, c.Inode = unix.O_CREAT, inode })
	h.add("write", path, func(c *tracer.Call) { c.Data, c.Ret, c.Inode = []byte(text), int64(len(text)), inode })
}

func (h *history) sync(path string, inode uint64) {
	h.add("fsync", path, func(c *tracer.Call) { c.Inode, c.Dir = inode, inode == 0 })
}

func (h *history) rename(from, to string) {
	h.add("rename", from, func(c *tracer.Call) { c.Path2 = filepath.Join(h.root, to) })
}

func (h *history) say(text string) { h.add("say", "", func(c *tracer.Call) { c.Data = []byte(text) }) }

// contents lists what a file can hold once the last word was said; "-" is no file.
func (h *history) contents(t *testing.T, name string) []string {
	t.Helper()
	r, err := Begin(h.root)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	r.States(h.calls, nil, func(s State) {
		if len(s.Said) == 0 {
			return
		}
		dir := t.TempDir()
		if err := s.Lay(dir); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			data = []byte("-")
		}
		out = append(out, string(data))
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func newHistory(t *testing.T) *history {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "f"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &history{root: root}
}

func TestOnlyWhatWasSyncedIsSure(t *testing.T) {
	for _, c := range []struct {
		name              string
		syncFile, syncDir bool
		want              []string
	}{
		{"both", true, true, []string{"new!"}},
		{"not the directory", true, false, []string{"new!", "old"}},
		{"not the file", false, true, []string{"", "\x00\x00\x00\x00", "ne", "new!"}},
	} {
		h := newHistory(t)
		h.write("t", "new!", 1)
		if c.syncFile {
			h.sync("t", 1)
		}
		h.rename("t", "f")
		if c.syncDir {
			h.sync(".", 0)
		}
		h.say("done")
		if got := h.contents(t, "f"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestDirectoriesMoveWithWhatIsInThem(t *testing.T) {
	h := newHistory(t)
	h.add("mkdir", ".new", nil)
	h.write(".new/in", "side", 1)
	h.sync(".new/in", 1)
	h.sync(".new", 0)
	h.rename(".new", "made")
	h.sync(".", 0)
	h.say("made")
	if got := h.contents(t, "made/in"); !slices.Equal(got, []string{"side"}) {
		t.Errorf("%q", got)
	}
}

func TestSyncCoversOnlyWhatWasThereWhenItBegan(t *testing.T) {
	h := newHistory(t)
	h.write("g", "ab", 1)
	h.sync(".", 0)
	h.sync("g", 1)
	h.add("write", "g", func(c *tracer.Call) { c.Data, c.Ret, c.Inode, c.Off = []byte("cd"), 2, 1, 2 })
	// The second write happens while the sync is under way.
	h.calls[3].Left = h.calls[4].Left + 1
	h.say("done")
	h.calls[5].Entered += 2
	want := []string{"ab", "ab\x00\x00", "abc", "abcd"}
	if got := h.contents(t, "g"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatIsOverwrittenIsOldOrNewAndNeverZeros(t *testing.T) {
	h := newHistory(t)
	h.write("g", "ab", 1)
	h.sync(".", 0)
	h.sync("g", 1)
	h.add("write", "g", func(c *tracer.Call) { c.Data, c.Ret, c.Inode = []byte("ABCD"), 4, 1 })
	h.say("done")
	want := []string{"AB", "ABCD", "ab", "ab\x00\x00"}
	if got := h.contents(t, "g"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
