package cmds

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

func runMkdir(_ context.Context, c *Call) int {
	f, err := c.parse("pvm:", map[string]byte{"parents": 'p'})
	if err != nil || len(f.args) == 0 {
		return c.usage("%s", orText(err, "a directory is needed"))
	}
	status := statusOK
	for _, name := range f.args {
		if f.has('p') {
			err = c.makeAll(c.path(name))
		} else {
			err = c.Files.Mkdir(c.path(name), 0o777)
		}
		if err != nil {
			status = c.fileError("make", name, err)
		}
	}
	return status
}

// makeAll makes a directory and those above it.
func (c *Call) makeAll(full string) error {
	info, err := c.Files.Stat(full)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: full, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if above := path.Dir(full); above != full {
		if err := c.makeAll(above); err != nil {
			return err
		}
	}
	err = c.Files.Mkdir(full, 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody was faster
	}
	return err
}

func runRmdir(_ context.Context, c *Call) int {
	f, err := c.parse("", nil)
	if err != nil || len(f.args) == 0 {
		return c.usage("%s", orText(err, "a directory is needed"))
	}
	status := statusOK
	for _, name := range f.args {
		info, err := c.Files.Lstat(c.path(name))
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err == nil {
			err = c.Files.Remove(c.path(name))
		}
		if err != nil {
			status = c.fileError("remove", name, err)
		}
	}
	return status
}

func runTouch(_ context.Context, c *Call) int {
	f, err := c.parse("c", nil)
	if err != nil || len(f.args) == 0 {
		return c.usage("%s", orText(err, "a file is needed"))
	}
	status := statusOK
	for _, name := range f.args {
		full := c.path(name)
		err := c.Files.Chtimes(full, time.Now())
		if errors.Is(err, fs.ErrNotExist) {
			if f.has('c') {
				continue
			}
			var file io.Closer
			if file, err = c.Files.OpenFile(full, os.O_WRONLY|os.O_CREATE, 0o666); err == nil {
				err = file.Close()
			}
		}
		if err != nil {
			status = c.fileError("touch", name, err)
		}
	}
	return status
}

func runRm(ctx context.Context, c *Call) int {
	f, err := c.parse("rRfvd", map[string]byte{"recursive": 'r', "force": 'f'})
	if err != nil {
		return c.usage("%v", err)
	}
	if len(f.args) == 0 && !f.has('f') {
		return c.usage("a file is needed")
	}
	status := statusOK
	for _, name := range f.args {
		if base := path.Base(name); base == "." || base == ".." {
			status = c.fail("cannot remove %s: it names a directory by its place", name)
			continue
		}
		if err := c.remove(ctx, f, name); err != nil {
			status = statusError
		}
	}
	return status
}

// remove removes a name and with -r what is below it. It reports its errors
// and returns one of them.
func (c *Call) remove(ctx context.Context, f flags, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	full := c.path(name)
	info, err := c.Files.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) && f.has('f') {
		return nil
	}
	switch {
	case err != nil:
	case c.Files.IsMount(full):
		err = errors.New("it was given by the host; remove what is in it")
	case info.IsDir() && !f.has('r') && !f.has('R') && !f.has('d'):
		err = errors.New("is a directory (rm -r removes it)")
	}
	if err != nil {
		c.fileError("remove", name, err)
		return err
	}
	if info.IsDir() && !f.has('d') {
		list, err := c.Files.ReadDir(full)
		if err != nil {
			c.fileError("remove", name, err)
			return err
		}
		var failed error
		for _, e := range list {
			if err := c.remove(ctx, f, joinName(name, e.Name())); err != nil {
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
	}
	if err := c.Files.Remove(full); err != nil {
		c.fileError("remove", name, err)
		return err
	}
	if f.has('v') {
		c.println("removed " + name)
	}
	return nil
}

// targets splits operands into sources and, for each, where it goes.
func (c *Call) targets(operands []string) (from, to []string, err error) {
	if len(operands) < 2 {
		return nil, nil, errors.New("a source and a destination are needed")
	}
	from = operands[:len(operands)-1]
	dest := operands[len(operands)-1]
	info, statErr := c.Files.Stat(c.path(dest))
	isDir := statErr == nil && info.IsDir()
	if !isDir && (len(from) > 1 || strings.HasSuffix(dest, "/") && statErr == nil) {
		return nil, nil, errors.New(dest + " is not a directory")
	}
	for _, name := range from {
		if isDir {
			to = append(to, joinName(dest, path.Base(c.path(name))))
		} else {
			to = append(to, dest)
		}
	}
	return from, to, nil
}

func runCp(ctx context.Context, c *Call) int {
	f, err := c.parse("rRavfpn", map[string]byte{"recursive": 'r', "archive": 'a'})
	if err != nil {
		return c.usage("%v", err)
	}
	from, to, err := c.targets(f.args)
	if err != nil {
		return c.usage("%v", err)
	}
	status := statusOK
	for i := range from {
		if err := c.copyTree(ctx, f, from[i], to[i]); err != nil {
			status = statusError
		}
	}
	return status
}

// copyTree copies a file or, with -r, a directory. It reports its errors and
// returns one of them.
func (c *Call) copyTree(ctx context.Context, f flags, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	source, dest := c.path(from), c.path(to)
	info, err := c.Files.Stat(source)
	switch {
	case err != nil:
	case !info.IsDir():
		return c.copyFile(ctx, f, info, from, to)
	case !f.has('r') && !f.has('R') && !f.has('a'):
		err = errors.New("is a directory (cp -r copies it)")
	case dest == source || strings.HasPrefix(dest, strings.TrimSuffix(source, "/")+"/"):
		err = errors.New("cannot copy it into itself")
	}
	if err != nil {
		c.fileError("copy", from, err)
		return err
	}
	if err := c.Files.Mkdir(dest, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		c.fileError("make", to, err)
		return err
	}
	list, err := c.Files.ReadDir(source)
	if err != nil {
		c.fileError("read", from, err)
		return err
	}
	var failed error
	for _, e := range list {
		if err := c.copyTree(ctx, f, joinName(from, e.Name()), joinName(to, e.Name())); err != nil {
			failed = err
		}
	}
	if f.has('p') || f.has('a') {
		c.Files.Chtimes(dest, info.ModTime())
	}
	return failed
}

func (c *Call) copyFile(ctx context.Context, f flags, info fs.FileInfo, from, to string) error {
	dest := c.path(to)
	if old, err := c.Files.Stat(dest); err == nil {
		if f.has('n') {
			return nil
		}
		if dest == c.path(from) || c.same(info, old) {
			err := errors.New("it is the same file as " + to)
			c.fileError("copy", from, err)
			return err
		}
	}
	err := c.copyBytes(ctx, c.path(from), dest)
	if err != nil {
		c.fileError("copy", from, err)
		return err
	}
	if f.has('p') || f.has('a') {
		c.Files.Chtimes(dest, info.ModTime())
	}
	if f.has('v') {
		c.println(from + " -> " + to)
	}
	return nil
}

// same says whether two names lead to one file. A host that does not number
// its files gives all of them one number, the directory too: such an answer
// is worth nothing.
func (c *Call) same(a, b fs.FileInfo) bool {
	dir, err := c.Files.Stat(c.Dir)
	return err == nil && os.SameFile(a, b) && !os.SameFile(a, dir)
}

func (c *Call) copyBytes(ctx context.Context, from, to string) error {
	in, err := c.Files.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.Files.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, &input{ctx: ctx, call: c, from: in})
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

func runMv(ctx context.Context, c *Call) int {
	f, err := c.parse("fvn", map[string]byte{"force": 'f'})
	if err != nil {
		return c.usage("%v", err)
	}
	from, to, err := c.targets(f.args)
	if err != nil {
		return c.usage("%v", err)
	}
	status := statusOK
	for i := range from {
		if err := c.move(ctx, f, from[i], to[i]); err != nil {
			status = statusError
		}
	}
	return status
}

// move renames, or copies and removes between two given directories.
func (c *Call) move(ctx context.Context, f flags, from, to string) error {
	source, dest := c.path(from), c.path(to)
	info, err := c.Files.Lstat(source)
	if err == nil && f.has('n') {
		if _, err := c.Files.Lstat(dest); err == nil {
			return nil
		}
	}
	switch {
	case err != nil:
	case source == dest:
		err = errors.New("it is the same file as " + to)
	case info.IsDir() && strings.HasPrefix(dest, source+"/"):
		err = errors.New("cannot move it into itself")
	default:
		err = c.Files.Rename(source, dest)
	}
	if errors.Is(err, syscall.EXDEV) {
		all := flags{values: map[byte][]string{'r': {""}, 'a': {""}, 'f': {""}}}
		if err = c.copyTree(ctx, all, from, to); err == nil {
			err = c.remove(ctx, all, from)
		}
		return err
	}
	if err != nil {
		c.fileError("move", from, err)
		return err
	}
	if f.has('v') {
		c.println(from + " -> " + to)
	}
	return nil
}
