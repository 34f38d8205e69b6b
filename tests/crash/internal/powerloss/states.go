package powerloss

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/tests/crash/internal/tracer"
)

// policy says what becomes of bytes that were not synced.
type policy int

const (
	lost policy = iota
	whole
	half
	zeros
	policies
)

func (p policy) String() string {
	return [...]string{"lost", "there", "there up to the middle of the last", "zeros"}[p]
}

// content is a file's bytes under a policy.
func (n *node) content(p policy) []byte {
	edits := n.edits
	if len(edits) > 0 {
		switch p {
		case lost:
			edits = nil
		case half:
			edits = slices.Clone(edits)
			last := &edits[len(edits)-1]
			if last.cut {
				edits = edits[:len(edits)-1]
			} else {
				last.data = last.data[:len(last.data)/2]
			}
		case zeros:
			edits = slices.Clone(edits)
			for i := range edits {
				edits[i].data = make([]byte, len(edits[i].data))
			}
		}
	}
	b := n.synced
	if len(edits) > 0 {
		b = slices.Clone(b)
	}
	old := len(b) // bytes that still have their durable block
	for _, e := range edits {
		b = e.apply(b)
		if e.cut {
			old = min(old, len(b))
		}
	}
	if p == zeros {
		copy(b, n.synced[:old])
	}
	return b
}

func (e edit) apply(b []byte) []byte {
	if e.off < 0 {
		e.off = int64(len(b))
	}
	end := e.off + int64(len(e.data))
	if grown := end - int64(len(b)); grown > 0 {
		b = append(b, make([]byte, grown)...)
	}
	if e.cut {
		return b[:e.off]
	}
	copy(b[e.off:], e.data)
	return b
}

// State is what a power loss at one moment could leave.
type State struct {
	After string // the last call that had ended before it
	Began int    // so many calls had begun
	Names int    // of the changes of names that were not synced, so many survived
	Bytes string // what became of bytes that were not synced
	Said  []byte // all that the program had said before

	files []file
}

type file struct {
	path        string // below the root
	dir, socket bool
	data        []byte
}

func (s State) String() string {
	return fmt.Sprintf("power lost after %s, %d unsynced names kept, unsynced bytes %s", s.After, s.Names, s.Bytes)
}

// Lay makes the state below dir, which must be empty.
func (s State) Lay(dir string) error {
	for _, f := range s.files {
		path := filepath.Join(dir, f.path)
		var err error
		switch {
		case f.dir:
			err = os.Mkdir(path, 0o700)
		case f.socket:
			err = unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
		default:
			err = os.WriteFile(path, f.data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("cannot lay out a state: %w", err)
		}
	}
	return nil
}

// Recording is a run whose states can be asked for.
type Recording struct {
	disk *disk
}

// Begin looks at the directory that a run is about to change.
func Begin(root string) (*Recording, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("cannot begin a recording: %w", err)
	}
	r := &Recording{disk: newDisk(root)}
	if err := r.disk.load(); err != nil {
		return nil, fmt.Errorf("cannot begin a recording: %w", err)
	}
	return r, nil
}

// States gives every distinct state of the run to each, once. Two states are the
// same if nothing differs that matters, neither what had been said before nor any
// file whose base name is not among the volatile. It may be called once.
func (r *Recording) States(calls []tracer.Call, volatile []string, each func(State)) {
	d, seen := r.disk, map[[sha256.Size]byte]bool{}
	began := 0
	visit := func(after string) {
		for kept := 0; kept <= len(d.pending); kept++ {
			if kept > 0 && d.pending[kept-1].joined {
				continue // only half of a rename
			}
			for _, v := range d.variants() {
				s := State{After: after, Began: began, Names: kept, Bytes: v.String(), Said: d.said}
				key := d.collect(&s, kept, v, volatile)
				if !seen[key] {
					seen[key] = true
					s.Said = slices.Clone(d.said)
					each(s)
				}
			}
		}
	}
	visit("the start")
	for _, e := range inOrder(calls) {
		if e.begins {
			began++
			d.enter(e.call)
			if e.call.Name != "say" {
				continue
			}
		} else {
			d.leave(e.call)
		}
		if changes(e.call.Name) {
			visit(e.call.Site.String())
		}
	}
}

// event is the beginning or the end of a call.
type event struct {
	at     int
	begins bool
	call   *tracer.Call
}

func inOrder(calls []tracer.Call) []event {
	var out []event
	for i := range calls {
		c := &calls[i]
		out = append(out, event{c.Entered, true, c})
		if c.Done {
			out = append(out, event{c.Left, false, c})
		}
	}
	slices.SortFunc(out, func(a, b event) int { return a.at - b.at })
	return out
}

func changes(name string) bool {
	switch name {
	case "lock", "unlock", "fork", "signal", "send", "chmod":
		return false
	}
	return true
}

// variant is a policy for all files, or for all but one.
type variant struct {
	all    policy
	except *node
	other  policy
	name   string
}

func (v variant) String() string {
	if v.except == nil {
		return v.all.String()
	}
	return fmt.Sprintf("%v, those of %s %v", v.all, v.name, v.other)
}

func (v variant) of(n *node) policy {
	if n == v.except {
		return v.other
	}
	return v.all
}

func (d *disk) variants() []variant {
	var out []variant
	for p := range policies {
		out = append(out, variant{all: p})
	}
	for _, name := range d.unsynced(d.top, "", nil) {
		dir, base := d.find(filepath.Join(d.root, name))
		n := dir.names[base]
		out = append(out, variant{whole, n, lost, name}, variant{lost, n, whole, name})
	}
	return out
}

// unsynced lists the files with bytes that were not synced.
func (d *disk) unsynced(dir *node, path string, out []string) []string {
	for _, name := range slices.Sorted(maps.Keys(dir.names)) {
		n := dir.names[name]
		if n.dir {
			out = d.unsynced(n, filepath.Join(path, name), out)
		} else if len(n.edits) > 0 {
			out = append(out, filepath.Join(path, name))
		}
	}
	return out
}

// collect fills in the state's files, directories first, and returns what tells it
// from others.
func (d *disk) collect(s *State, kept int, v variant, volatile []string) [sha256.Size]byte {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n%s", len(d.said), d.said)
	names := map[*node]map[string]*node{}
	of := func(dir *node) map[string]*node {
		if names[dir] == nil {
			names[dir] = maps.Clone(dir.kept)
		}
		return names[dir]
	}
	for _, c := range d.pending[:kept] {
		c.apply(of(c.dir))
	}
	var walk func(dir *node, path string)
	walk = func(dir *node, path string) {
		entries := of(dir)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			n := entries[name]
			f := file{path: filepath.Join(path, name), dir: n.dir, socket: n.socket}
			if !n.dir && !n.socket {
				f.data = n.content(v.of(n))
			}
			s.files = append(s.files, f)
			if !slices.Contains(volatile, name) {
				fmt.Fprintf(sum, "%s %v %d\n", f.path, f.dir, len(f.data))
				sum.Write(f.data)
			}
			if n.dir {
				walk(n, f.path)
			}
		}
	}
	walk(d.top, "")
	return [sha256.Size]byte(sum.Sum(nil))
}
