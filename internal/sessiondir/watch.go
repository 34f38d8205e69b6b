package sessiondir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Watcher tells when a session is worth another Read: its journal or outcome has
// changed, a guardian or an owner appeared or ended, or it was purged. What
// happens between two Waits ends the second one at once, so
//
//	w, err := d.Watch(ctx)
//	for { view, err := d.Read(); ...; err = w.Wait(ctx) }
//
// misses nothing. It may wake for nothing. It is one goroutine's; Close may come
// from any.
type Watcher struct {
	n    *notifier
	of   *watched
	stop func() bool
}

// Watch begins to watch the session; d has to stay open. The watcher is closed
// when ctx ends.
func (d *Dir) Watch(ctx context.Context) (*Watcher, error) {
	n, err := newNotifier(ctx)
	if err != nil {
		return nil, err
	}
	w := &Watcher{n: n}
	if w.of, err = n.follow(d); err != nil {
		n.close()
		return nil, err
	}
	// Whoever holds a lock now is armed now: an end before the first Wait counts.
	if err := n.arm(&hits{ids: make(map[protocol.SessionID]bool)}); err != nil {
		n.close()
		return nil, err
	}
	w.stop = context.AfterFunc(ctx, n.close)
	return w, nil
}

// WatchOutput is Watch that also wakes when the captured output has grown.
func (d *Dir) WatchOutput(ctx context.Context) (*Watcher, error) {
	w, err := d.Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.addOutput(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Watcher) addOutput() error {
	out, err := w.of.dir.Output()
	if err != nil {
		return err
	}
	defer out.Close() // the watch is on the directory, not on the descriptor
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	if w.n.ino < 0 {
		return w.n.waitError(context.Background(), nil)
	}
	return w.n.add(out, outputEvents, target{targetOutput, w.of})
}

// Wait returns nil at the next change. It ends early with ctx's error, or with
// os.ErrClosed after Close.
func (w *Watcher) Wait(ctx context.Context) error {
	_, err := w.n.wait(ctx)
	return err
}

// Close ends a Wait and gives the descriptors back.
func (w *Watcher) Close() error {
	w.stop()
	w.n.close()
	return nil
}

// RootWatcher tells which sessions of a state root are worth another look. It is
// one goroutine's; Close may come from any.
type RootWatcher struct {
	root *Root
	n    *notifier
	stop func() bool
	open map[protocol.SessionID]*Dir
}

// Watch begins to watch every session there is and will be, with one inotify
// instance for all of them: a user has only 128. r has to stay open. The watcher
// is closed when ctx ends.
func (r *Root) Watch(ctx context.Context) (*RootWatcher, error) {
	n, err := newNotifier(ctx)
	if err != nil {
		return nil, err
	}
	w := &RootWatcher{root: r, n: n, open: make(map[protocol.SessionID]*Dir)}
	w.stop = context.AfterFunc(ctx, w.release)
	n.mu.Lock()
	if n.ino >= 0 {
		err = n.add(r.sessions, rootEvents, target{kind: targetRoot})
	}
	if err == nil {
		err = w.followAll(&hits{ids: make(map[protocol.SessionID]bool)})
	}
	n.mu.Unlock()
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Wait returns the sessions that are new, changed or gone since the last Wait,
// as soon as there is one. It ends early with ctx's error, or with os.ErrClosed
// after Close. It may name a session to which nothing happened.
func (w *RootWatcher) Wait(ctx context.Context) ([]protocol.SessionID, error) {
	h, err := w.n.wait(ctx)
	if err != nil {
		return nil, err
	}
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	if h.all {
		for id := range w.open {
			h.add(id)
		}
		if err := w.followAll(h); err != nil {
			return nil, err
		}
	}
	for id := range h.ids {
		if err := w.refollow(id); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(h.ids)), nil
}

// followAll follows every session that is there and adds it to h. The sessions'
// directory is watched already, so that none is missed in between.
func (w *RootWatcher) followAll(h *hits) error {
	ids, err := w.root.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		h.add(id)
		if err := w.refollow(id); err != nil {
			return err
		}
	}
	return w.n.arm(h)
}

// refollow follows a session that is new and lets go of one that is gone. One
// that cannot be opened is left alone: the others go on, and whoever reads it
// learns why.
func (w *RootWatcher) refollow(id protocol.SessionID) error {
	if d := w.open[id]; d != nil {
		if d.checkPresent() == nil {
			return nil
		}
		w.n.forget(d)
		delete(w.open, id)
		d.Close()
	}
	if w.n.ino < 0 {
		return w.n.waitError(context.Background(), nil)
	}
	d, err := w.root.Open(id)
	var corrupt *CorruptError
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnsafe) || errors.As(err, &corrupt) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := w.n.follow(d); err != nil {
		d.Close()
		return fmt.Errorf("cannot watch session %s: %w", id, err)
	}
	w.open[id] = d
	return nil
}

// Close ends a Wait and gives the descriptors back.
func (w *RootWatcher) Close() error {
	w.stop()
	w.release()
	return nil
}

func (w *RootWatcher) release() {
	w.n.close()
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	for id, d := range w.open {
		d.Close()
		delete(w.open, id)
	}
}
