package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// ban forbids to mention something outside of some places.
type ban struct {
	pkg   string
	names []string
	// allowed says where it may be mentioned all the same.
	allowed func(s source, function string) bool
	reason  string
}

// programs are the packages that stand for a process: the commands, and the
// capsules, which are guests with an environment of their own.
func programs(s source) bool { return within(s.pkg, "cmd", "capsules", "examples") }

func inMain(s source, function string) bool {
	return s.file.Name.Name == "main" && function == "main"
}

func bans() []ban {
	operator := func(s source, _ string) bool {
		return s.test || programs(s) || within(s.pkg, "internal/cli")
	}
	return []ban{
		{
			pkg: "os", names: []string{"Getenv", "LookupEnv", "Environ", "Setenv", "Unsetenv", "Clearenv", "ExpandEnv", "Args"},
			allowed: operator,
			reason:  "only commands read their environment and arguments: what a session does is in its directory and its requests",
		},
		{
			pkg: "os", names: []string{"Exit"},
			allowed: func(s source, function string) bool {
				return inMain(s, function) || s.test && function == "TestMain" || s.test && s.file.Name.Name == "main"
			},
			reason: "an exit below main skips every deferred call",
		},
		{
			pkg: "os", names: []string{"Stdin", "Stdout", "Stderr"},
			allowed: func(s source, function string) bool { return s.test || programs(s) || inMain(s, function) },
			reason:  "what is below main is given its streams",
		},
		{
			pkg: "log", names: []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
			allowed: func(source, string) bool { return false },
			reason:  "an exit below main skips every deferred call",
		},
		{
			pkg: "signal", names: []string{"Ignore"},
			allowed: func(s source, _ string) bool { return s.test },
			reason:  "an ignored signal stays ignored in every program that is started, and Reset does not undo it",
		},
		{
			pkg: "time", names: []string{"Sleep"},
			allowed: func(s source, _ string) bool { return !s.test || programs(s) && !s.test },
			reason:  "a test that sleeps is slow when it passes and wrong when the machine is slow: wait for an event",
		},
	}
}

func TestNothingIsDoneWhereItDoesNotBelong(t *testing.T) {
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			function := ""
			if f, ok := decl.(*ast.FuncDecl); ok {
				function = f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				pkg, name := callOf(n)
				for _, b := range bans() {
					if pkg == b.pkg && slices.Contains(b.names, name) && !b.allowed(s, function) {
						t.Errorf("%s: %s.%s: %s", s.at(n), pkg, name, b.reason)
					}
				}
				return true
			})
		}
	}
}

func TestOnlyCommandsHaveFlags(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || programs(s) || within(s.pkg, "internal/cli") {
			continue
		}
		if slices.Contains(s.imports(), "flag") || slices.Contains(s.imports(), "github.com/spf13/pflag") {
			t.Errorf("%s reads flags: main does, and hands over what they say", s.path)
		}
	}
}

func TestNothingHappensBeforeMain(t *testing.T) {
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: an init function runs in every program that links the package, asked for or not", s.at(f))
			}
		}
	}
}

// TestPackagesKeepNoState allows as package-level variables only what nobody
// changes: errors to compare with, values of package sync that do something once,
// embedded files, assertions (_), and tables, which have to be declared with
// their contents and a comment and are never assigned to.
func TestPackagesKeepNoState(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if why := mutable(d, v, i); why != "" {
						t.Errorf("%s: the variable %s is state of the package: %s", s.at(name), name.Name, why)
					} else if where := assigned(all, s.pkg, name.Name); where != "" {
						t.Errorf("%s: %s is assigned to at %s", s.at(name), name.Name, where)
					}
				}
			}
		}
	}
}

// mutable says why a package-level variable is not among those that are allowed.
func mutable(d *ast.GenDecl, v *ast.ValueSpec, i int) string {
	if v.Names[i].Name == "_" {
		return ""
	}
	doc := v.Doc
	if doc == nil {
		doc = d.Doc
	}
	if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return len(c.Text) > 10 && c.Text[:10] == "//go:embed" }) {
		return ""
	}
	if pkg, _ := callOf(v.Type); pkg == "sync" {
		return ""
	}
	if i >= len(v.Values) {
		return "it has no value from the beginning"
	}
	switch value := v.Values[i].(type) {
	case *ast.CallExpr:
		switch pkg, name := callOf(value.Fun); pkg + "." + name {
		case "errors.New", "fmt.Errorf", "sync.OnceValue", "sync.OnceValues", "sync.OnceFunc", "regexp.MustCompile":
			return ""
		}
		return "it is computed before main"
	case *ast.CompositeLit:
		if doc == nil {
			return "a table needs a comment that says what it is"
		}
		return ""
	}
	return "make it a constant or a field"
}

// assigned finds an assignment to a package-level variable of a package. It goes
// by names, so a local variable must not hide a table.
func assigned(all []source, pkg, variable string) (where string) {
	if variable == "_" {
		return ""
	}
	for _, s := range all {
		if s.pkg != pkg || s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if n.Tok != token.DEFINE && rootName(left) == variable {
						where = s.at(n)
					}
				}
			case *ast.IncDecStmt:
				if rootName(n.X) == variable {
					where = s.at(n)
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND && rootName(n.X) == variable {
					where = s.at(n)
				}
			}
			return true
		})
	}
	return where
}

// rootName is x of x, x[i], x.f and (*x).
func rootName(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return ""
		}
	}
}
