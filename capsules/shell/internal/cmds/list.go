package cmds

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8e62c83d/mur/capsules/shell/internal/width"
)

// entry is a file as ls shows it.
type entry struct {
	name string
	full string
	info fs.FileInfo
}

func runLs(ctx context.Context, c *Call) int {
	f, err := c.parse("laA1hrtSdRF", map[string]byte{"all": 'a', "human-readable": 'h'})
	if err != nil {
		return c.usage("%v", err)
	}
	names := f.args
	if len(names) == 0 {
		names = []string{"."}
	}
	status := statusOK
	var files, dirs []entry
	for _, name := range names {
		full := c.path(name)
		info, err := c.Files.Stat(full)
		if err != nil || f.has('d') {
			info, err = c.Files.Lstat(full)
		}
		if err != nil {
			status = c.fileError("list", name, err)
			continue
		}
		if e := (entry{name, full, info}); info.IsDir() && !f.has('d') {
			dirs = append(dirs, e)
		} else {
			files = append(files, e)
		}
	}
	order(f, files)
	order(f, dirs)
	c.show(f, files)
	for i, dir := range dirs {
		if i > 0 || len(files) > 0 {
			c.println("")
		}
		titled := len(names) > 1 || f.has('R')
		if got := c.listDir(ctx, f, dir, titled); got != statusOK {
			status = got
		}
	}
	return status
}

// listDir shows what is in a directory, and with -R what is in its own.
func (c *Call) listDir(ctx context.Context, f flags, dir entry, titled bool) int {
	if c.stopped(ctx) {
		return statusError
	}
	if titled {
		c.println(dir.name + ":")
	}
	list, err := c.Files.ReadDir(dir.full)
	if err != nil {
		return c.fileError("list", dir.name, err)
	}
	var found []entry
	if f.has('a') {
		for _, name := range []string{".", ".."} {
			if info, err := c.Files.Stat(path.Join(dir.full, name)); err == nil {
				found = append(found, entry{name, path.Join(dir.full, name), info})
			}
		}
	}
	for _, e := range list {
		if e.Name()[0] == '.' && !f.has('a') && !f.has('A') {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // gone since it was read
		}
		found = append(found, entry{e.Name(), path.Join(dir.full, e.Name()), info})
	}
	order(f, found)
	if f.has('l') {
		total := int64(0)
		for _, e := range found {
			total += blocks(e.info)
		}
		c.println("total " + sizeText(f, total*1024, total))
	}
	c.show(f, found)
	if !f.has('R') {
		return statusOK
	}
	status := statusOK
	for _, e := range found {
		if !e.info.IsDir() || e.name == "." || e.name == ".." {
			continue
		}
		c.println("")
		e.name = joinName(dir.name, e.name)
		if got := c.listDir(ctx, f, e, true); got != statusOK {
			status = got
		}
	}
	return status
}

// order sorts by name, or by time or size, newest and largest first.
func order(f flags, list []entry) {
	slices.SortStableFunc(list, func(a, b entry) int {
		by := 0
		switch {
		case f.has('t'):
			by = b.info.ModTime().Compare(a.info.ModTime())
		case f.has('S'):
			by = int(min(max(b.info.Size()-a.info.Size(), -1), 1))
		}
		if by == 0 {
			by = strings.Compare(a.name, b.name)
		}
		if f.has('r') {
			return -by
		}
		return by
	})
}

func (c *Call) show(f flags, list []entry) {
	switch {
	case f.has('l'):
		c.showLong(f, list)
	case c.Terminal != nil && !f.has('1'):
		shown := make([]string, len(list))
		for i, e := range list {
			shown[i] = printable(e.name) + mark(f, e)
		}
		cols, _ := c.Terminal.Size()
		c.out.WriteString(Columns(shown, cols))
	default:
		for _, e := range list {
			c.println(e.name + mark(f, e))
		}
	}
}

func mark(f flags, e entry) string {
	switch {
	case !f.has('F'):
	case e.info.IsDir():
		return "/"
	case e.info.Mode()&fs.ModeSymlink != 0:
		return "@"
	}
	return ""
}

// printable keeps a file's name from acting on the terminal.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7F && r < 0xA0 {
			return '?'
		}
		return r
	}, name)
}

func (c *Call) showLong(f flags, list []entry) {
	sizes := make([]string, len(list))
	widest := 0
	for i, e := range list {
		sizes[i] = sizeText(f, e.info.Size(), e.info.Size())
		widest = max(widest, len(sizes[i]))
	}
	for i, e := range list {
		name := e.name
		if c.Terminal != nil {
			name = printable(name)
		}
		name += mark(f, e)
		if e.info.Mode()&fs.ModeSymlink != 0 {
			if to, err := c.Files.Readlink(e.full); err == nil {
				name += " -> " + to
			}
		}
		when := e.info.ModTime().Local().Format("2006-01-02 15:04")
		c.println(fmt.Sprintf("%s %*s %s %s", modeText(e.info.Mode()), widest, sizes[i], when, name))
	}
}

// modeText is the mode in the letters of ls.
func modeText(mode fs.FileMode) string {
	kind := byte('-')
	switch {
	case mode.IsDir():
		kind = 'd'
	case mode&fs.ModeSymlink != 0:
		kind = 'l'
	case mode&fs.ModeCharDevice != 0:
		kind = 'c'
	case mode&fs.ModeDevice != 0:
		kind = 'b'
	case mode&fs.ModeNamedPipe != 0:
		kind = 'p'
	case mode&fs.ModeSocket != 0:
		kind = 's'
	}
	return string(kind) + mode.Perm().String()[1:]
}

// blocks is the space of a file in units of 1024 bytes.
func blocks(info fs.FileInfo) int64 {
	if info.IsDir() {
		return 0
	}
	return (info.Size() + 1023) / 1024
}

// sizeText is a size in bytes for people with -h, else plain.
func sizeText(f flags, bytes, plain int64) string {
	if !f.has('h') {
		return strconv.FormatInt(plain, 10)
	}
	return humanSize(bytes)
}

func humanSize(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	size, unit := float64(n), 0
	for size >= 1024 && unit < 5 {
		size /= 1024
		unit++
	}
	if size < 10 {
		return fmt.Sprintf("%.1f%c", size, "BKMGTP"[unit])
	}
	return fmt.Sprintf("%.0f%c", size, "BKMGTP"[unit])
}

// Columns lays names out for a terminal, down and then across.
func Columns(names []string, cols int) string {
	const gap = 2
	widest := 0
	for _, name := range names {
		widest = max(widest, width.String(name))
	}
	across := max(1, (cols+gap-1)/(widest+gap))
	down := (len(names) + across - 1) / across
	var b strings.Builder
	for row := range down {
		for at := row; at < len(names); at += down {
			b.WriteString(names[at])
			if at+down < len(names) {
				b.WriteString(strings.Repeat(" ", widest+gap-width.String(names[at])))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func runStat(_ context.Context, c *Call) int {
	f, err := c.parse("c:", map[string]byte{"format": 'c'})
	if err != nil || len(f.args) == 0 {
		return c.usage("%s", orText(err, "a file is needed"))
	}
	status := statusOK
	for _, name := range f.args {
		info, err := c.Files.Lstat(c.path(name))
		if err != nil {
			status = c.fileError("read", name, err)
			continue
		}
		if f.has('c') {
			c.println(statFormat(f.get('c'), name, info))
			continue
		}
		c.println(fmt.Sprintf("  File: %s\n  Size: %d\n  Type: %s\n  Mode: %04o/%s\nModify: %s", name, info.Size(),
			kindText(info.Mode()), info.Mode().Perm(), modeText(info.Mode()), info.ModTime().Local().Format(time.RFC3339Nano)))
	}
	return status
}

func statFormat(format, name string, info fs.FileInfo) string {
	return strings.NewReplacer(
		"%%", "%",
		"%n", name,
		"%s", strconv.FormatInt(info.Size(), 10),
		"%F", kindText(info.Mode()),
		"%a", strconv.FormatInt(int64(info.Mode().Perm()), 8),
		"%A", modeText(info.Mode()),
		"%Y", strconv.FormatInt(info.ModTime().Unix(), 10),
		"%y", info.ModTime().Local().Format(time.RFC3339Nano),
		`\n`, "\n",
	).Replace(format)
}

func kindText(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "regular file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeCharDevice != 0:
		return "character special file"
	}
	return "special file"
}

// orText is the error, or a text when there is none.
func orText(err error, text string) string {
	if err != nil {
		return err.Error()
	}
	return text
}

func runDu(ctx context.Context, c *Call) int {
	f, err := c.parse("shabc", nil)
	if err != nil {
		return c.usage("%v", err)
	}
	names := f.args
	if len(names) == 0 {
		names = []string{"."}
	}
	status := statusOK
	var total int64
	for _, name := range names {
		size, err := c.usageOf(ctx, f, name, true)
		if err != nil {
			status = c.fileError("read", name, err)
		}
		total += size
	}
	if f.has('c') {
		c.println(duSize(f, total) + "\ttotal")
	}
	return status
}

// usageOf adds up the bytes below a name and shows them as du does.
func (c *Call) usageOf(ctx context.Context, f flags, name string, top bool) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	info, err := c.Files.Lstat(c.path(name))
	if err != nil {
		return 0, err
	}
	size := info.Size()
	if info.IsDir() {
		size = 0
		list, err := c.Files.ReadDir(c.path(name))
		if err != nil {
			return 0, err
		}
		for _, e := range list {
			part, err := c.usageOf(ctx, f, joinName(name, e.Name()), false)
			if err != nil {
				c.fileError("read", joinName(name, e.Name()), err)
			}
			size += part
		}
	}
	if top || !f.has('s') && (info.IsDir() || f.has('a')) {
		c.println(duSize(f, size) + "\t" + name)
	}
	return size, nil
}

func duSize(f flags, bytes int64) string {
	if f.has('b') {
		return strconv.FormatInt(bytes, 10)
	}
	return sizeText(f, bytes, (bytes+1023)/1024)
}

// joinName puts a name below another the way the user wrote it.
func joinName(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }
