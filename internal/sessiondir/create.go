package sessiondir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// makeRetries bounds how often a creation begins again because others cleared
// its unfinished directory away (see maker) or won and were purged meanwhile.
const makeRetries = 100

var errSwept = errors.New("the unfinished directory was cleared away")

// CreateOptions is what a session is created with besides its id.
type CreateOptions struct {
	Name string         // none: ""
	Size *protocol.Size // not known yet: nil
}

// Create makes the session of the operation id, or opens it if it is there;
// created tells which. A session that is there with another name or size is a
// *ConflictError, a name that another session has a *NameTakenError, and an
// impossible name ErrBadName: then nothing was left behind.
func (r *Root) Create(id protocol.MutationID, o CreateOptions) (d *Dir, created bool, err error) {
	session := protocol.NewSessionID(id)
	if id == (protocol.MutationID{}) {
		return nil, false, errors.New("cannot create a session: the nil UUID names nothing")
	}
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return nil, false, err
		}
	}
	if err := checkSize(o.Size); err != nil {
		return nil, false, err
	}
	r.clearLeftovers()
	for range makeRetries {
		d, err := r.reuse(session, o)
		if err == nil || !errors.Is(err, ErrNotFound) {
			return d, false, err
		}
		err = r.createNew(session, o)
		if errors.Is(err, errSwept) || errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		d, err = r.Open(session)
		return d, err == nil, err
	}
	return nil, false, fmt.Errorf("cannot create session %s: %w every time", session, errSwept)
}

// reuse opens the session that an earlier or faster creation has made.
func (r *Root) reuse(id protocol.SessionID, o CreateOptions) (*Dir, error) {
	d, err := r.Open(id)
	if err != nil {
		return nil, err
	}
	have := d.Bootstrap()
	switch {
	case have.Name != o.Name:
		err = &ConflictError{Session: id, What: "name"}
	case (have.Size == nil) != (o.Size == nil), have.Size != nil && *have.Size != *o.Size:
		err = &ConflictError{Session: id, What: "size"}
	default:
		// The winner may not have come so far yet.
		err = durable.SyncDir(r.sessions)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// createNew makes a session that is not there: errSwept or fs.ErrExist if it is
// to be tried again.
func (r *Root) createNew(id protocol.SessionID, o CreateOptions) error {
	if o.Name != "" {
		// Most refusals need no directory. The one that counts is made again
		// under the lock.
		if err := r.checkFree(o.Name, id); err != nil {
			return err
		}
	}
	m := maker{root: r, id: id, temp: newPrefix + string(id) + "." + randomText()}
	err := m.make(o)
	if err == nil {
		err = m.publish(o.Name)
	}
	return m.finish(err)
}

func randomText() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// maker makes one unfinished directory. While it works it holds the directory's
// guardian.lock, by which clearLeftovers knows that it lives. There are two short
// moments in which it does not: before the lock is made, and right before the
// rename, as under its final name the directory must never show a guardian that
// does not exist. If it is cleared away just then, the rename finds nothing, and
// the maker begins again; both sides rename, so only one can have it.
type maker struct {
	root *Root
	id   protocol.SessionID
	temp string
	dir  *os.File
	lock *os.File
}

func (m *maker) make(o CreateOptions) (err error) {
	m.dir, err = makeDir(m.root.sessions, m.temp)
	if errors.Is(err, fs.ErrNotExist) {
		return errSwept // between mkdir and open
	}
	if err != nil {
		return err
	}
	if m.lock, err = createFile(m.dir, GuardianLock, blankNote()); err != nil {
		return err
	}
	if ok, err := procs.Lock(m.lock); err != nil || !ok {
		return errors.Join(err, errSwept)
	}
	owner, err := createFile(m.dir, OwnerLock, blankNote())
	if err != nil {
		return err
	}
	defer owner.Close()
	output, err := makeDir(m.dir, OutputDir)
	if err != nil {
		return err
	}
	defer output.Close()
	data, err := protocol.Marshal(newBootstrap(m.id, o))
	if err != nil {
		return err
	}
	bootstrap, err := createFile(m.dir, BootstrapFile, data)
	if err != nil {
		return err
	}
	defer bootstrap.Close()
	// The bootstrap goes first: its sync takes the others along on most file
	// systems, and theirs are then nearly free.
	for _, f := range []*os.File{bootstrap, m.lock, owner, output, m.dir} {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("cannot sync %s: %w", f.Name(), err)
		}
	}
	return nil
}

// createFile makes a file in a directory that is not published yet.
func createFile(dir *os.File, name string, data []byte) (*os.File, error) {
	f, err := openFile(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	return f, nil
}

// publish gives the directory its final name, under names.lock if it has a name
// of its own: a kill anywhere leaves a name without a session, or both.
func (m *maker) publish(name string) error {
	if name == "" {
		return m.rename()
	}
	lock, err := m.root.lockNames()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := m.root.claim(name, m.id); err != nil {
		return err
	}
	err = m.rename()
	if err != nil {
		// Unless it is that of a faster creation with the same id and name.
		if holder, lookErr := m.root.holderOf(name, false); lookErr != nil || holder != m.id {
			_ = m.root.release(name, m.id)
		}
	}
	return err
}

func (m *maker) rename() error {
	if err := procs.Unlock(m.lock); err != nil {
		return err
	}
	if err := renameNew(m.root.sessions, m.temp, string(m.id)); err != nil {
		return fmt.Errorf("cannot create session %s: %w", m.id, err)
	}
	return durable.SyncDir(m.root.sessions)
}

// finish closes what is open and, after a failure, removes what was made. A
// failure beside a directory that is no longer there is errSwept.
func (m *maker) finish(err error) error {
	if err != nil && m.dir != nil {
		if !sameDir(m.root.sessions, m.temp, m.dir) && !sameDir(m.root.sessions, string(m.id), m.dir) {
			err = errSwept
		}
		_ = removeTree(m.root.sessions, m.temp)
	}
	for _, f := range []*os.File{m.lock, m.dir} {
		if f != nil {
			f.Close()
		}
	}
	return err
}

// sameDir tells whether name in parent is dir.
func sameDir(parent *os.File, name string, dir *os.File) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(int(parent.Fd()), name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstat(int(dir.Fd()), &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// renameNew renames within dir; fs.ErrExist if the new name is taken.
func renameNew(dir *os.File, from, to string) error {
	fd := int(dir.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		// Not on this file system. A rename never replaces a directory that has
		// something in it, and a session's always has.
		err = unix.Renameat(fd, from, fd, to)
	}
	if err == unix.ENOTEMPTY {
		err = unix.EEXIST
	}
	return err
}

// clearLeftovers removes what killed creations and purges have left. What cannot
// be removed is left to the next one: it is in nobody's way.
func (r *Root) clearLeftovers() {
	_ = durable.ClearTemps(r.names)
	names, err := readNames(r.sessions)
	if err != nil {
		return
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, newPrefix); ok && r.abandoned(name) {
			// Not removed under this name: its maker may be alive after all and
			// about to publish it.
			name = gonePrefix + rest + "." + randomText()
			if renameNew(r.sessions, newPrefix+rest, name) != nil {
				continue
			}
		}
		if strings.HasPrefix(name, gonePrefix) {
			_ = removeTree(r.sessions, name)
		}
	}
}

// abandoned tells whether nobody holds the lock of an unfinished directory. It
// is only asked for, as to hold it for a moment could be taken for a guardian.
func (r *Root) abandoned(name string) bool {
	dir, err := openDir(r.sessions, name)
	if err != nil {
		// Without the right to read it its maker came no further than mkdir.
		return errors.Is(err, fs.ErrPermission) && !errors.Is(err, ErrUnsafe)
	}
	defer dir.Close()
	lock, err := openFile(dir, GuardianLock, unix.O_RDONLY)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
	}
	defer lock.Close()
	held, err := procs.Locked(lock)
	return err == nil && !held
}
