package cmds

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

func runDate(_ context.Context, c *Call) int {
	f, err := c.parse("ud:I", map[string]byte{"utc": 'u', "date": 'd'})
	if err != nil || len(f.args) > 1 {
		return c.usage("%s", orText(err, "one format at most"))
	}
	when := time.Now()
	if f.has('d') {
		if when, err = parseDate(f.get('d')); err != nil {
			return c.usage("%v", err)
		}
	}
	if f.has('u') {
		when = when.UTC()
	}
	format := "%a %b %e %H:%M:%S %Z %Y"
	if f.has('I') {
		format = "%Y-%m-%d"
	}
	if len(f.args) == 1 {
		given, ok := strings.CutPrefix(f.args[0], "+")
		if !ok {
			return c.usage("cannot set the clock; a format starts with +")
		}
		format = given
	}
	text, err := formatDate(when, format)
	if err != nil {
		return c.usage("%v", err)
	}
	c.println(text)
	return statusOK
}

// parseDate reads @SECONDS or the usual ways to write a date and a time.
func parseDate(text string) (time.Time, error) {
	if digits, ok := strings.CutPrefix(text, "@"); ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil {
			return time.Unix(n, 0), nil
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if when, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return when, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no date: @SECONDS or YYYY-MM-DD HH:MM:SS", text)
}

// formatDate fills in a format of date.
func formatDate(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02",
		'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01", 'M': "04", 'p': "PM", 'R': "15:04",
		'S': "05", 'T': "15:04:05", 'X': "15:04:05", 'x': "01/02/06", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		if i == len(format) {
			return "", fmt.Errorf("the format ends with %%")
		}
		if layout, ok := layouts[format[i]]; ok {
			b.WriteString(t.Format(layout))
			continue
		}
		switch format[i] {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		case 'N':
			fmt.Fprintf(&b, "%09d", t.Nanosecond())
		case 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case 'u':
			b.WriteString(strconv.Itoa((int(t.Weekday())+6)%7 + 1))
		case 'w':
			b.WriteString(strconv.Itoa(int(t.Weekday())))
		case 'V':
			_, week := t.ISOWeek()
			fmt.Fprintf(&b, "%02d", week)
		default:
			return "", fmt.Errorf("%%%c is not supported in a format", format[i])
		}
	}
	return b.String(), nil
}
