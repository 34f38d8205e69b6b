package capsule

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// text is a string value. A number is not one: an unquoted version 1.10 would silently become 1.1.
func (d *decoder) text(n ast.Node, what string) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", d.fault(n, "%s must be a text, not %s: put it in quotes", what, describe(n))
	default:
		return "", d.fault(n, "%s must be a text, not %s", what, describe(n))
	}
}

// line is a text of one line without control characters.
func (d *decoder) line(n ast.Node, what string, limit int) (string, error) {
	s, err := d.text(n, what)
	if err != nil {
		return "", err
	}
	if len(s) > limit {
		return "", d.fault(n, "%s is longer than %d bytes", what, limit)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "", d.fault(n, "%s must be one line without control characters", what)
	}
	return s, nil
}

func (d *decoder) boolean(n ast.Node, what string) (bool, error) {
	if b, ok := n.(*ast.BoolNode); ok {
		return b.Value, nil
	}
	return false, d.fault(n, "%s must be true or false, not %s", what, describe(n))
}

// count is a whole number above zero.
func (d *decoder) count(n ast.Node, what string, limit int64) (int64, error) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, d.fault(n, "%s must be a whole number, not %s", what, describe(n))
	}
	var v int64
	switch value := i.Value.(type) {
	case int64:
		v = value
	case uint64:
		v = int64(min(value, uint64(1)<<62))
	}
	if v < 1 || v > limit {
		return 0, d.fault(n, "%s must be between 1 and %d", what, limit)
	}
	return v, nil
}

func (d *decoder) size(n ast.Node, what string, limit Size) (Size, error) {
	var source string
	switch n := n.(type) {
	case *ast.StringNode:
		source = n.Value
	case *ast.IntegerNode:
		source = n.Token.Value
	default:
		return 0, d.fault(n, "%s must be a size like 512MiB, not %s", what, describe(n))
	}
	s, err := ParseSize(source)
	if err != nil {
		return 0, d.fault(n, "%s: %v", what, err)
	}
	if s < 1 || s > limit {
		return 0, d.fault(n, "%s must be between 1B and %s", what, limit)
	}
	return s, nil
}

func (d *decoder) duration(n ast.Node, what string) (time.Duration, error) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return 0, d.fault(n, "%s must be a duration like 8h or 90s, not %s", what, describe(n))
	}
	v, err := time.ParseDuration(s.Value)
	if err != nil {
		return 0, d.fault(n, "%s must be a duration like 8h or 90s, not %q", what, s.Value)
	}
	if v <= 0 {
		return 0, d.fault(n, "%s must be longer than nothing", what)
	}
	return v, nil
}

// word is one of a few words.
func (d *decoder) word(n ast.Node, what string, words ...string) (string, error) {
	s, err := d.text(n, what)
	if err != nil {
		return "", err
	}
	if !slices.Contains(words, s) {
		fields := make([]field, len(words))
		for i, w := range words {
			fields[i].name = w
		}
		return "", d.faultAt(n.GetToken(), what+" is "+strconv.Quote(s)+", known are "+strings.Join(words, ", "), nearest(s, fields))
	}
	return s, nil
}

// list calls each for every element. What a list grants, an empty one does not, so that is a fault unless allowed.
func (d *decoder) list(n ast.Node, what string, mayBeEmpty bool, each func(ast.Node) error) error {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.fault(n, "%s must be a list, not %s", what, describe(n))
	}
	if len(seq.Values) == 0 && !mayBeEmpty {
		return d.fault(n, "%s is an empty list and grants nothing: leave it out", what)
	}
	for _, v := range seq.Values {
		if v == nil {
			return d.fault(n, "%s has an empty element", what)
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}

// names reads a list of distinct texts that all pass check, which returns the reason when one does not.
func (d *decoder) names(n ast.Node, what string, mayBeEmpty bool, check func(string) string) ([]string, error) {
	var out []string
	err := d.list(n, what, mayBeEmpty, func(v ast.Node) error {
		s, err := d.text(v, "an element of "+what)
		if err != nil {
			return err
		}
		if reason := check(s); reason != "" {
			return d.fault(v, "%q %s", s, reason)
		}
		if slices.Contains(out, s) {
			return d.fault(v, "%q is in %s twice", s, what)
		}
		out = append(out, s)
		return nil
	})
	return out, err
}
