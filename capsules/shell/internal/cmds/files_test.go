package cmds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// step is a command and what it must do.
type step struct {
	args   string
	status int
	stdout string
	stderr string
}

func (b *bench) steps(steps []step) {
	b.t.Helper()
	for _, s := range steps {
		status, stdout, stderr := b.run("", strings.Fields(s.args)...)
		if status != s.status || stdout != s.stdout || stderr != s.stderr {
			b.t.Errorf("%s: got %d %q %q\nwant %d %q %q", s.args, status, stdout, stderr, s.status, s.stdout, s.stderr)
		}
	}
}

func TestMakingAndRemoving(t *testing.T) {
	newBench(t, nil).steps([]step{
		{"mkdir a", 0, "", ""},
		{"mkdir a", 1, "", "mkdir: cannot make a: file exists\n"},
		{"mkdir b/c", 1, "", "mkdir: cannot make b/c: no such file or directory\n"},
		{"mkdir -p b/c a", 0, "", ""},
		{"touch b/c/f x", 0, "", ""},
		{"touch -c nosuch", 0, "", ""},
		{"mkdir -p x/y", 1, "", "mkdir: cannot make x/y: not a directory\n"},
		{"rmdir b", 1, "", "rmdir: cannot remove b: directory not empty\n"},
		{"rmdir x", 1, "", "rmdir: cannot remove x: not a directory\n"},
		{"rm b", 1, "", "rm: cannot remove b: is a directory (rm -r removes it)\n"},
		{"rm -r ..", 1, "", "rm: cannot remove ..: it names a directory by its place\n"},
		{"rm nosuch", 1, "", "rm: cannot remove nosuch: no such file or directory\n"},
		{"rm -f nosuch", 0, "", ""},
		{"rm -rv b", 0, "removed b/c/f\nremoved b/c\nremoved b\n", ""},
		{"ls", 0, "a\nx\n", ""},
		{"rmdir a", 0, "", ""},
		{"ls", 0, "x\n", ""},
	})
}

func TestTheGivenDirectoryItselfStays(t *testing.T) {
	b := newBench(t, map[string]string{"f": "x"})
	status, _, stderr := b.run("", "rm", "-rf", b.dir)
	if status != 1 || !strings.Contains(stderr, "given by the host") {
		t.Errorf("got %d %q", status, stderr)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "f")); err != nil {
		t.Errorf("its files are gone: %v", err)
	}
}

func TestCopyingAndMoving(t *testing.T) {
	b := newBench(t, map[string]string{"f": "one", "d/g": "two", "d/e/h": "three"})
	b.steps([]step{
		{"cp f f2", 0, "", ""},
		{"cat f2", 0, "one", ""},
		{"cp f f", 1, "", "cp: cannot copy f: it is the same file as f\n"},
		{"cp d x", 1, "", "cp: cannot copy d: is a directory (cp -r copies it)\n"},
		{"cp -r d d/e", 1, "", "cp: cannot copy d: cannot copy it into itself\n"},
		{"cp f f2 nosuch", 2, "", "cp: nosuch is not a directory\nhint: help cp\n"},
		{"cp f", 2, "", "cp: a source and a destination are needed\nhint: help cp\n"},
		{"cp -r d d2", 0, "", ""},
		{"find d2 -type f", 0, "d2/e/h\nd2/g\n", ""},
		{"cp -v f f2 d2", 0, "f -> d2/f\nf2 -> d2/f2\n", ""},
		{"mv d2/f new", 0, "", ""},
		{"cat new", 0, "one", ""},
		{"mv d2 d", 0, "", ""},
		{"ls d d/d2", 0, "d:\nd2\ne\ng\n\nd/d2:\ne\nf2\ng\n", ""},
		{"mv d d/e", 1, "", "mv: cannot move d: cannot move it into itself\n"},
		{"mv nosuch x", 1, "", "mv: cannot move nosuch: no such file or directory\n"},
		{"mv -n new f2", 0, "", ""},
		{"cp -n new f2", 0, "", ""},
	})
}

func TestACopyOntoALinkToItselfIsRefused(t *testing.T) {
	b := newBench(t, map[string]string{"f": "precious"})
	if err := os.Symlink("f", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.steps([]step{
		{"cp f link", 1, "", "cp: cannot copy f: it is the same file as link\n"},
		{"cat f", 0, "precious", ""},
	})
}

func TestListing(t *testing.T) {
	b := newBench(t, map[string]string{"b": "12345", ".hid": "", "dir/x": strings.Repeat("y", 3000)})
	b.steps([]step{
		{"ls", 0, "b\ndir\n", ""},
		{"ls -A", 0, ".hid\nb\ndir\n", ""},
		{"ls -a", 0, ".\n..\n.hid\nb\ndir\n", ""},
		{"ls -F", 0, "b\ndir/\n", ""},
		{"ls -r", 0, "dir\nb\n", ""},
		{"ls -R", 0, ".:\nb\ndir\n\n./dir:\nx\n", ""},
		{"ls -d dir", 0, "dir\n", ""},
		{"ls b nosuch", 1, "b\n", "ls: cannot list nosuch: no such file or directory\n"},
		{"du -b dir", 0, "3000\tdir\n", ""},
		{"du -s dir", 0, "3\tdir\n", ""},
		{"du -h dir", 0, "2.9K\tdir\n", ""},
		{"stat -c %n:%s:%F b dir", 0, "b:5:regular file\ndir:" + size(t, filepath.Join(b.dir, "dir")) + ":directory\n", ""},
		{"stat nosuch", 1, "", "stat: cannot read nosuch: no such file or directory\n"},
	})
	status, stdout, _ := b.run("", "ls", "-lh", "dir")
	if status != 0 || !strings.HasPrefix(stdout, "total 2.9K\n-rw------- 2.9K ") && !strings.HasPrefix(stdout, "total 3.0K\n-rw------- 2.9K ") || !strings.HasSuffix(stdout, " x\n") {
		t.Errorf("ls -lh: %d %q", status, stdout)
	}
}

func size(t *testing.T, name string) string {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return statFormat("%s", name, info)
}

func TestFinding(t *testing.T) {
	newBench(t, map[string]string{"a.txt": "x", "d/B.TXT": "", "d/e/c.go": "package c"}).steps([]step{
		{"find", 0, ".\n./a.txt\n./d\n./d/B.TXT\n./d/e\n./d/e/c.go\n", ""},
		{"find . -name *.txt", 0, "./a.txt\n", ""},
		{"find . -iname *.txt", 0, "./a.txt\n./d/B.TXT\n", ""},
		{"find d -type d", 0, "d\nd/e\n", ""},
		{"find . -maxdepth 1 -type f", 0, "./a.txt\n", ""},
		{"find . -mindepth 3", 0, "./d/e/c.go\n", ""},
		{"find . -type f -empty", 0, "./d/B.TXT\n", ""},
		{"find . -type f ! -name *.go -size +0", 0, "./a.txt\n", ""},
		{"find . -name *.go -exec echo got {} ;", 0, "got ./d/e/c.go\n", ""},
		{"find d -print0 -maxdepth 0", 0, "d\x00", ""},
		{"find nosuch", 1, "", "find: cannot read nosuch: no such file or directory\n"},
		{"find . -type x", 2, "", "find: -type takes f, d or l, not \"x\"\nhint: help find\n"},
		{"find . -name", 2, "", "find: -name needs a value\nhint: help find\n"},
		{"find . -exec echo", 2, "", "find: -exec needs a command and then \\;\nhint: help find\n"},
	})
}

func TestSumsAreChecked(t *testing.T) {
	b := newBench(t, map[string]string{
		"good": "x",
		"bad":  "y",
		"list": "9dd4e461268c8034f5c8564e155c67a6  good\n9dd4e461268c8034f5c8564e155c67a6  bad\n",
	})
	b.steps([]step{{"md5sum -c list", 1, "good: OK\nbad: FAILED\n", ""}})
}

func TestTeeAndSortWriteFiles(t *testing.T) {
	b := newBench(t, map[string]string{"f": "b\na\n"})
	b.run("one\n", "tee", "t1", "t2")
	b.run("two\n", "tee", "-a", "t1")
	b.steps([]step{
		{"cat t1 t2", 0, "one\ntwo\none\n", ""},
		{"sort -o f f", 0, "", ""},
		{"cat f", 0, "a\nb\n", ""},
		{"head -n1 f t2", 0, "==> f <==\na\n\n==> t2 <==\none\n", ""},
		{"wc -l f t1", 0, "2 f\n2 t1\n4 total\n", ""},
		{"cat f nosuch", 1, "a\nb\n", "cat: cannot open nosuch: no such file or directory\n"},
		{"cat /", 1, "", "cat: cannot open /: no such file or directory\n"},
	})
}
