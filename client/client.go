package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// guardianName is the executable that serves one session.
const guardianName = "mur-guardian"

// listing bounds how many guardians List asks at once.
const listing = 16

// Options say where sessions live and with what they are served.
type Options struct {
	// Root is the state directory; it is made, private, when missing.
	Root string
	// Bin is the directory of mur-guardian. Empty: beside the running
	// executable, else in PATH.
	Bin string
}

// Client reaches the sessions of one state directory. It may be used by several
// goroutines.
type Client struct {
	root *sessiondir.Root
	bin  string
}

// New opens the state directory.
func New(o Options) (*Client, error) {
	if o.Root == "" {
		return nil, errors.New("cannot open the state directory: no path given")
	}
	path, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, fmt.Errorf("cannot open the state directory: %w", err)
	}
	root, err := sessiondir.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Client{root: root, bin: o.Bin}, nil
}

// Close gives the state directory back. Sessions that were opened stay open.
func (c *Client) Close() error { return c.root.Close() }

// CreateOptions describe a new session.
type CreateOptions struct {
	// Op is the id of this creation; the zero value makes a fresh one. The same
	// id always means the same session.
	Op MutationID
	// Name is what people call it; it may be empty.
	Name string
	// Size is the terminal's size until somebody attaches; nil: 80x24.
	Size *Size
}

// Create makes a session in state new and starts its guardian. It may be
// repeated with the same Op at any time, also after a crash in the middle: the
// session that exists is opened.
func (c *Client) Create(ctx context.Context, o CreateOptions) (*Session, error) {
	if o.Op == (MutationID{}) {
		o.Op = NewMutationID()
	}
	dir, created, err := c.root.Create(o.Op, sessiondir.CreateOptions{Name: o.Name, Size: o.Size})
	if err != nil {
		return nil, createError(err)
	}
	s := newSession(c, dir)
	if !created {
		// Whatever it has become, its guardian is started when somebody needs it.
		if v, err := dir.Read(); err == nil && v.Snapshot.State != StateNew {
			return s, nil
		}
	}
	if err := s.ensureGuardian(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Open finds a session by its name, its id, or an unambiguous beginning of the
// id of at least four characters.
func (c *Client) Open(text string) (*Session, error) {
	id, err := c.root.Resolve(text)
	if err != nil {
		return nil, resolveError(text, err)
	}
	return c.open(id)
}

func (c *Client) open(id protocol.SessionID) (*Session, error) {
	dir, err := c.root.Open(id)
	if err != nil {
		return nil, resolveError(string(id), err)
	}
	return newSession(c, dir), nil
}

// IDs lists the ids of all sessions, oldest first.
func (c *Client) IDs() ([]string, error) {
	ids, err := c.root.List()
	if err != nil {
		return nil, err
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out, nil
}

// List tells about every session. Those that cannot be read are named in the
// error, beside what could be read.
func (c *Client) List(ctx context.Context) ([]Status, error) {
	ids, err := c.root.List()
	if err != nil {
		return nil, err
	}
	found := make([]*Status, len(ids))
	errs := make([]error, len(ids))
	slots := make(chan struct{}, listing)
	var readers sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		readers.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = c.status(ctx, id)
		})
	}
	readers.Wait()
	var out []Status
	for _, st := range found {
		if st != nil {
			out = append(out, *st)
		}
	}
	return out, errors.Join(errs...)
}

// status is nil for a session that was removed meanwhile.
func (c *Client) status(ctx context.Context, id protocol.SessionID) (*Status, error) {
	s, err := c.open(id)
	if CodeOf(err) == CodeNoSession {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	st, err := s.Snapshot(ctx)
	if errors.Is(err, sessiondir.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read session %s: %w", id, err)
	}
	return &st, nil
}

// guardian finds the executable.
func (c *Client) guardian() (string, error) {
	if c.bin != "" {
		return filepath.Join(c.bin, guardianName), nil
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), guardianName)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(guardianName)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor in PATH", guardianName)
	}
	return filepath.Abs(path)
}
