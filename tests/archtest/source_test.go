package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-8e62c83d/mur"

// source is one Go file of the project. All of them are looked at, whatever
// their build constraints.
type source struct {
	path  string // below the module's root
	pkg   string // directory, "." for the root
	test  bool
	lines int
	fset  *token.FileSet
	file  *ast.File
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

func (s source) imports() []string {
	var paths []string
	for _, i := range s.file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

func sources(t *testing.T) []source {
	t.Helper()
	const root = "../.."
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, source{
			path: rel, pkg: filepath.Dir(rel), test: strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(string(text), "\n"), fset: fset, file: file,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// within tells whether pkg is dir or below it.
func within(pkg string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	})
}

// callOf gives package and function of a call like os.Exit(1).
func callOf(n ast.Node) (pkg, name string) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return id.Name, sel.Sel.Name
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			documented[s.pkg] = documented[s.pkg] || s.file.Doc != nil
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment: what it owns, what survives a crash, what it never does", pkg)
		}
	}
}

func TestNoFileIsLongerThanOneSitting(t *testing.T) {
	const most = 600
	for _, s := range sources(t) {
		if s.lines > most {
			t.Errorf("%s has %d lines: split it, %d is the most", s.path, s.lines, most)
		}
	}
}

func TestPackagesAreNamedAfterWhatTheyAre(t *testing.T) {
	for _, s := range sources(t) {
		switch filepath.Base(s.pkg) {
		case "util", "utils", "common", "helper", "helpers", "misc", "shared":
			t.Errorf("%s: this name says nothing about what is inside", s.pkg)
		}
	}
}
