package capsule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder walks the syntax tree itself instead of filling a struct, because every fault needs its line and column, and
// a key of a later version needs another answer than a misspelt one.
type decoder struct {
	file string
}

// field is one key of a mapping and what its value is for.
type field struct {
	name  string
	set   func(ast.Node) error
	later bool // refused by this version
}

func (d *decoder) fault(n ast.Node, format string, args ...any) error {
	return d.faultAt(n.GetToken(), fmt.Sprintf(format, args...), "")
}

func (d *decoder) faultAt(tk *token.Token, reason, nearest string) error {
	e := &ManifestError{File: d.file, Line: 1, Column: 1, Reason: reason, Nearest: nearest}
	if tk != nil && tk.Position != nil {
		e.Line, e.Column = max(tk.Position.Line, 1), max(tk.Position.Column, 1)
	}
	return e
}

// maxNesting is far more than a manifest needs.
const maxNesting = 32

// nesting tells where the data opens more collections than a manifest may: the
// parser takes time and memory that grow with the square of their depth. It counts
// without regard to quotes, which only makes it stricter.
func nesting(data []byte) (line, column int, deep bool) {
	open, dashes := 0, 0
	line, column = 1, 0
	for _, c := range data {
		column++
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?', ':':
			dashes++
		case '\n':
			line, column, dashes = line+1, 0, 0
		case ' ', '\t', '\r':
		default:
			dashes = 0
		}
		if open > maxNesting || dashes > maxNesting {
			return line, column, true
		}
	}
	return 0, 0, false
}

// parse gives the one document of the file.
func (d *decoder) parse(data []byte) (ast.Node, error) {
	if line, column, deep := nesting(data); deep {
		return nil, &ManifestError{File: d.file, Line: line, Column: column, Reason: "it is nested too deeply"}
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		if e, ok := err.(yaml.Error); ok {
			return nil, d.faultAt(e.GetToken(), firstLine(e.GetMessage()), "")
		}
		return nil, d.faultAt(nil, firstLine(err.Error()), "")
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, d.fault(doc.Body, "a manifest is one document, this is a second")
		}
		body = doc.Body
	}
	if body == nil {
		return nil, d.faultAt(nil, "the manifest is empty", "")
	}
	return body, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// entries are the key and value pairs of a mapping, which the parser gives in one of two shapes.
func (d *decoder) entries(n ast.Node, what string) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	default:
		return nil, d.fault(n, "%s must be a mapping, not %s", what, describe(n))
	}
}

// object reads a mapping whose keys are all in fields.
func (d *decoder) object(n ast.Node, what string, fields []field) error {
	entries, err := d.entries(n, what)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		key, err := d.keyName(e.Key)
		if err != nil {
			return err
		}
		if seen[key] {
			return d.fault(e.Key, "key %q is given twice", key)
		}
		seen[key] = true
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			reason := fmt.Sprintf("%s has no key %q, known are %s", what, key, known(fields))
			return d.faultAt(e.Key.GetToken(), reason, nearest(key, fields))
		}
		if e.Value == nil || e.Value.Type() == ast.NullType {
			return d.fault(e.Key, "key %q has no value", key)
		}
		if err := fields[i].set(e.Value); err != nil {
			return err
		}
	}
	return nil
}

// section is an object that must not be empty: an empty one looks like a grant and is none.
func (d *decoder) section(n ast.Node, what string, fields []field) error {
	entries, err := d.entries(n, what)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return d.fault(n, "%s is empty and grants nothing: leave it out", what)
	}
	return d.object(n, what, fields)
}

func (d *decoder) keyName(k ast.MapKeyNode) (string, error) {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value, nil
	}
	return "", d.fault(k, "a key must be a plain word, not %s", describe(k))
}

// later refuses a key of the format that this version does not act on. Ignoring it would grant or drop something.
func (d *decoder) later(name, reason string) field {
	refuse := func(n ast.Node) error {
		return d.fault(n, "%q is not supported by this version: %s", name, reason)
	}
	return field{name: name, set: refuse, later: true}
}

// known lists the keys that can be used.
func known(fields []field) string {
	var out []string
	for _, f := range fields {
		if !f.later {
			out = append(out, f.name)
		}
	}
	return strings.Join(out, ", ")
}

// nearest is the known key closest to a misspelt one, or nothing when none is close.
func nearest(key string, fields []field) string {
	best, bestDistance := "", max(len(key)/2, 1)+1
	for _, f := range fields {
		if dist := distance(key, f.name); dist < bestDistance {
			best, bestDistance = f.name, dist
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements between two words. Long input is not worth a guess.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(diagonal+cost, row[j]+1, row[j+1]+1)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias"
	case *ast.TagNode:
		return "a tagged value"
	case *ast.MergeKeyNode:
		return "a merge key"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.NullNode:
		return "nothing"
	default:
		return "a text"
	}
}
