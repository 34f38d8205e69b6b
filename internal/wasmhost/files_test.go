package wasmhost

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

// tree is a directory to grant, beside a secret.
type tree struct{ base, work string }

func newTree(t testing.TB) tree {
	t.Helper()
	base := t.TempDir()
	tr := tree{base, filepath.Join(base, "work")}
	tr.file(t, "secret/file", "secret")
	tr.file(t, "work/plain", "plain")
	tr.file(t, "work/dir/inner", "inner")
	for link, target := range map[string]string{
		"absolute":  filepath.Join(base, "secret/file"),
		"relative":  "../secret/file",
		"deep":      "dir/../../secret/file",
		"updir":     "..",
		"proc":      "/proc/self/environ",
		"inside":    "dir/inner",
		"insidedir": "./dir/",
		"loop":      "loop",
		"around":    "dir/../plain",
	} {
		if err := os.Symlink(target, filepath.Join(tr.work, link)); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr tree) file(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(tr.base, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (tr tree) text(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(tr.base, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// do runs operations of the probe in one guest and compares the outcomes.
func do(t *testing.T, m *capsule.Manifest, change func(*Config), steps ...string) {
	t.Helper()
	var ops, want []string
	for _, s := range steps {
		op, outcome, _ := strings.Cut(s, " => ")
		ops = append(ops, op)
		word, _, _ := strings.Cut(op, " ")
		want = append(want, word+" "+outcome)
	}
	res, out := call(t, m, change, append([]string{"do"}, ops...)...)
	if res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("%s\n gave %q\n want %q", ops[i], slices.Concat(got[min(i, len(got)):], []string{""})[0], want[i])
		}
	}
}

func TestNoPathLeadsOutOfAMount(t *testing.T) {
	tr := newTree(t)
	do(t, manifest(), func(c *Config) { c.WorkDir = tr.work },
		"read /work/plain => 0 plain",
		"read /work/dir/inner => 0 inner",
		"read /work/inside => 0 inner",
		"read /work/insidedir/inner => 0 inner",
		"read /work/around => 0 plain",
		"read /work/dir/../plain => 0 plain",
		// Out by name, and by links that were there before.
		"read /work/../secret/file => 63",
		"read /work/dir/../../secret/file => 63",
		"read /etc/passwd => 44",
		"read /work/absolute => 63",
		"read /work/relative => 63",
		"read /work/deep => 63",
		"read /work/updir/secret/file => 63",
		"read /work/proc => 63",
		"read /work/loop => 32",
		"stat /work/absolute => 63 0",
		"stat /work/updir/secret => 63 0",
		"lstat /work/absolute => 0 7",
		"lstat /work/updir/secret => 63 0",
		"readlink /work/absolute => 63",
		"readlink /work/inside => 0 dir/inner",
		// Changes through a link.
		"write /work/relative x => 63",
		"write /work/updir/new x => 63",
		"mkdir /work/updir/new => 63",
		"rename /work/plain /work/updir/plain => 63",
		"rename /work/updir/secret /work/got => 63",
		"link /work/updir/secret/file /work/got => 63",
		"link /work/plain /work/updir/got => 63",
		"unlink /work/updir/secret/file => 63",
		"rmdir /work/updir/secret => 63",
		"touch /work/absolute => 63",
		"symlink /work/updir/l plain => 63",
		// A hard link to a link is that link, not what it points to.
		"link /work/absolute /work/hard => 63",
		"read /work/hard => 44",
		// Links that the guest makes.
		"symlink /work/own /etc/passwd => 63",
		"symlink /work/own ../secret => 63",
		"symlink /work/dir/own ../../secret => 63",
		"symlink /work/dir/own ../plain => 63",
		"symlink /work/dir/own inner/../inner => 63",
		"symlink /work/dir/own inner => 0",
		"read /work/dir/own => 0 inner",
		"rename /work/around /work/dir/around => 63",
		// Moved, it leads nowhere, and not out.
		"rename /work/dir/own /work/own => 0",
		"read /work/own => 44",
		"readlink /work/own => 0 inner",
		// Odd names.
		"read /work/"+strings.Repeat("a/", 3000)+"a => 37",
		"read /work/"+strings.Repeat("a", 300)+" => 37",
		"read /work/plain/ => 54",
		"stat /work/dir/ => 0 3",
		"stat /work/plain/ => 54 0",
	)
	if tr.text(t, "secret/file") != "secret" {
		t.Fatal("the secret was changed")
	}
	entries, _ := os.ReadDir(tr.base)
	if len(entries) != 2 {
		t.Fatalf("beside the mount: %v", entries)
	}
}

func TestFilesBehaveLikeFiles(t *testing.T) {
	tr := newTree(t)
	do(t, manifest(), func(c *Config) { c.WorkDir = tr.work },
		"write /work/new hello => 0",
		"read /work/new => 0 hello",
		"exclusive /work/new x => 20",
		"exclusive /work/loop x => 20",
		"write /work/around via => 0",
		"read /work/plain => 0 via",
		"overwrite /work/none x => 44",
		"write /work/dir x => 31",
		"write /work/none/x x => 44",
		"mkdir /work/made => 0",
		"mkdir /work/made => 20",
		"mkdir /work/made/ => 20",
		"rmdir /work/dir => 55",
		"rmdir /work/plain => 54",
		"unlink /work/dir => 31",
		"unlink /work/plain/ => 54",
		"rename /work/new /work/made/newer => 0",
		"rename /work/made /work/dir => 55",
		"rename /work/plain /work/dir => 31",
		"rename /work/dir /work/plain => 54",
		"link /work/plain /work/made/twin => 0",
		"read /work/made/twin => 0 via",
		"touch /work/plain => 0",
		"fdtouch /work/plain => 0",
		"fdtouch /work/dir => 0",
		"unlink /work/made/twin => 0",
		"unlink /work/made/newer => 0",
		"rmdir /work/made/ => 0",
		"mkdir /work => 20",
		"rmdir /work => 28",
		"unlink /work => 31",
	)
	info, err := os.Stat(filepath.Join(tr.work, "plain"))
	if err != nil || info.Mode().Perm() != 0o600 || info.ModTime().UnixNano() != 1e9 {
		t.Fatalf("%v %v", info, err)
	}
}

func TestFifosSocketsAndDevicesDoNotOpen(t *testing.T) {
	tr := newTree(t)
	if err := unix.Mkfifo(filepath.Join(tr.work, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(tr.work, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	steps := []string{
		"read /work/fifo => 2", "write /work/fifo x => 2", "stat /work/fifo => 0 0", "read /work/sock => 2",
		"unlink /work/fifo => 0",
	}
	if unix.Mknod(filepath.Join(tr.work, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil {
		steps = append(steps, "read /work/null => 2", "write /work/null x => 2")
	}
	do(t, manifest(), func(c *Config) { c.WorkDir = tr.work }, steps...)
}

func TestReadOnlyHoldsForEveryOperation(t *testing.T) {
	tr := newTree(t)
	tr.file(t, "data/a", "data")
	m := manifest()
	do(t, m, func(c *Config) {
		c.WorkDir = tr.work
		c.Dirs = []Mount{{Host: filepath.Join(tr.base, "data"), Guest: "/data", ReadOnly: true}}
	},
		"read /data/a => 0 data",
		"write /data/a x => 69",
		"overwrite /data/a x => 69",
		"write /data/b x => 69",
		"mkdir /data/d => 69",
		"unlink /data/a => 69",
		"rename /data/a /data/b => 69",
		"link /data/a /data/b => 69",
		"symlink /data/l a => 69",
		"touch /data/a => 69",
		"fdtouch /data/a => 69",
		"fdtouch /data => 69",
		"fdsize /data/a => 28",
		"rename /data/a /work/a => 75",
		"link /data/a /work/a => 75",
		"rename /work/plain /data/plain => 75",
	)
	if tr.text(t, "data/a") != "data" {
		t.Fatal("the data was changed")
	}
}

func TestAReadOnlySubtreeHoldsUnderEveryName(t *testing.T) {
	tr := newTree(t)
	tr.file(t, "work/repo/.git/config", "config")
	m := manifest(func(m *capsule.Manifest) {
		m.Capabilities.Filesystem.ReadOnly = []string{"/work/repo/.git", "/work/later/frozen", "/work/one", "/work/never/frozen"}
	})
	tr.file(t, "work/one", "one")
	do(t, m, func(c *Config) { c.WorkDir = tr.work },
		"read /work/repo/.git/config => 0 config",
		"write /work/repo/.git/config x => 69",
		"write /work/repo/.git/new x => 69",
		"mkdir /work/repo/.git/d => 69",
		"unlink /work/repo/.git/config => 69",
		"touch /work/repo/.git/config => 69",
		"fdtouch /work/repo/.git/config => 69",
		"write /work/repo/other x => 0",
		// Another name for it: a link, a hard link, a rename of it or of what holds it.
		"symlink /work/alias repo => 0",
		"symlink /work/git repo/.git => 0",
		"write /work/alias/.git/config x => 69",
		"write /work/git/config x => 69",
		"link /work/repo/.git/config /work/hard => 69",
		"rename /work/repo/.git /work/free => 69",
		"rename /work/repo /work/free => 69",
		"rename /work/dir /work/repo/.git => 69",
		"rename /work/repo/.git/config /work/config => 69",
		"rename /work/plain /work/repo/.git/config => 69",
		"rename /work/alias /work/other => 0",
		// What does not exist yet is kept from being made.
		"mkdir /work/later => 0",
		"mkdir /work/later/frozen => 69",
		"rmdir /work/later => 69",
		"write /work/later/frozen x => 69",
		"rename /work/dir /work/later/frozen => 69",
		"rename /work/later /work/free => 69",
		"symlink /work/never dir => 69",
		"mkdir /work/never/frozen => 44",
		// A single file.
		"write /work/one x => 69",
		"link /work/one /work/two => 69",
		"unlink /work/one => 69",
		"read /work/one => 0 one",
	)
	if tr.text(t, "work/repo/.git/config") != "config" || tr.text(t, "work/one") != "one" {
		t.Fatal("a read-only file was changed")
	}
}

func TestASecondNameOfTheHostForAReadOnlyFileIsReadOnlyToo(t *testing.T) {
	tr := newTree(t)
	if err := os.Link(filepath.Join(tr.work, "plain"), filepath.Join(tr.work, "twin")); err != nil {
		t.Fatal(err)
	}
	m := manifest(func(m *capsule.Manifest) { m.Capabilities.Filesystem.ReadOnly = []string{"/work/plain"} })
	do(t, m, func(c *Config) { c.WorkDir = tr.work }, "write /work/twin x => 69", "read /work/twin => 0 plain")
}

func TestReadOnlyHoldsOverLinksThatWereThereBefore(t *testing.T) {
	tr := newTree(t)
	tr.file(t, "work/real/kept/a", "a")
	for link, target := range map[string]string{"lnk": "real", "end": "dir"} {
		if err := os.Symlink(target, filepath.Join(tr.work, link)); err != nil {
			t.Fatal(err)
		}
	}
	m := manifest(func(m *capsule.Manifest) {
		m.Capabilities.Filesystem.ReadOnly = []string{"/work/lnk/kept", "/work/lnk/later", "/work/end"}
	})
	do(t, m, func(c *Config) { c.WorkDir = tr.work },
		"write /work/real/kept/a x => 69",
		"write /work/lnk/kept/a x => 69",
		"mkdir /work/real/later => 69",
		"rename /work/real /work/free => 69",
		"write /work/dir/inner x => 69",
		"unlink /work/end => 69",
		"unlink /work/lnk => 69",
	)
}

func TestReadOnlyHoldsInADirectoryGrantedTwice(t *testing.T) {
	tr := newTree(t)
	tr.file(t, "work/sub/a", "a")
	tr.file(t, "work/sub/out/a", "a")
	sub := filepath.Join(tr.work, "sub")
	do(t, manifest(), func(c *Config) {
		c.WorkDir = tr.work
		c.Dirs = []Mount{{Host: sub, Guest: "/sub", ReadOnly: true}, {Host: filepath.Join(sub, "out"), Guest: "/out"}}
	},
		"write /sub/a x => 69",
		"write /work/sub/a x => 69",
		"rename /work/sub /work/free => 69",
		"write /work/plain x => 0",
		"write /out/a x => 0",
	)
}

func TestTheRootListsTheMounts(t *testing.T) {
	tr := newTree(t)
	give := func(c *Config) {
		c.WorkDir = tr.work
		c.Dirs = []Mount{{Host: tr.work, Guest: "/data/deep/er"}, {Host: tr.work, Guest: "/data/flat"}}
	}
	for dir, want := range map[string]string{
		"/":          "ddata dwork <nil>\n",
		"/data":      "ddeep dflat <nil>\n",
		"/data/deep": "der <nil>\n",
		"/work/dir":  "-inner <nil>\n",
	} {
		if _, out := call(t, manifest(), give, "ls", dir); out != want {
			t.Errorf("%s lists as %q", dir, out)
		}
	}
	do(t, manifest(), give,
		"stat / => 0 3",
		"stat /data => 0 3",
		"stat /data/none => 44 0",
		"write /x x => 69",
		"mkdir /x => 69",
		"mkdir /data => 20",
		"unlink /data => 69",
		"rename /data /x => 69",
		"rename /x /y => 69",
		"symlink /l work => 69",
		"touch / => 69",
		"fdtouch /data => 69",
		"readlink /data => 28",
	)
}

func TestALargeDirectoryIsListedWhole(t *testing.T) {
	tr := newTree(t)
	want := map[string]bool{}
	for i := range 1500 {
		name := strings.Repeat("n", i%200) + "-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		want["-"+name] = true
		tr.file(t, "work/many/"+name, "")
	}
	_, out := call(t, manifest(), func(c *Config) { c.WorkDir = tr.work }, "ls", "/work/many")
	got := strings.Fields(strings.TrimSuffix(out, " <nil>\n"))
	for _, name := range got {
		if !want[name] {
			t.Fatalf("unexpected or doubled entry %q", name)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Fatalf("%d entries are missing", len(want))
	}
}

func TestOpenFilesAreLimitedAndReturned(t *testing.T) {
	tr := newTree(t)
	give := func(c *Config) { c.WorkDir = tr.work }
	m := manifest(func(m *capsule.Manifest) { m.Capabilities.Limits.OpenFiles = 4 })
	before, _ := os.ReadDir("/proc/self/fd")
	do(t, m, give, "many /work/plain => 33 xxxxx", "read /work/plain => 33", "stat /work/plain => 0 4")
	waitFor(t, "return of all descriptors", func() bool {
		after, _ := os.ReadDir("/proc/self/fd")
		return len(after) <= len(before)+1
	})
}

// The host swaps what a path names between a file of the mount and a link to the secret, as fast as it can.
func TestARaceOfTheHostDoesNotLeadOut(t *testing.T) {
	tr := newTree(t)
	tr.file(t, "work/real/file", "fine")
	tr.file(t, "outside/file", "secret")
	swap := filepath.Join(tr.work, "swap")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(filepath.Join(tr.work, "real"), swap)
			_ = os.Rename(swap, filepath.Join(tr.work, "real"))
			_ = os.Symlink(filepath.Join("..", "outside"), swap)
			_ = os.Remove(swap)
		}
	})
	_, out := call(t, manifest(), func(c *Config) { c.WorkDir = tr.work }, "race", "/work/swap/file")
	close(stop)
	wg.Wait()
	if !strings.Contains(out, "held") || tr.text(t, "outside/file") != "secret" {
		t.Fatalf("%q, %q", out, tr.text(t, "outside/file"))
	}
}

// FuzzPathsStayInside walks any path over any link and looks for anything outside the mount.
func FuzzPathsStayInside(f *testing.F) {
	for _, s := range []string{"plain", "updir/secret/file", "dir/../../secret/file", "/etc/passwd", "absolute", "..", "dir/./inner/", "new"} {
		f.Add(s, "../secret/file")
		f.Add(s, "/")
	}
	tr := newTree(f)
	var secret, base unix.Stat_t
	if unix.Stat(filepath.Join(tr.base, "secret/file"), &secret) != nil || unix.Stat(tr.base, &base) != nil {
		f.Fatal("no tree")
	}
	f.Fuzz(func(t *testing.T, path, target string) {
		m, err := openMount(tr.work, false, true, &openFiles{errs: &errnos{}, limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		link := filepath.Join(tr.work, "fuzz")
		_ = os.Remove(link)
		_ = os.Symlink(target, link)
		for _, p := range []string{path, "fuzz", "fuzz/" + path, path + "/fuzz", "dir/" + path} {
			file, errno := m.OpenFile(p, sys.O_RDONLY, 0o600)
			if errno != 0 {
				continue
			}
			if st, errno := file.Stat(); errno == 0 && (st.Ino == secret.Ino || st.Ino == base.Ino) {
				t.Errorf("%q over %q leads out", p, target)
			}
			file.Close()
		}
		if m.files.count != 0 {
			t.Fatalf("%d files are still open", m.files.count)
		}
	})
}
