package sessiondir

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// BootstrapFormat is the version of the session directory that is made here.
const BootstrapFormat = 1

const (
	maxBootstrap = 64 << 10 // bytes
	secretSize   = 32       // bytes
	maxCells     = 65_535   // what TIOCSWINSZ can say
)

// Bootstrap is what a session is created with. It never changes.
type Bootstrap struct {
	Format  int                `json:"format"`
	Session protocol.SessionID `json:"session"`
	// ExecutionToken names this one execution, so that nobody talks to another
	// one made later under the same id.
	ExecutionToken []byte `json:"execution_token"`
	// Secret authenticates a client.
	Secret []byte `json:"secret"`
	// RefereeKey signs narrower credentials.
	RefereeKey []byte `json:"referee_key"`
	Created    int64  `json:"created"` // wall clock, nanoseconds since 1970
	Name       string `json:"name,omitempty"`
	// Size is the terminal's before the start says another.
	Size *protocol.Size `json:"size,omitempty"`
}

// FormatError is returned when a directory is of a version that is not known here.
type FormatError struct{ Format int }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the directory is of format %d, known is %d", e.Format, BootstrapFormat)
}

func newBootstrap(id protocol.SessionID, o CreateOptions) Bootstrap {
	return Bootstrap{
		Format: BootstrapFormat, Session: id,
		ExecutionToken: newSecret(), Secret: newSecret(), RefereeKey: newSecret(),
		Created: time.Now().UnixNano(), Name: o.Name, Size: o.Size,
	}
}

func newSecret() []byte {
	b := make([]byte, secretSize)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return b
}

// decodeBootstrap reads the format before the rest, as the rest may look
// different in another one. Errors name the field and never show a secret.
func decodeBootstrap(data []byte) (Bootstrap, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := protocol.Unmarshal(data, &head); err != nil {
		return Bootstrap{}, err
	}
	if head.Format != BootstrapFormat {
		return Bootstrap{}, &FormatError{head.Format}
	}
	var b Bootstrap
	if err := protocol.Unmarshal(data, &b); err != nil {
		return Bootstrap{}, err
	}
	if _, err := protocol.ParseSessionID(string(b.Session)); err != nil {
		return Bootstrap{}, err
	}
	for name, secret := range map[string][]byte{
		"execution_token": b.ExecutionToken, "secret": b.Secret, "referee_key": b.RefereeKey,
	} {
		if len(secret) != secretSize || bytes.Equal(secret, make([]byte, secretSize)) {
			return Bootstrap{}, fmt.Errorf("%s is not %d random bytes", name, secretSize)
		}
	}
	if b.Name != "" {
		if err := CheckName(b.Name); err != nil {
			return Bootstrap{}, err
		}
	}
	return b, checkSize(b.Size)
}

func checkSize(s *protocol.Size) error {
	if s != nil && (s.Cols < 1 || s.Rows < 1 || s.Cols > maxCells || s.Rows > maxCells) {
		return fmt.Errorf("cannot use the size %dx%d: want 1 to %d each", s.Cols, s.Rows, maxCells)
	}
	return nil
}

// readBootstrap reads the bootstrap of the session in dir.
func readBootstrap(dir *os.File, id protocol.SessionID) (Bootstrap, error) {
	f, err := openFile(dir, BootstrapFile, unix.O_RDONLY)
	if err != nil {
		return Bootstrap{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBootstrap+1))
	if err != nil {
		return Bootstrap{}, fmt.Errorf("cannot read %s: %w", BootstrapFile, err)
	}
	var b Bootstrap
	if len(data) > maxBootstrap {
		err = errors.New("it is longer than 64 KiB")
	} else if b, err = decodeBootstrap(data); err == nil && b.Session != id {
		err = fmt.Errorf("it is that of session %s", b.Session)
	}
	if err != nil {
		return Bootstrap{}, &CorruptError{Session: id, File: BootstrapFile, Err: err}
	}
	return b, nil
}
