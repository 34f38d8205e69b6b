// Package powerloss lays out what a power loss could leave of a recorded run.
//
// A kill keeps the page cache, so no kill can ever show a sync that is missing.
// Here the recorded calls are replayed on a disk that keeps only what POSIX
// promises:
//
//   - Bytes of a file survive once a sync of that file has returned. Bytes written
//     later are there, or missing, or there up to the middle of the last write, or
//     zeros of the right length where the file grew (delayed allocation; what has a
//     block is overwritten in it and is old or new); in all files alike, or only in
//     one.
//   - A name (created, renamed, linked, removed) survives once a sync of its
//     directory has returned. Of later changes of names any beginning may be there,
//     in the order of the calls, which is what file systems with a journal do.
//   - A sync of a file does not make its name durable. Some file systems do that;
//     nobody may rely on it.
//
// It owns no state between two calls and judges nothing: every distinct state is
// handed to a function.
package powerloss

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// edit is one change of a file's bytes that was not synced yet.
type edit struct {
	cut  bool  // to off
	off  int64 // -1: at the end
	data []byte
}

// node is a file, a directory or a socket.
type node struct {
	dir, socket bool
	synced      []byte
	edits       []edit           // not synced, oldest first
	past        int              // edits that were
	names       map[string]*node // of a directory, as the processes see it
	kept        map[string]*node // as the disk has it
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, kept: map[string]*node{}}
}

// change is one change of names that was not synced yet.
type change struct {
	dir  *node
	name string
	node *node // nil: removed
	// A rename is two changes, of which never only one survives.
	joined bool
}

func (c change) apply(to map[string]*node) {
	if c.node == nil {
		delete(to, c.name)
		return
	}
	to[c.name] = c.node
}

// disk replays the calls.
type disk struct {
	root    string
	top     *node
	inodes  map[uint64]*node
	pending []change // not synced, oldest first
	past    int      // changes that were
	said    []byte
	// syncs are those under way, with what they will have made durable: what was
	// there when they began.
	syncs map[int]sync
}

type sync struct {
	file  *node
	until int // edits of the file, or changes of names
}

func newDisk(root string) *disk {
	return &disk{root: root, top: newDir(), inodes: map[uint64]*node{}, syncs: map[int]sync{}}
}

// load takes what is below the root before the run as durable.
func (d *disk) load() error {
	return filepath.WalkDir(d.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == d.root {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		n := &node{}
		switch {
		case entry.IsDir():
			n = newDir()
		case entry.Type().IsRegular():
			if n.synced, err = os.ReadFile(path); err != nil {
				return err
			}
		default:
			n.socket = true
		}
		dir, name := d.find(path)
		dir.names[name], dir.kept[name] = n, n
		d.inodes[st.Ino] = n
		return nil
	})
}

// find gives the directory that a path is in, as of now, and its last element. A
// directory that is not there is nobody's.
func (d *disk) find(path string) (*node, string) {
	rel, err := filepath.Rel(d.root, path)
	at := d.top
	if err != nil || strings.HasPrefix(rel, "..") {
		return newDir(), path
	}
	steps := strings.Split(rel, "/")
	for _, step := range steps[:len(steps)-1] {
		if at = at.names[step]; at == nil || !at.dir {
			return newDir(), path
		}
	}
	return at, steps[len(steps)-1]
}

func (d *disk) put(c change) {
	c.apply(c.dir.names)
	d.pending = append(d.pending, c)
}

// enter is the beginning of a call, leave its end. A call has its effect at its
// end, but what was said counts from the beginning. Those that failed, and those
// that were only said to have happened, do nothing; neither do those that never
// returned.
func (d *disk) enter(c *tracer.Call) {
	switch c.Name {
	case "say":
		d.said = append(d.said, c.Data...)
	case "fsync", "fdatasync":
		d.beginSync(c)
	}
}

func (d *disk) leave(c *tracer.Call) {
	if c.Name == "say" || c.Ret < 0 || c.Faked {
		return
	}
	dir, name := d.find(c.Path)
	switch c.Name {
	case "open":
		d.open(c, dir, name)
	case "mkdir":
		d.put(change{dir: dir, name: name, node: newDir()})
	case "bind":
		d.put(change{dir: dir, name: name, node: &node{socket: true}})
	case "unlink":
		d.put(change{dir: dir, name: name})
	case "link":
		to, as := d.find(c.Path2)
		d.put(change{dir: to, name: as, node: dir.names[name]})
	case "rename":
		to, as := d.find(c.Path2)
		d.put(change{dir: to, name: as, node: dir.names[name], joined: true})
		d.put(change{dir: dir, name: name})
	case "write", "splice", "ftruncate", "fallocate":
		d.write(c)
	case "fsync", "fdatasync":
		d.endSync(c)
	}
}

func (d *disk) open(c *tracer.Call, dir *node, name string) {
	n := dir.names[name]
	if n == nil {
		n = &node{}
		d.put(change{dir: dir, name: name, node: n})
	} else if c.Flags&unix.O_TRUNC != 0 {
		n.edits = append(n.edits, edit{cut: true})
	}
	d.inodes[c.Inode] = n
}

func (d *disk) write(c *tracer.Call) {
	n := d.inodes[c.Inode]
	if n == nil {
		return
	}
	switch c.Name {
	case "ftruncate":
		n.edits = append(n.edits, edit{cut: true, off: c.Len})
	case "fallocate":
		if size := int64(len(n.content(whole))); c.Flags&unix.FALLOC_FL_KEEP_SIZE == 0 && c.Off+c.Len > size {
			n.edits = append(n.edits, edit{cut: true, off: c.Off + c.Len})
		}
	default:
		n.edits = append(n.edits, edit{off: c.Off, data: c.Data[:min(len(c.Data), int(c.Ret))]})
	}
}

func (d *disk) beginSync(c *tracer.Call) {
	if !c.Dir {
		if n := d.inodes[c.Inode]; n != nil {
			d.syncs[c.Entered] = sync{n, n.past + len(n.edits)}
		}
		return
	}
	dir := d.top
	if c.Path != d.root {
		above, name := d.find(c.Path)
		dir = above.names[name]
	}
	until := 0
	for i, p := range d.pending {
		if p.dir == dir {
			until = i + 1
			if p.joined {
				until++
			}
		}
	}
	d.syncs[c.Entered] = sync{nil, d.past + until}
}

func (d *disk) endSync(c *tracer.Call) {
	s, ok := d.syncs[c.Entered]
	if !ok {
		return
	}
	if n := s.file; n != nil {
		count := max(0, s.until-n.past)
		n.synced = slices.Clone(n.synced) // states have the old ones
		for _, e := range n.edits[:count] {
			n.synced = e.apply(n.synced)
		}
		n.edits, n.past = n.edits[count:], n.past+count
		return
	}
	count := max(0, s.until-d.past)
	for _, p := range d.pending[:count] {
		p.apply(p.dir.kept)
	}
	d.pending, d.past = d.pending[count:], d.past+count
}
