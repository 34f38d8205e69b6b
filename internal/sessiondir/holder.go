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

// NoteHolder writes into a lock file, which the caller holds, who holds it. It is
// not made durable: after a restart of the machine nobody does.
func NoteHolder(f *os.File, id procs.Identity) error {
	text := fmt.Sprintf("%d %d %s", id.PID, id.Start, id.Boot)
	text = fmt.Sprintf("%s %08x", text, crc32.ChecksumIEEE([]byte(text)))
	if len(text) >= noteSize {
		return fmt.Errorf("cannot note the holder of %s: the boot id is too long", f.Name())
	}
	note := text + strings.Repeat(" ", noteSize-len(text)-1) + "\n"
	if _, err := f.WriteAt([]byte(note), 0); err != nil {
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
	id, err = readNote(f)
	if err != nil {
		return procs.Identity{}, false, err
	}
	if !id.Alive() {
		id = procs.Identity{}
	}
	return id, true, nil
}

// lastBoot tells in which boot of the machine a lock was last held: "" if nobody
// noted it.
func (d *Dir) lastBoot(name string) (string, error) {
	f, err := d.openLock(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	id, err := readNote(f)
	return id.Boot, err
}

// readNote gives no identity where the text is missing or torn: it may just be
// being written.
func readNote(f *os.File) (procs.Identity, error) {
	var note [noteSize]byte
	n, err := f.ReadAt(note[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return procs.Identity{}, fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	id, _ := parseNote(string(note[:n]))
	return id, nil
}

func parseNote(text string) (procs.Identity, bool) {
	text = strings.TrimRight(text, " \n")
	end := strings.LastIndexByte(text, ' ')
	if end < 0 || text[end+1:] != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text[:end]))) {
		return procs.Identity{}, false
	}
	var id procs.Identity
	n, err := fmt.Sscanf(text[:end], "%d %d %s", &id.PID, &id.Start, &id.Boot)
	if n != 3 || err != nil {
		return procs.Identity{}, false
	}
	return id, true
}
