package cmds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// test is one condition or action of find.
type test func(ctx context.Context, name string, info fs.FileInfo) bool

// finding is one call of find.
type finding struct {
	*Call
	tests              []test
	minDepth, maxDepth int
	acts               bool // an action was given; else names are shown
	status             int
}

func runFind(ctx context.Context, c *Call) int {
	fd := &finding{Call: c, maxDepth: 1 << 30}
	args := c.Args[1:]
	var roots []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && args[0] != "!" && args[0] != "(" {
		roots = append(roots, args[0])
		args = args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	if err := fd.parse(args); err != nil {
		return c.usage("%v", err)
	}
	for _, root := range roots {
		info, err := c.Files.Lstat(c.path(root))
		if err != nil {
			fd.status = c.fileError("read", root, err)
			continue
		}
		fd.walk(ctx, root, info, 0)
	}
	return fd.status
}

func (fd *finding) parse(args []string) error {
	for len(args) > 0 {
		negate := false
		for len(args) > 0 && (args[0] == "!" || args[0] == "-not") {
			negate = !negate
			args = args[1:]
		}
		if len(args) == 0 {
			return errors.New("! needs a condition")
		}
		used, err := fd.parseOne(args, negate)
		if err != nil {
			return err
		}
		args = args[used:]
	}
	if !fd.acts {
		fd.tests = append(fd.tests, fd.show("\n"))
	}
	return nil
}

func (fd *finding) show(end string) test {
	return func(_ context.Context, name string, _ fs.FileInfo) bool {
		fd.out.WriteString(name + end)
		return true
	}
}

// parseOne reads one condition and returns how many arguments it took.
func (fd *finding) parseOne(args []string, negate bool) (int, error) {
	name := args[0]
	value := ""
	switch name {
	case "-name", "-iname", "-path", "-type", "-maxdepth", "-mindepth", "-size", "-newer":
		if len(args) < 2 {
			return 0, fmt.Errorf("%s needs a value", name)
		}
		value = args[1]
	}
	add := func(t test) {
		if negate {
			inner := t
			t = func(ctx context.Context, name string, info fs.FileInfo) bool { return !inner(ctx, name, info) }
		}
		fd.tests = append(fd.tests, t)
	}
	switch name {
	case "-name", "-iname", "-path":
		if _, err := path.Match(value, ""); err != nil {
			return 0, fmt.Errorf("bad pattern %q", value)
		}
		add(nameTest(name, value))
	case "-type":
		if !slices.Contains([]string{"f", "d", "l"}, value) {
			return 0, fmt.Errorf("-type takes f, d or l, not %q", value)
		}
		add(func(_ context.Context, _ string, info fs.FileInfo) bool { return typeLetter(info.Mode()) == value })
	case "-maxdepth", "-mindepth":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s needs a number, not %q", name, value)
		}
		if name == "-maxdepth" {
			fd.maxDepth = n
		} else {
			fd.minDepth = n
		}
	case "-size":
		t, err := sizeTest(value)
		if err != nil {
			return 0, err
		}
		add(t)
	case "-newer":
		info, err := fd.Files.Stat(fd.path(value))
		if err != nil {
			return 0, fmt.Errorf("cannot read %s: %s", value, reason(err))
		}
		add(func(_ context.Context, _ string, i fs.FileInfo) bool { return i.ModTime().After(info.ModTime()) })
	case "-empty":
		add(fd.isEmpty)
		return 1, nil
	case "-print", "-print0":
		fd.acts = true
		add(fd.show(map[string]string{"-print": "\n", "-print0": "\x00"}[name]))
		return 1, nil
	case "-exec":
		end := slices.Index(args, ";")
		if end < 2 {
			return 0, fmt.Errorf("-exec needs a command and then \\;")
		}
		fd.acts = true
		add(fd.exec(args[1:end]))
		return end + 1, nil
	default:
		return 0, fmt.Errorf("%q is not supported: -name, -iname, -path, -type, -size, -newer, -empty, -maxdepth, -mindepth, -print, -print0, -exec and ! are", name)
	}
	return 2, nil
}

func nameTest(kind, pattern string) test {
	return func(_ context.Context, name string, _ fs.FileInfo) bool {
		given, pattern := path.Base(name), pattern
		switch kind {
		case "-path":
			given = name
		case "-iname":
			given, pattern = strings.ToLower(given), strings.ToLower(pattern)
		}
		ok, _ := path.Match(pattern, given)
		return ok
	}
}

func typeLetter(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "f"
	case mode.IsDir():
		return "d"
	case mode&fs.ModeSymlink != 0:
		return "l"
	}
	return ""
}

// sizeTest reads +N, -N or N with a unit: c bytes, k, M, G; without one, 512.
func sizeTest(text string) (test, error) {
	sign := ""
	digits := text
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		sign, digits = text[:1], text[1:]
	}
	unit := int64(512)
	if n := len(digits); n > 0 {
		if size, ok := map[byte]int64{'c': 1, 'k': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[digits[n-1]]; ok {
			unit, digits = size, digits[:n-1]
		}
	}
	want, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is no size", text)
	}
	return func(_ context.Context, _ string, info fs.FileInfo) bool {
		size := (info.Size() + unit - 1) / unit
		switch sign {
		case "+":
			return size > want
		case "-":
			return size < want
		}
		return size == want
	}, nil
}

func (fd *finding) isEmpty(_ context.Context, name string, info fs.FileInfo) bool {
	if !info.IsDir() {
		return info.Mode().IsRegular() && info.Size() == 0
	}
	list, err := fd.Files.ReadDir(fd.path(name))
	return err == nil && len(list) == 0
}

func (fd *finding) exec(words []string) test {
	return func(ctx context.Context, name string, _ fs.FileInfo) bool {
		args := make([]string, len(words))
		for i, word := range words {
			args[i] = strings.ReplaceAll(word, "{}", name)
		}
		return fd.run(ctx, args, fd.Env, nil) == statusOK
	}
}

func (fd *finding) walk(ctx context.Context, name string, info fs.FileInfo, depth int) {
	if fd.stopped(ctx) {
		return
	}
	if depth >= fd.minDepth {
		for _, test := range fd.tests {
			if !test(ctx, name, info) {
				break
			}
		}
	}
	if !info.IsDir() || depth >= fd.maxDepth {
		return
	}
	list, err := fd.Files.ReadDir(fd.path(name))
	if err != nil {
		fd.status = fd.fileError("read", name, err)
		return
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			fd.walk(ctx, joinName(name, e.Name()), info, depth+1)
		}
	}
}
