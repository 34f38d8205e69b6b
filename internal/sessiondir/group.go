package sessiondir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// GroupName is how the control group of a session's processes is called. Sessions of
// two state directories may have one id (both were made with one operation id), so
// the directory itself, which must be open, counts too.
func GroupName(id protocol.SessionID, dir *os.File) (string, error) {
	var st unix.Stat_t
	if err := onDescriptor(dir, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return "", fmt.Errorf("cannot look at the session's directory: %w", err)
	}
	return fmt.Sprintf("mur-%s-%x-%x", id, st.Dev, st.Ino), nil
}

// Group is the control group that the session's owner has made and recorded, or, where
// it died before it could record anything, would have made here. nil: there is none.
func (d *Dir) Group() (*cgroup.Group, error) {
	name, err := GroupName(d.boot.Session, d.dir)
	if err != nil {
		return nil, err
	}
	o, err := d.Outcome()
	if err != nil {
		return nil, err
	}
	if same, err := d.sameBoot(&View{}, o); err != nil || !same {
		return nil, err // none survives a restart of the machine
	}
	path := ""
	switch {
	case o != nil && filepath.Base(o.Cgroup) == name:
		path = o.Cgroup
	case o == nil:
		place, err := cgroup.Own()
		if err != nil || place.Dir == "" {
			return nil, err
		}
		path = filepath.Join(place.Dir, name)
	default:
		return nil, nil
	}
	g, err := cgroup.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return g, err
}

// DissolveGroup takes the session's control group away. Only of a session that has no
// owner any more.
func (d *Dir) DissolveGroup() error {
	g, err := d.Group()
	if err != nil || g == nil {
		return err
	}
	defer g.Close()
	return g.Dissolve()
}
