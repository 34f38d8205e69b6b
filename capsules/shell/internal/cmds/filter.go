package cmds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// sortKey is a -k option: fields counted from 1, last 0 for the line's end.
type sortKey struct {
	first, last      int
	numeric, reverse bool
	fold             bool
	own              bool // it has letters of its own
}

func parseKey(text string) (sortKey, error) {
	var k sortKey
	from, to, ranged := strings.Cut(text, ",")
	parse := func(part string) (int, error) {
		digits := strings.TrimRight(part, "nrfb")
		for _, letter := range part[len(digits):] {
			k.own = true
			k.numeric = k.numeric || letter == 'n'
			k.reverse = k.reverse || letter == 'r'
			k.fold = k.fold || letter == 'f'
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("key %q is no field number (characters within fields are not supported)", text)
		}
		return n, nil
	}
	var err error
	if k.first, err = parse(from); err == nil && ranged {
		k.last, err = parse(to)
	}
	return k, err
}

// of cuts the key out of a line.
func (k sortKey) of(line, separator string) string {
	var fields []string
	if separator == "" {
		fields = strings.Fields(line)
		separator = " "
	} else {
		fields = strings.Split(line, separator)
	}
	if k.first > len(fields) {
		return ""
	}
	last := len(fields)
	if k.last > 0 && k.last < last {
		last = k.last
	}
	if last < k.first {
		return ""
	}
	return strings.Join(fields[k.first-1:last], separator)
}

// compareKeys compares two keys by a key's own letters.
func (k sortKey) compare(a, b string) int {
	by := 0
	switch {
	case k.numeric:
		by = cmp.Compare(leadingNumber(a), leadingNumber(b))
	case k.fold:
		by = strings.Compare(strings.ToUpper(a), strings.ToUpper(b))
	default:
		by = strings.Compare(a, b)
	}
	if k.reverse {
		return -by
	}
	return by
}

// leadingNumber is the number a text starts with, or 0.
func leadingNumber(text string) float64 {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.' || end == 0 && text[end] == '-') {
		end++
	}
	n, _ := strconv.ParseFloat(text[:end], 64)
	return n
}

func runSort(ctx context.Context, c *Call) int {
	f, err := c.parse("nrufsbk:t:o:", map[string]byte{"reverse": 'r', "unique": 'u', "numeric-sort": 'n', "key": 'k'})
	if err != nil {
		return c.usage("%v", err)
	}
	whole := sortKey{numeric: f.has('n'), reverse: f.has('r'), fold: f.has('f')}
	var keys []sortKey
	for _, text := range f.values['k'] {
		key, err := parseKey(text)
		if err != nil {
			return c.usage("%v", err)
		}
		if !key.own {
			key.numeric, key.reverse, key.fold = whole.numeric, whole.reverse, whole.fold
		}
		keys = append(keys, key)
	}
	byKeys := func(a, b string) int {
		if len(keys) == 0 {
			return whole.compare(a, b)
		}
		for _, key := range keys {
			if by := key.compare(key.of(a, f.get('t')), key.of(b, f.get('t'))); by != 0 {
				return by
			}
		}
		return 0
	}
	var all []string
	status := c.eachFile(ctx, f.args, func(_ string, r io.Reader) error {
		return lines(r, func(line string, _ bool) error {
			all = append(all, line)
			return nil
		})
	})
	if c.stopped(ctx) {
		return status
	}
	slices.SortStableFunc(all, func(a, b string) int {
		by := byKeys(a, b)
		if by == 0 && !f.has('s') && !f.has('u') {
			// Equal keys are told apart by the whole line, so that the
			// result does not depend on the order of the input.
			if by = strings.Compare(a, b); f.has('r') {
				by = -by
			}
		}
		return by
	})
	if f.has('u') {
		all = slices.CompactFunc(all, func(a, b string) bool { return byKeys(a, b) == 0 })
	}
	if f.has('o') {
		return max(status, c.replaceFile(f.get('o'), strings.Join(append(all, ""), "\n")))
	}
	for _, line := range all {
		if c.println(line) != nil {
			break
		}
	}
	return status
}

// replaceFile writes a file beside the old one and puts it in its place.
func (c *Call) replaceFile(name, text string) int {
	full := c.path(name)
	fresh := full + ".new~"
	file, err := c.Files.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err == nil {
		_, err = io.WriteString(file, text)
		err = errors.Join(err, file.Close())
		if err == nil {
			err = c.Files.Rename(fresh, full)
		}
		if err != nil {
			c.Files.Remove(fresh)
		}
	}
	if err != nil {
		return c.fileError("write", name, err)
	}
	return statusOK
}

func runUniq(ctx context.Context, c *Call) int {
	f, err := c.parse("cdui", map[string]byte{"count": 'c', "repeated": 'd', "unique": 'u'})
	if err != nil || len(f.args) > 1 {
		return c.usage("%s", orText(err, "one file at most"))
	}
	previous, times := "", 0
	put := func() {
		if times == 0 || f.has('d') && times < 2 || f.has('u') && times > 1 {
			return
		}
		if f.has('c') {
			fmt.Fprintf(c.out, "%7d %s\n", times, previous)
			return
		}
		c.println(previous)
	}
	status := c.eachFile(ctx, f.args, func(_ string, r io.Reader) error {
		return lines(r, func(line string, _ bool) error {
			if times > 0 && (line == previous || f.has('i') && strings.EqualFold(line, previous)) {
				times++
				return nil
			}
			put()
			previous, times = line, 1
			return nil
		})
	})
	put()
	return status
}

// ranges are the positions of cut, counted from 1.
type ranges [][2]int

func parseRanges(text string) (ranges, error) {
	var list ranges
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, last := 1, 1<<30
		var err error
		if from != "" {
			if first, err = strconv.Atoi(from); err != nil || first < 1 {
				return nil, fmt.Errorf("%q is no list of positions", text)
			}
		}
		switch {
		case !ranged && from == "", ranged && from == "" && to == "":
			return nil, fmt.Errorf("%q is no list of positions", text)
		case !ranged:
			last = first
		case to != "":
			if last, err = strconv.Atoi(to); err != nil || last < first {
				return nil, fmt.Errorf("%q is no list of positions", text)
			}
		}
		list = append(list, [2]int{first, last})
	}
	return list, nil
}

func (r ranges) has(at int) bool {
	return slices.ContainsFunc(r, func(s [2]int) bool { return at >= s[0] && at <= s[1] })
}

func runCut(ctx context.Context, c *Call) int {
	f, err := c.parse("d:f:c:b:s", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	text := f.get('f') + f.get('c') + f.get('b')
	if len(f.values['f'])+len(f.values['c'])+len(f.values['b']) != 1 {
		return c.usage("one of -f, -c and -b is needed")
	}
	list, err := parseRanges(text)
	if err != nil {
		return c.usage("%v", err)
	}
	delimiter := "\t"
	if f.has('d') {
		delimiter = f.get('d')
	}
	if delimiter == "" {
		return c.usage("the delimiter is empty")
	}
	return c.eachFile(ctx, f.args, func(_ string, r io.Reader) error {
		return lines(r, func(line string, _ bool) error {
			switch {
			case f.has('b'):
				return c.println(string(pick([]byte(line), list)))
			case f.has('c'):
				return c.println(string(pick([]rune(line), list)))
			case !strings.Contains(line, delimiter):
				if f.has('s') {
					return nil
				}
				return c.println(line)
			}
			return c.println(strings.Join(pick(strings.Split(line, delimiter), list), delimiter))
		})
	})
}

func pick[T any](parts []T, list ranges) []T {
	var kept []T
	for i, part := range parts {
		if list.has(i + 1) {
			kept = append(kept, part)
		}
	}
	return kept
}

func runTr(_ context.Context, c *Call) int {
	f, err := c.parse("dsc", map[string]byte{"delete": 'd', "squeeze-repeats": 's', "complement": 'c'})
	need := 2
	if f.has('d') || f.has('s') {
		need = 1
	}
	if err != nil || len(f.args) < need || len(f.args) > 2 || f.has('d') && !f.has('s') && len(f.args) > 1 {
		return c.usage("%s", orText(err, "wrong number of sets"))
	}
	from, err := expandSet(f.args[0])
	var to []rune
	if err == nil && len(f.args) == 2 {
		to, err = expandSet(f.args[1])
	}
	if err == nil && len(f.args) == 2 && len(to) == 0 && !f.has('d') {
		err = errors.New("the second set is empty")
	}
	if err != nil {
		return c.usage("%v", err)
	}
	t := translation{from: from, to: to, complement: f.has('c'), remove: f.has('d'), squeeze: f.has('s')}
	err = eachRune(c.Stdin, func(r rune) error {
		if r, keep := t.next(r); keep {
			_, err := c.out.WriteRune(r)
			return err
		}
		return nil
	})
	if err != nil {
		return statusError
	}
	return statusOK
}
