package cmds

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

func runSleep(ctx context.Context, c *Call) int {
	if len(c.Args) < 2 {
		return c.usage("a time is needed")
	}
	var total time.Duration
	for _, arg := range c.Args[1:] {
		unit := time.Second
		digits := arg
		if n := len(arg); n > 0 {
			if u, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[arg[n-1]]; ok {
				unit, digits = u, arg[:n-1]
			}
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || n < 0 || n > 1e9 {
			return c.usage("%q is no time", arg)
		}
		total += time.Duration(n * float64(unit))
	}
	timer := time.NewTimer(total)
	defer timer.Stop()
	select {
	case <-timer.C:
		return statusOK
	case <-ctx.Done():
		return StatusInterrupted
	}
}

func runSeq(ctx context.Context, c *Call) int {
	args := c.Args[1:]
	separator := "\n"
	// Not the usual options: a number may be negative.
	if len(args) > 1 && args[0] == "-s" {
		separator, args = args[1], args[2:]
	} else if len(args) > 0 && strings.HasPrefix(args[0], "-s") {
		separator, args = args[0][2:], args[1:]
	}
	if len(args) < 1 || len(args) > 3 {
		return c.usage("one to three numbers are needed")
	}
	decimals := 0
	var numbers []float64
	for i, arg := range args {
		n, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return c.usage("%q is no number", arg)
		}
		if _, fraction, ok := strings.Cut(arg, "."); ok && (i < 2 || len(args) == 1) {
			decimals = max(decimals, len(fraction))
		}
		numbers = append(numbers, n)
	}
	first, step, last := 1.0, 1.0, numbers[len(numbers)-1]
	if len(numbers) > 1 {
		first = numbers[0]
	}
	if len(numbers) > 2 {
		step = numbers[1]
	}
	if step == 0 {
		return c.usage("the step is 0")
	}
	// Counted, not added up: a sum of fractions drifts.
	for i := 0; !c.stopped(ctx); i++ {
		n := first + float64(i)*step
		if step > 0 && n > last+1e-9 || step < 0 && n < last-1e-9 {
			if i > 0 {
				c.out.WriteByte('\n')
			}
			return statusOK
		}
		if i > 0 {
			c.out.WriteString(separator)
		}
		if _, err := c.out.WriteString(strconv.FormatFloat(n, 'f', decimals, 64)); err != nil {
			break
		}
	}
	return statusError
}

func runBasename(_ context.Context, c *Call) int {
	if len(c.Args) < 2 || len(c.Args) > 3 {
		return c.usage("a name and perhaps an ending are needed")
	}
	base := path.Base(c.Args[1])
	if len(c.Args) == 3 && base != c.Args[2] {
		base = strings.TrimSuffix(base, c.Args[2])
	}
	c.println(base)
	return statusOK
}

func runDirname(_ context.Context, c *Call) int {
	if len(c.Args) < 2 {
		return c.usage("a name is needed")
	}
	for _, name := range c.Args[1:] {
		c.println(path.Dir(strings.TrimRight(name, "/") + map[bool]string{true: "/"}[strings.Trim(name, "/") == ""]))
	}
	return statusOK
}

func runEnv(ctx context.Context, c *Call) int {
	env := maps.Clone(c.Env)
	args := c.Args[1:]
	for len(args) > 0 && (args[0] == "-i" || args[0] == "-") {
		env = map[string]string{}
		args = args[1:]
	}
	for len(args) > 1 && args[0] == "-u" {
		delete(env, args[1])
		args = args[2:]
	}
	for len(args) > 0 {
		name, value, ok := strings.Cut(args[0], "=")
		if !ok {
			break
		}
		if env == nil {
			env = map[string]string{}
		}
		env[name] = value
		args = args[1:]
	}
	if len(args) > 0 {
		return c.run(ctx, args, env, c.Stdin)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.println(name + "=" + env[name])
	}
	return statusOK
}

func runClear(_ context.Context, c *Call) int {
	c.out.WriteString("\x1b[H\x1b[2J\x1b[3J")
	return statusOK
}

func runXargs(ctx context.Context, c *Call) int {
	// The options end where the command starts: what follows is its own.
	own := 1
	for own < len(c.Args) && strings.HasPrefix(c.Args[own], "-") {
		switch c.Args[own] {
		case "-n", "-I", "-d":
			own++
		}
		own++
	}
	own = min(own, len(c.Args))
	words := c.Args[own:]
	c.Args = c.Args[:own]
	f, err := c.parse("0rtn:I:d:", nil)
	count, countErr := f.number('n', 1000)
	if err != nil || countErr != nil || count < 1 {
		return c.usage("%s", orText(err, orText(countErr, "the number must not be 0")))
	}
	if len(words) == 0 {
		words = []string{"echo"}
	}
	data, err := io.ReadAll(c.Stdin)
	if err != nil {
		return statusError
	}
	items, err := xargsItems(f, string(data))
	if err != nil {
		return c.fail("%v", err)
	}
	status := statusOK
	run := func(args []string) {
		if f.has('t') {
			fmt.Fprintln(c.Stderr, strings.Join(args, " "))
		}
		if got := c.run(ctx, args, c.Env, nil); got != statusOK {
			status = 123
		}
	}
	if f.has('I') {
		for _, item := range items {
			args := make([]string, len(words))
			for i, word := range words {
				args[i] = strings.ReplaceAll(word, f.get('I'), item)
			}
			if c.stopped(ctx) {
				break
			}
			run(args)
		}
		return status
	}
	if len(items) == 0 && !f.has('r') {
		run(words)
	}
	for batch := range slices.Chunk(items, count) {
		if c.stopped(ctx) {
			break
		}
		run(slices.Concat(words, batch))
	}
	return status
}

// xargsItems splits the input: at a given character, by line with -I, else at
// blanks as a shell would, with quotes and backslashes.
func xargsItems(f flags, text string) ([]string, error) {
	separator := ""
	switch {
	case f.has('0'):
		separator = "\x00"
	case f.has('d'):
		separator = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\0`, "\x00").Replace(f.get('d'))
	case f.has('I'):
		separator = "\n"
	}
	if separator != "" {
		text = strings.TrimSuffix(text, separator)
		if text == "" {
			return nil, nil
		}
		return strings.Split(text, separator), nil
	}
	var items []string
	var b bytes.Buffer
	quote, inItem := byte(0), false
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case quote != 0:
			if ch == quote {
				quote = 0
			} else {
				b.WriteByte(ch)
			}
		case ch == '\'' || ch == '"':
			quote, inItem = ch, true
		case ch == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
			inItem = true
		case ch == ' ' || ch == '\t' || ch == '\n':
			if inItem {
				items = append(items, b.String())
				b.Reset()
			}
			inItem = false
		default:
			b.WriteByte(ch)
			inItem = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed (xargs -0 or -d '\\n' take names as they are)", quote)
	}
	if inItem {
		items = append(items, b.String())
	}
	return items, nil
}
