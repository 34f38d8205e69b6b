package cmds

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/fsys"
)

// bench is a directory to try commands in.
type bench struct {
	t   *testing.T
	dir string
}

func newBench(t *testing.T, files map[string]string) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	for name, text := range files {
		full := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func lookupCommand(name string) (Command, bool) {
	for _, cmd := range Table() {
		if cmd.Name == name {
			return cmd, true
		}
	}
	return Command{}, false
}

// invoke runs a command as the shell would, commands it starts too.
func (b *bench) invoke(ctx context.Context, c *Call) int {
	b.t.Helper()
	if c.Args[0] == "echo" {
		io.WriteString(c.Stdout, strings.Join(c.Args[1:], " ")+"\n")
		return 0
	}
	cmd, ok := lookupCommand(c.Args[0])
	if !ok {
		b.t.Fatalf("no command %s", c.Args[0])
	}
	c.Dir = b.dir
	c.Files = fsys.New([]string{b.dir})
	outer := c.Stdout
	c.Run = func(ctx context.Context, args []string, env map[string]string, stdin io.Reader) int {
		return b.invoke(ctx, &Call{Args: args, Stdin: stdin, Stdout: outer, Stderr: c.Stderr, Env: env})
	}
	return cmd.Invoke(ctx, c)
}

func (b *bench) run(stdin string, args ...string) (status int, stdout, stderr string) {
	b.t.Helper()
	var out, errs bytes.Buffer
	status = b.invoke(context.Background(), &Call{Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	return status, out.String(), errs.String()
}

// filterCase is a command that reads its input.
type filterCase struct {
	args   string // split at blanks; a word may be written with _ for a blank
	stdin  string
	stdout string
	status int
}

func (tc filterCase) words() []string {
	words := strings.Fields(tc.args)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "_", " ")
	}
	return words
}

func testFilters(t *testing.T, cases []filterCase) {
	t.Helper()
	b := newBench(t, nil)
	for _, tc := range cases {
		status, stdout, stderr := b.run(tc.stdin, tc.words()...)
		if status != tc.status || stdout != tc.stdout {
			t.Errorf("%s < %q: got %d %q (%s), want %d %q", tc.args, tc.stdin, status, stdout, stderr, tc.status, tc.stdout)
		}
	}
}

func TestSortingFilters(t *testing.T) {
	testFilters(t, []filterCase{
		{"sort -k2 -n", "b 2\na 10\nc 1\n", "c 1\nb 2\na 10\n", 0},
		{"sort -k2", "b 2\na 10\nc 1\n", "c 1\na 10\nb 2\n", 0},
		{"sort -f", "b\nB\na\nA\n", "A\na\nB\nb\n", 0},
		{"sort -n", "3\n10\n-1\n2.5\n", "-1\n2.5\n3\n10\n", 0},
		{"sort -nu", "3\n10\n3\n", "3\n10\n", 0},
		{"sort -rn", "3\n10\n", "10\n3\n", 0},
		{"sort -t: -k2,2n", "x:3:a\ny:1:b\n", "y:1:b\nx:3:a\n", 0},
		{"sort -k1.2", "", "", 2},
		{"uniq -c", "a\na\nb\n", "      2 a\n      1 b\n", 0},
		{"uniq -d", "a\na\nb\n", "a\n", 0},
		{"uniq -u", "a\na\nb\n", "b\n", 0},
		{"uniq", "", "", 0},
	})
}

func TestCuttingFilters(t *testing.T) {
	testFilters(t, []filterCase{
		{"cut -d: -f1,3", "a:b:c\nd\n", "a:c\nd\n", 0},
		{"cut -s -d: -f2-", "a:b:c\nd\n", "b:c\n", 0},
		{"cut -c2-4,6", "abcdef\n", "bcdf\n", 0},
		{"cut -c2", "äöü\n", "ö\n", 0},
		{"cut -f0", "", "", 2},
		{"cut -f-", "", "", 2},
		{"cut -f3-2", "", "", 2},
		{"cut", "", "", 2},
		{"tr a-y b-z", "hello\n", "ifmmp\n", 0},
		{"tr -d l", "hello\n", "heo\n", 0},
		{"tr -s a-c", "aabbcc\n", "abc\n", 0},
		{`tr -s _ \n`, "a  b   c\n", "a\nb\nc\n", 0},
		{`tr -cd [:digit:]\n`, "hello123\n", "123\n", 0},
		{"tr [:lower:] [:upper:]", "äbc\n", "äBC\n", 0},
		{"tr z-a b", "", "", 2},
		{"tr a", "", "", 2},
		{"head -2", "1\n2\n3\n", "1\n2\n", 0},
		{"head -c 3", "1\n2\n3\n", "1\n2", 0},
		{"head -n 0", "1\n", "", 0},
		{"head -n x", "", "", 2},
		{"tail -2", "1\n2\n3\n4\n", "3\n4\n", 0},
		{"tail -n +3", "1\n2\n3\n4\n", "3\n4\n", 0},
		{"tail -c 3", "1\n2\n3\n4\n", "\n4\n", 0},
		{"tail", "1\n2", "1\n2", 0},
		{"wc", "a b\nc", "      1       3       5\n", 0},
		{"wc -l", "a b\nc", "1\n", 0},
		{"wc -m", "äö\n", "3\n", 0},
		{"cat -n", "a\nb", "     1\ta\n     2\tb", 0},
	})
}

func TestGrep(t *testing.T) {
	testFilters(t, []filterCase{
		{"grep -o [.*]", "a.b*c\n", ".\n*\n", 0},
		{"grep -n foo", "foo\nbar\nfoobar\n", "1:foo\n3:foobar\n", 0},
		{`grep -c o\{2\}`, "foo\nbar\nfoobar\n", "2\n", 0},
		{"grep -v foo", "foo\nbar\nfoobar\n", "bar\n", 0},
		{"grep -E ^(foo|bar)$", "foo\nbar\nfoobar\n", "foo\nbar\n", 0},
		{"grep -i bar", "foo\nBAR\n", "BAR\n", 0},
		{"grep a+b", "a+b\naab\n", "a+b\n", 0},
		{"grep -E a+b", "a+b\naab\n", "aab\n", 0},
		{"grep -F a+", "a+b\naab\n", "a+b\n", 0},
		{"grep -w foo", "foo bar\nfoobar\n", "foo bar\n", 0},
		{"grep -x foo", "foo bar\nfoo\n", "foo\n", 0},
		{"grep -q x", "x\n", "", 0},
		{"grep y", "x\n", "", 1},
		{"grep *a", "*a\n", "*a\n", 0},
		{"grep a^b$c", "a^b$c\n", "a^b$c\n", 0},
		{`grep [\]`, "\\\n", "\\\n", 0},
		{"grep []x]", "a]\n", "a]\n", 0},
		{"grep [[:digit:]]$", "a1\nb\n", "a1\n", 0},
		{`grep \(a\)\1`, "", "", 2},
		{"grep [", "", "", 2},
		{"grep -m1 a", "a\na\n", "a\n", 0},
		{"grep -e a -e b", "a\nb\nc\n", "a\nb\n", 0},
	})
}

func TestGrepInFiles(t *testing.T) {
	b := newBench(t, map[string]string{"d/f": "x\n", "d/e/g": "y\nx\n", "h": "x\n"})
	for _, tc := range []struct {
		args, stdout string
		status       int
	}{
		{"grep x h", "x\n", 0},
		{"grep -r x d", "d/e/g:x\nd/f:x\n", 0},
		{"grep -rn x d", "d/e/g:2:x\nd/f:1:x\n", 0},
		{"grep -rl y", "./d/e/g\n", 0},
		{"grep -rc x d", "d/e/g:1\nd/f:1\n", 0},
		{"grep x h d/f", "h:x\nd/f:x\n", 0},
		{"grep -h x h d/f", "x\nx\n", 0},
		{"grep x d", "", 2},
		{"grep x nosuch", "", 2},
	} {
		status, stdout, stderr := b.run("", strings.Fields(tc.args)...)
		if status != tc.status || stdout != tc.stdout {
			t.Errorf("%s: got %d %q (%s), want %d %q", tc.args, status, stdout, stderr, tc.status, tc.stdout)
		}
	}
}

func TestSed(t *testing.T) {
	const five = "1\n2\n3\n4\n5\n"
	testFilters(t, []filterCase{
		{"sed -n 2,4p", five, "2\n3\n4\n", 0},
		{"sed 2d;4d", five, "1\n3\n5\n", 0},
		{"sed $d", five, "1\n2\n3\n4\n", 0},
		{"sed -n $=", five, "5\n", 0},
		{"sed 2q", five, "1\n2\n", 0},
		{"sed /2/,/4/d", five, "1\n5\n", 0},
		{"sed /4/,$s/^/>/", five, "1\n2\n3\n>4\n>5\n", 0},
		{"sed 2!d", five, "2\n", 0},
		{"sed 4,2d", five, "1\n2\n3\n5\n", 0},
		{"sed 2a_hello", "1\n2\n3\n", "1\n2\nhello\n3\n", 0},
		{`sed 2i\hello`, "1\n2\n3\n", "1\nhello\n2\n3\n", 0},
		{"sed 2,3c_hello", "1\n2\n3\n4\n", "1\nhello\n4\n", 0},
		{"sed -n n;p", "1\n2\n3\n4\n", "2\n4\n", 0},
		{"sed y/abc/xyz/", "abc\n", "xyz\n", 0},
		{"sed s/foo/X/2", "foo bar foo\n", "foo bar X\n", 0},
		{"sed s/foo/[&]/g", "foo bar foo\n", "[foo] bar [foo]\n", 0},
		{`sed s/\(f.*\)_\(b.*\)/\2_\1/`, "foo bar\n", "bar foo\n", 0},
		{`sed -E s/(f.*)_(b.*)/\2_\1/`, "foo bar\n", "bar foo\n", 0},
		{"sed s|/|-|", "a/b\n", "a-b\n", 0},
		{`sed s/\//-/`, "a/b\n", "a-b\n", 0},
		{"sed s/x*/-/g", "aaa\n", "-a-a-a-\n", 0},
		{"sed s/A/b/i", "a\n", "b\n", 0},
		{"sed s/b/c/", "a\nb", "a\nc", 0},
		{"sed -n s/b/c/p", "a\nb\n", "c\n", 0},
		{"sed -e s/a/b/ -e s/b/c/", "a\n", "c\n", 0},
		{"sed h", "", "", 2},
		{"sed s/a", "", "", 2},
		{"sed s/a/b/z", "", "", 2},
		{"sed y/ab/c/", "", "", 2},
		{"sed 0p", "", "", 2},
		{"sed 1,", "", "", 2},
		{"sed px", "", "", 2},
	})
}

func TestSedReadsItsFilesAsOneAndCanReplaceThem(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1\n2", "b": "3\n"})
	if status, stdout, stderr := b.run("", "sed", "-n", "$p;2p", "a", "b"); status != 0 || stdout != "2\n3\n" {
		t.Errorf("two files: %d %q %s", status, stdout, stderr)
	}
	if status, _, stderr := b.run("", "sed", "-i", "s/[12]/x/;1q", "a"); status != 0 {
		t.Errorf("in place: %d %s", status, stderr)
	}
	if data, err := os.ReadFile(filepath.Join(b.dir, "a")); err != nil || string(data) != "x\n" {
		t.Errorf("the file is %q, %v", data, err)
	}
	if list, _ := os.ReadDir(b.dir); len(list) != 2 {
		t.Errorf("something was left behind: %v", list)
	}
}

func TestSmallCommands(t *testing.T) {
	testFilters(t, []filterCase{
		{"seq 3", "", "1\n2\n3\n", 0},
		{"seq 5 -2 1", "", "5\n3\n1\n", 0},
		{"seq 0 0.5 1", "", "0.0\n0.5\n1.0\n", 0},
		{"seq -s, 3", "", "1,2,3\n", 0},
		{"seq 2 1", "", "", 0},
		{"seq 1 0 2", "", "", 2},
		{"seq x", "", "", 2},
		{"basename /a/b/c.txt .txt", "", "c\n", 0},
		{"basename /", "", "/\n", 0},
		{"dirname /a/b/c a /a a/b/", "", "/a/b\n.\n/\na\n", 0},
		{"xargs -n1 echo", "a b\n\"c d\" e\n", "a\nb\nc d\ne\n", 0},
		{"xargs -I{} echo <{}>", "a\nb c\n", "<a>\n<b c>\n", 0},
		{"xargs", "a b", "a b\n", 0},
		{"xargs -r", "", "", 0},
		{"xargs -0 -n1 echo", "a\x00b\x00", "a\nb\n", 0},
		{"xargs -d, echo", "a,b", "a b\n", 0},
		{"xargs echo", "'a", "", 1},
		{"xargs -n1 grep -q x", "nosuch", "", 123},
		{"md5sum", "x", "9dd4e461268c8034f5c8564e155c67a6  -\n", 0},
		{"sha256sum", "x", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  -\n", 0},
		{"date -u -d @0 +%F_%T_%j_%u_%s_%a_%b_%e", "", "1970-01-01 00:00:00 001 4 0 Thu Jan  1\n", 0},
		{"date +%Q", "", "", 2},
		{"date now", "", "", 2},
		{"env -i A=1 B=2", "", "A=1\nB=2\n", 0},
		{"env -i A=1 env", "", "A=1\n", 0},
		{"sleep 0", "", "", 0},
		{"sleep x", "", "", 2},
		{"tee", "x\n", "x\n", 0},
		{"less", "x\n", "x\n", 0},
	})
}

func TestAWrongCallSaysWhereHelpIs(t *testing.T) {
	b := newBench(t, nil)
	status, _, stderr := b.run("", "ls", "-Z")
	if want := "ls: unknown option -Z\nhint: help ls\n"; status != 2 || stderr != want {
		t.Errorf("got %d %q, want %q", status, stderr, want)
	}
	for _, cmd := range Table() {
		if cmd.Summary == "" || cmd.Run == nil {
			t.Errorf("%s lacks something", cmd.Name)
		}
		switch cmd.Name {
		case "clear", "yes", "basename", "dirname", "env":
			continue // these take whatever they are given, or nothing
		}
		if status, _, stderr := b.run("", cmd.Name, "--no-such-option"); status == 0 {
			t.Errorf("%s takes a wrong option: %q", cmd.Name, stderr)
		}
	}
}

func TestInterruptedCommandsEnd(t *testing.T) {
	b := newBench(t, nil)
	for _, args := range [][]string{{"yes"}, {"sleep", "1000"}, {"seq", "1", "1000000000"}, {"cat"}} {
		ctx, cancel := context.WithCancel(context.Background())
		input, keep := io.Pipe()
		done := make(chan int, 1)
		began := make(chan struct{}, 1)
		go func() {
			if args[0] != "yes" && args[0] != "seq" {
				began <- struct{}{}
			}
			done <- b.invoke(ctx, &Call{Args: args, Stdin: input, Stdout: notify{began}, Stderr: io.Discard})
		}()
		<-began
		cancel()
		keep.Close()
		select {
		case status := <-done:
			if status != StatusInterrupted {
				t.Errorf("%v: status %d", args, status)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%v does not end", args)
		}
	}
}

// notify tells of the first write.
type notify struct{ began chan struct{} }

func (n notify) Write(p []byte) (int, error) {
	select {
	case n.began <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestAWriterNobodyReadsEnds(t *testing.T) {
	b := newBench(t, nil)
	r, w := io.Pipe()
	r.Close()
	var stderr bytes.Buffer
	if status := b.invoke(context.Background(), &Call{Args: []string{"yes"}, Stdout: w, Stderr: &stderr}); status != StatusBrokenPipe {
		t.Errorf("status %d", status)
	}
	if stderr.Len() != 0 {
		t.Errorf("it complains: %s", stderr.String())
	}
}

func TestReasonsAreInOneLanguage(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, "no such file or directory"},
		{&fs.PathError{Op: "open", Path: "x", Err: io.ErrUnexpectedEOF}, "unexpected eof"},
		{os.ErrPermission, "permission denied"},
	} {
		if got := Reason(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}
