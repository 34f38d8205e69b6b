package sessiondir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	maxName   = 64
	idDigits  = 32
	idPrefix  = "ses_"
	hexDigits = "0123456789abcdef"

	// Names change hands in milliseconds: whoever holds their lock for longer is
	// stopped, and nobody waits for it for ever.
	namesPatience = 10 * time.Second
	namesRetry    = 2 * time.Millisecond
)

// CheckName tells whether name can be a session's name: 1 to 64 letters, digits,
// dots, underscores and dashes that neither begin with a dot or a dash nor look
// like a session's id. The error is ErrBadName.
func CheckName(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "it is empty"
	case len(name) > maxName:
		reason = fmt.Sprintf("it is longer than %d characters", maxName)
	case strings.IndexFunc(name, notInName) >= 0:
		reason = "it has other characters than letters, digits, dot, underscore and dash"
	case name[0] == '.' || name[0] == '-':
		reason = "it begins with a dot or a dash"
	case strings.HasPrefix(name, idPrefix), len(name) == idDigits && isHex(name):
		reason = "it looks like a session id"
	default:
		return nil
	}
	return fmt.Errorf("cannot use the name %q: %w: %s", name, ErrBadName, reason)
}

func notInName(c rune) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !letter && c != '.' && c != '_' && c != '-'
}

func isHex(s string) bool { return strings.Trim(s, hexDigits) == "" }

// lockNames takes names.lock; closing the file gives it back.
func (r *Root) lockNames() (*os.File, error) {
	f, err := openFile(r.dir, namesLock, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(namesPatience)
	defer patience.Stop()
	for {
		ok, err := procs.Lock(f)
		if ok {
			return f, nil
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		select {
		case <-time.After(namesRetry):
		case <-patience.C:
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", namesLock, ErrBusy)
		}
	}
}

// entryOf reads which session the entry of a name holds: "" if there is no
// entry, or one that holds no id and so belongs to nobody.
func (r *Root) entryOf(name string) (protocol.SessionID, error) {
	f, err := openBelow(r.names, name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Not checkFile: an entry that is just being made has its temporary's name too.
	if err := checkOurs(f, unix.S_IFREG); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return "", fmt.Errorf("cannot read the name %s: %w", name, err)
	}
	id, err := protocol.ParseSessionID(strings.TrimSuffix(string(data), "\n"))
	if err != nil {
		return "", nil
	}
	return id, nil
}

// holderOf tells which session has the name: "" if none, which is so too when
// the entry's session is gone, was made with another name (the entry was left by
// a creation that was killed), or, with live, is retired. A session that cannot
// be read keeps its name.
func (r *Root) holderOf(name string, live bool) (protocol.SessionID, error) {
	id, err := r.entryOf(name)
	if id == "" || err != nil {
		return "", err
	}
	d, err := r.Open(id)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return id, nil
	}
	defer d.Close()
	if d.boot.Name != name {
		return "", nil
	}
	if !live {
		return id, nil
	}
	view, err := d.Read()
	if errors.Is(err, ErrNotFound) || err == nil && view.Snapshot.State == lifecycle.Retired {
		return "", nil
	}
	return id, nil
}

// checkFree is a *NameTakenError if another session than id has the name.
func (r *Root) checkFree(name string, id protocol.SessionID) error {
	holder, err := r.holderOf(name, true)
	if err == nil && holder != "" && holder != id {
		err = &NameTakenError{Name: name, Holder: holder}
	}
	return err
}

// claim enters id under name. The caller holds names.lock; by that nobody else
// takes the entry of a session that is about to appear for that of one gone.
// Even a stranger that knows no lock does not lose a name it has entered: the
// entry is linked where there is none and replaced only where it is free.
func (r *Root) claim(name string, id protocol.SessionID) error {
	if err := r.checkFree(name, id); err != nil {
		return err
	}
	present, err := r.entryOf(name)
	if err != nil || present == id {
		return err
	}
	fill := func(f *os.File) error {
		err := widen(f, 0o600)
		if err == nil {
			_, err = f.WriteString(string(id) + "\n")
		}
		return err
	}
	f, err := durable.Create(r.names, name, fill)
	if errors.Is(err, fs.ErrExist) {
		f, err = durable.Replace(r.names, name, fill)
	}
	if err != nil {
		return fmt.Errorf("cannot take the name %s: %w", name, err)
	}
	return f.Close()
}

// release removes the entry of name if it is id's. The caller holds names.lock.
func (r *Root) release(name string, id protocol.SessionID) error {
	present, err := r.entryOf(name)
	if err != nil || present != id {
		return err
	}
	if err := unix.Unlinkat(int(r.names.Fd()), name, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("cannot give back the name %s: %w", name, err)
	}
	return durable.SyncDir(r.names)
}
