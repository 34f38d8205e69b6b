package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func readDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// declaredConstants gives the values of the constants of a type in a file.
func declaredConstants(t *testing.T, path, typeName string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != typeName || len(spec.Values) != 1 {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
		return true
	})
	return values
}

func TestTheListOfErrorCodesIsClosed(t *testing.T) {
	var listed []string
	for _, c := range Codes() {
		listed = append(listed, string(c))
	}
	if declared := declaredConstants(t, "errors.go", "Code"); !slices.Equal(listed, declared) {
		t.Errorf("Codes lists %v, declared are %v", listed, declared)
	}
	sorted := slices.Sorted(slices.Values(listed))
	if len(slices.Compact(sorted)) != len(listed) {
		t.Errorf("a code is listed twice: %v", listed)
	}
}

func TestEveryErrorCodeIsDocumentedWithItsRetry(t *testing.T) {
	_, table, ok := strings.Cut(readDocs(t), "## Errors")
	if !ok {
		t.Fatal("the documentation has no part about errors")
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .* \\| ([a-z_]+) \\|$").FindAllStringSubmatch(table, -1) {
		documented[m[1]] = m[2]
	}
	for _, c := range Codes() {
		if got, want := documented[string(c)], string(Refuse(c, "").Retry); got != want {
			t.Errorf("%s: the documentation says retry %q, the code %q", c, got, want)
		}
		delete(documented, string(c))
	}
	if len(documented) > 0 {
		t.Errorf("documented and unknown: %v", documented)
	}
}

func TestEveryOperationIsDocumented(t *testing.T) {
	docs := readDocs(t)
	for _, op := range declaredConstants(t, "ops.go", "Op") {
		if !strings.Contains(docs, "\n| `"+op+"` |") {
			t.Errorf("%s is not in the table of operations", op)
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	docs := readDocs(t)
	seen := map[reflect.Type]bool{}
	for _, m := range messages() {
		checkFields(t, docs, reflect.TypeOf(m.full), seen)
	}
}

func checkFields(t *testing.T, docs string, typ reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || seen[typ] {
		return
	}
	seen[typ] = true
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.Anonymous && !regexp.MustCompile(`\b`+name+`( *[:=]|`+"`)").MatchString(docs) {
			t.Errorf("%s of %s is not documented", name, typ.Name())
		}
		checkFields(t, docs, field.Type, seen)
	}
}
