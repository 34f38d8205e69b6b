package cmds

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

func runCat(ctx context.Context, c *Call) int {
	f, err := c.parse("nu", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	number := 0
	return c.eachFile(ctx, f.args, func(_ string, r io.Reader) error {
		if !f.has('n') {
			_, err := io.Copy(c.out, r)
			return err
		}
		return lines(r, func(line string, last bool) error {
			number++
			_, err := fmt.Fprintf(c.out, "%6d\t%s%s", number, line, ending(last))
			return err
		})
	})
}

func ending(last bool) string {
	if last {
		return ""
	}
	return "\n"
}

func runHead(ctx context.Context, c *Call) int {
	c.oldCount()
	f, err := c.parse("n:c:q", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	count, err := f.number('n', 10)
	size, sizeErr := f.number('c', -1)
	if err != nil || sizeErr != nil || count < 0 {
		return c.usage("%s", orText(err, orText(sizeErr, "the number must not be negative")))
	}
	return c.titled(ctx, f, func(r io.Reader) error {
		if size >= 0 {
			_, err := io.CopyN(c.out, r, int64(size))
			if err == io.EOF {
				err = nil
			}
			return err
		}
		left := count
		if left == 0 {
			return nil
		}
		return lines(r, func(line string, last bool) error {
			if _, err := c.out.WriteString(line + ending(last)); err != nil {
				return err
			}
			if left--; left == 0 {
				return errStop
			}
			return nil
		})
	})
}

// titled shows each file's name above its part when there are several.
func (c *Call) titled(ctx context.Context, f flags, fn func(r io.Reader) error) int {
	first := true
	return c.eachFile(ctx, f.args, func(name string, r io.Reader) error {
		if len(f.args) > 1 && !f.has('q') {
			if !first {
				c.println("")
			}
			c.println("==> " + name + " <==")
		}
		first = false
		return fn(r)
	})
}

func runTail(ctx context.Context, c *Call) int {
	c.oldCount()
	f, err := c.parse("n:c:q", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	letter := byte('n')
	if f.has('c') {
		letter = 'c'
	}
	fromStart := strings.HasPrefix(f.get(letter), "+")
	count, err := f.number(letter, 10)
	if err != nil {
		return c.usage("%v", err)
	}
	count = max(count, -count)
	return c.titled(ctx, f, func(r io.Reader) error {
		switch {
		case letter == 'c' && fromStart:
			if _, err := io.CopyN(io.Discard, r, int64(max(count-1, 0))); err != nil {
				return nil // shorter than that
			}
			_, err := io.Copy(c.out, r)
			return err
		case letter == 'c':
			return c.tailBytes(r, count)
		case fromStart:
			at := 0
			return lines(r, func(line string, last bool) error {
				if at++; at < count {
					return nil
				}
				_, err := c.out.WriteString(line + ending(last))
				return err
			})
		}
		return c.tailLines(r, count)
	})
}

func (c *Call) tailBytes(r io.Reader, count int) error {
	var kept []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		if len(kept) > count {
			kept = append(kept[:0], kept[len(kept)-count:]...)
		}
		if err == io.EOF {
			_, err = c.out.Write(kept)
			return err
		}
		if err != nil {
			return err
		}
	}
}

func (c *Call) tailLines(r io.Reader, count int) error {
	if count == 0 {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	var ring []string
	at := 0
	err := lines(r, func(line string, last bool) error {
		line += ending(last)
		if len(ring) < count {
			ring = append(ring, line)
			return nil
		}
		ring[at] = line
		at = (at + 1) % count
		return nil
	})
	for i := range ring {
		c.out.WriteString(ring[(at+i)%len(ring)])
	}
	return err
}

// counts are what wc counts.
type counts struct{ lines, words, chars, bytes int64 }

func runWc(ctx context.Context, c *Call) int {
	f, err := c.parse("lwcm", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	var total counts
	status := c.eachFile(ctx, f.args, func(name string, r io.Reader) error {
		n, err := count(r)
		if name == "-" && len(f.args) == 0 {
			name = ""
		}
		c.showCounts(f, n, name)
		total.lines += n.lines
		total.words += n.words
		total.chars += n.chars
		total.bytes += n.bytes
		return err
	})
	if len(f.args) > 1 {
		c.showCounts(f, total, "total")
	}
	return status
}

func count(r io.Reader) (counts, error) {
	var n counts
	inWord := false
	buf := make([]byte, 32<<10)
	for {
		got, err := r.Read(buf)
		for _, b := range buf[:got] {
			if utf8.RuneStart(b) {
				n.chars++
			}
			space := b == ' ' || b >= '\t' && b <= '\r'
			if b == '\n' {
				n.lines++
			}
			if !space && !inWord {
				n.words++
			}
			inWord = !space
		}
		n.bytes += int64(got)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func (c *Call) showCounts(f flags, n counts, name string) {
	all := len(f.values) == 0
	var shown []string
	for _, column := range []struct {
		letter byte
		normal bool
		value  int64
	}{{'l', true, n.lines}, {'w', true, n.words}, {'m', false, n.chars}, {'c', true, n.bytes}} {
		if f.has(column.letter) || all && column.normal {
			shown = append(shown, fmt.Sprint(column.value))
		}
	}
	if len(shown) > 1 {
		for i := range shown {
			shown[i] = fmt.Sprintf("%7s", shown[i])
		}
	}
	line := strings.Join(shown, " ")
	if name != "" {
		line += " " + name
	}
	c.println(line)
}

func runTee(ctx context.Context, c *Call) int {
	f, err := c.parse("ai", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	mode := os.O_TRUNC
	if f.has('a') {
		mode = os.O_APPEND
	}
	status := statusOK
	to := []io.Writer{c.out}
	for _, name := range f.args {
		file, err := c.Files.OpenFile(c.path(name), os.O_WRONLY|os.O_CREATE|mode, 0o666)
		if err != nil {
			status = c.fileError("write", name, err)
			continue
		}
		defer file.Close()
		to = append(to, file)
	}
	if _, err := io.Copy(io.MultiWriter(to...), c.Stdin); err != nil && !c.stopped(ctx) {
		status = c.fail("cannot copy: %s", reason(err))
	}
	return status
}

func runYes(ctx context.Context, c *Call) int {
	text := "y"
	if len(c.Args) > 1 {
		text = strings.Join(c.Args[1:], " ")
	}
	for !c.stopped(ctx) {
		if err := c.println(text); err != nil {
			return statusError
		}
	}
	return statusOK
}

func runMd5(ctx context.Context, c *Call) int    { return c.sum(ctx, md5.New()) }
func runSha256(ctx context.Context, c *Call) int { return c.sum(ctx, sha256.New()) }

// sum shows the digest of each file, or with -c compares with a list of them.
func (c *Call) sum(ctx context.Context, h hash.Hash) int {
	f, err := c.parse("cb", map[string]byte{"check": 'c'})
	if err != nil {
		return c.usage("%v", err)
	}
	if f.has('c') {
		return c.checkSums(ctx, f.args, h)
	}
	return c.eachFile(ctx, f.args, func(name string, r io.Reader) error {
		h.Reset()
		if _, err := io.Copy(h, r); err != nil {
			return err
		}
		return c.println(hex.EncodeToString(h.Sum(nil)) + "  " + name)
	})
}

func (c *Call) checkSums(ctx context.Context, lists []string, h hash.Hash) int {
	wrong := 0
	status := c.eachFile(ctx, lists, func(_ string, r io.Reader) error {
		return lines(r, func(line string, _ bool) error {
			want, name, ok := strings.Cut(line, " ")
			if !ok || len(want) != h.Size()*2 || name == "" {
				wrong++
				c.errorf("cannot check %q: not a digest and a name", line)
				return nil
			}
			name = name[1:]
			h.Reset()
			file, err := c.open(ctx, name)
			if err == nil {
				_, err = io.Copy(h, file)
				file.Close()
			}
			verdict := "OK"
			if err != nil || hex.EncodeToString(h.Sum(nil)) != strings.ToLower(want) {
				verdict = "FAILED"
				wrong++
			}
			return c.println(name + ": " + verdict)
		})
	})
	if wrong > 0 {
		return statusError
	}
	return status
}
