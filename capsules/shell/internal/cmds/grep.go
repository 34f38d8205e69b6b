package cmds

import (
	"context"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// grepping is one call of grep.
type grepping struct {
	*Call
	f       flags
	re      *regexp.Regexp
	named   bool // show the file's name
	matched bool
}

func runGrep(ctx context.Context, c *Call) int {
	f, err := c.parse("ivncrREFGqlLohHswxe:m:", map[string]byte{
		"ignore-case": 'i', "invert-match": 'v', "line-number": 'n', "count": 'c', "recursive": 'r', "quiet": 'q',
		"extended-regexp": 'E', "fixed-strings": 'F', "files-with-matches": 'l', "only-matching": 'o', "word-regexp": 'w',
	})
	if err != nil {
		return c.usage("%v", err)
	}
	patterns, files := f.values['e'], f.args
	if len(patterns) == 0 {
		if len(files) == 0 {
			return c.usage("a pattern is needed")
		}
		patterns, files = files[:1], files[1:]
	}
	re, err := grepPattern(f, patterns)
	if err != nil {
		return c.usage("%v", err)
	}
	recursive := f.has('r') || f.has('R')
	if recursive && len(files) == 0 {
		files = []string{"."}
	}
	g := &grepping{Call: c, f: f, re: re, named: (len(files) > 1 || recursive || f.has('H')) && !f.has('h')}
	status := statusOK
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if got := g.search(ctx, name, recursive); got != statusOK {
			status = statusUsage
		}
		if g.matched && f.has('q') {
			return statusOK
		}
	}
	switch {
	case status != statusOK:
		return status
	case g.matched:
		return statusOK
	}
	return statusError
}

func grepPattern(f flags, patterns []string) (*regexp.Regexp, error) {
	var parts []string
	for _, given := range patterns {
		for pattern := range strings.SplitSeq(given, "\n") {
			translated := regexp.QuoteMeta(pattern)
			if !f.has('F') {
				if _, err := compilePattern(pattern, f.has('E'), false); err != nil {
					return nil, err
				}
				translated, _ = translatePattern(pattern, f.has('E'))
			}
			switch {
			case f.has('x'):
				translated = `^(?:` + translated + `)$`
			case f.has('w'):
				translated = `\b(?:` + translated + `)\b`
			}
			parts = append(parts, `(?:`+translated+`)`)
		}
	}
	all := strings.Join(parts, "|")
	if f.has('i') {
		all = "(?i)" + all
	}
	re, err := regexp.Compile(all)
	if err == nil {
		re.Longest()
	}
	return re, err
}

// search looks through a file or, with -r, a directory.
func (g *grepping) search(ctx context.Context, name string, recursive bool) int {
	if g.stopped(ctx) || g.matched && g.f.has('q') {
		return statusOK
	}
	if name != "-" {
		info, err := g.Files.Stat(g.path(name))
		switch {
		case err != nil && g.f.has('s'):
			return statusError
		case err != nil:
			return g.fileError("read", name, err)
		case info.IsDir() && !recursive:
			return g.fail("cannot search %s: is a directory (grep -r searches it)", name)
		case info.IsDir():
			return g.searchDir(ctx, name)
		}
	}
	file, err := g.open(ctx, name)
	if err != nil {
		return g.fileError("open", name, err)
	}
	defer file.Close()
	if name == "-" {
		name = "(standard input)"
	}
	if err := g.searchLines(name, file); err != nil && !g.stopped(ctx) {
		return g.fileError("read", name, err)
	}
	return statusOK
}

func (g *grepping) searchDir(ctx context.Context, name string) int {
	list, err := g.Files.ReadDir(g.path(name))
	if err != nil {
		return g.fileError("read", name, err)
	}
	status := statusOK
	for _, e := range list {
		if !e.IsDir() && !e.Type().IsRegular() {
			continue // links are not followed, so that a loop ends
		}
		if got := g.search(ctx, joinName(name, e.Name()), true); got != statusOK {
			status = got
		}
	}
	return status
}

func (g *grepping) searchLines(name string, r io.Reader) error {
	limit, err := g.f.number('m', -1)
	if err != nil {
		return err
	}
	number, found := 0, 0
	err = lines(r, func(line string, _ bool) error {
		number++
		if found == limit {
			return errStop
		}
		if g.re.MatchString(line) == g.f.has('v') {
			return nil
		}
		found++
		g.matched = true
		switch {
		case g.f.has('q'), g.f.has('l'), g.f.has('L'):
			return errStop
		case g.f.has('c'):
			return nil
		case g.f.has('o'):
			return g.showMatches(name, number, line)
		}
		return g.println(g.prefix(name, number) + line)
	})
	switch {
	case g.f.has('q'):
	case g.f.has('l') && found > 0, g.f.has('L') && found == 0:
		g.println(name)
	case g.f.has('l'), g.f.has('L'):
	case g.f.has('c') && g.named:
		g.println(name + ":" + strconv.Itoa(found))
	case g.f.has('c'):
		g.println(strconv.Itoa(found))
	}
	return err
}

func (g *grepping) showMatches(name string, number int, line string) error {
	if g.f.has('v') {
		return nil
	}
	for _, match := range g.re.FindAllString(line, -1) {
		if match == "" {
			continue
		}
		if err := g.println(g.prefix(name, number) + match); err != nil {
			return err
		}
	}
	return nil
}

func (g *grepping) prefix(name string, number int) string {
	prefix := ""
	if g.named {
		prefix = name + ":"
	}
	if g.f.has('n') {
		prefix += strconv.Itoa(number) + ":"
	}
	return prefix
}
