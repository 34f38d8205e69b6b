package sessiondir

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
)

// noteSize is how long the text in a lock file is, always: it is replaced by one
// write, without a truncation that could be seen.
const noteSize = 128

// blankNote takes the place of a note: its holder must be able to write it on a
// full disk.
func blankNote() []byte { return bytes.Repeat([]byte(" "), noteSize) }

// LockGuardian takes the lock that proves that a guardian lives. ok is false when
// another one has it. It is free again when the file and all its duplicates are
// closed. The file must never be removed.
func (d *Dir) LockGuardian() (f *os.File, ok bool, err error) {
	f, err = d.openLock(GuardianLock, unix.O_RDWR)
	if err != nil {
		return nil, false, err
	}
	ok, err = procs.Lock(f)
	if err != nil || !ok {
		f.Close()
		return nil, false, err
	}
	return f, true, nil
}

// OpenOwnerLock opens owner.lock and does not lock it: the guardian does, before
// it forks the owner that inherits it.
func (d *Dir) OpenOwnerLock() (*os.File, error) {
	return d.openLock(OwnerLock, unix.O_RDWR)
}

func (d *Dir) openLock(name string, flags int) (*os.File, error) {
	f, err := openFile(d.dir, name, flags)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.missing(d.boot.Session, name)
	}
	return f, err
}

// note is the text in a lock file.
type note struct {
	id procs.Identity
	// mark is the revision that a guardian has shown to anybody, and of an owner how
	// many processes the machine had made before it (procs.Forks).
	mark uint64
}

// NoteHolder writes into a lock file, which the caller holds, who holds it. mark is,
// for a guardian, the revision that it has shown: a later one counts on from there,
// also where it could not be committed; for an owner, procs.Forks of before it was
// made. It works on a full disk. It is not made durable: after a restart of the
// machine nobody holds a lock.
func NoteHolder(f *os.File, id procs.Identity, mark uint64) error { return note{id, mark}.write(f) }

// OwnerBorn is what was noted with the owner, the latest one, alive or not: 0 if
// nothing was.
func (d *Dir) OwnerBorn() (forks uint64, err error) {
	n, err := d.lastNote(OwnerLock)
	return n.mark, err
}

func (n note) write(f *os.File) error {
	text := fmt.Sprintf("%d %d %s %d", n.id.PID, n.id.Start, n.id.Boot, n.mark)
	text = fmt.Sprintf("%s %08x", text, crc32.ChecksumIEEE([]byte(text)))
	if len(text) >= noteSize {
		return fmt.Errorf("cannot note the holder of %s: the boot id is too long", f.Name())
	}
	text += strings.Repeat(" ", noteSize-len(text)-1) + "\n"
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("cannot note the holder of %s: %w", f.Name(), err)
	}
	return nil
}

// Holder tells whether a lock file, GuardianLock or OwnerLock, is held, and by
// which living process. It takes nothing. The identity is zero when the holder has
// not noted itself (yet): what an earlier holder has noted is not given.
func (d *Dir) Holder(name string) (id procs.Identity, held bool, err error) {
	f, err := d.openLock(name, unix.O_RDONLY)
	if err != nil {
		return procs.Identity{}, false, err
	}
	defer f.Close()
	held, err = procs.Locked(f)
	if err != nil || !held {
		return procs.Identity{}, false, err
	}
	n, err := readNote(f)
	if err != nil {
		return procs.Identity{}, false, err
	}
	if !n.id.Alive() {
		return procs.Identity{}, true, nil
	}
	return n.id, true, nil
}

// lastNote is what was last noted in a lock, held or not: zero if nobody did.
func (d *Dir) lastNote(name string) (note, error) {
	f, err := d.openLock(name, unix.O_RDONLY)
	if err != nil {
		return note{}, err
	}
	defer f.Close()
	return readNote(f)
}

// readNote gives nothing where the text is missing or torn: it may just be being
// written.
func readNote(f *os.File) (note, error) {
	var text [noteSize]byte
	n, err := f.ReadAt(text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return note{}, fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	return parseNote(string(text[:n])), nil
}

func parseNote(text string) note {
	text = strings.TrimRight(text, " \n")
	end := strings.LastIndexByte(text, ' ')
	if end < 0 || text[end+1:] != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text[:end]))) {
		return note{}
	}
	var n note
	if count, err := fmt.Sscanf(text[:end], "%d %d %s %d", &n.id.PID, &n.id.Start, &n.id.Boot, &n.mark); count != 4 || err != nil {
		return note{}
	}
	return n
}
