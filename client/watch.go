package client

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// pollPause is the pause between two looks where the kernel gives no more
// inotify instances.
const pollPause = 200 * time.Millisecond

// Watch gives the session's snapshots as they happen, from its files: no guardian
// is woken or needed. Only revisions after since are given, each at most once and
// in order; a reader that is slow misses some. The sequence ends after the first
// snapshot with the final record, or with the context's error.
func (s *Session) Watch(ctx context.Context, since uint64) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		seen := newest{since: since}
		err := s.follow(ctx, func(st Status) (bool, error) {
			if seen.news(st) && !yield(st, nil) {
				return true, nil
			}
			return st.State.Final(), nil
		})
		if err != nil {
			yield(Status{}, err)
		}
	}
}

// WaitEnd waits for the final record, by the files: it needs no guardian and is
// not concerned by the end of one.
func (s *Session) WaitEnd(ctx context.Context) (Status, error) {
	var end Status
	err := s.follow(ctx, func(st Status) (bool, error) {
		end = st
		return st.State.Final(), nil
	})
	return end, err
}

// WaitGone waits until no guardian lives, as after Retire.
func (s *Session) WaitGone(ctx context.Context) error {
	return s.follow(ctx, func(st Status) (bool, error) { return !st.GuardianAlive, nil })
}

// Purge removes the files of a retired session; its receipts are gone with them.
// A guardian that is about to leave is waited for.
func (s *Session) Purge(ctx context.Context) error {
	if err := s.WaitGone(ctx); err != nil {
		return err
	}
	err := s.client.root.Purge(s.dir.ID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // whoever made a session just now has cleared the rest of it away
	}
	return err
}

// newest lets each revision pass once.
type newest struct {
	since uint64
	begun bool
}

func (n *newest) news(st Status) bool {
	if st.Revision <= n.since && (n.begun || n.since > 0) {
		return false
	}
	n.begun, n.since = true, st.Revision
	return true
}

// follow reads the session whenever something happened to it, until look has
// seen enough.
func (s *Session) follow(ctx context.Context, look func(Status) (stop bool, err error)) error {
	// Watched before the first look: nothing can fall between.
	c, err := watchChanges(ctx, s.dir.Watch)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		st, err := s.fromFiles()
		if err != nil {
			return err
		}
		if stop, err := look(st); stop || err != nil {
			return err
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
}

// changes tells when to look again.
type changes struct {
	w *sessiondir.Watcher // nil: from time to time
}

func watchChanges(ctx context.Context, watch func(context.Context) (*sessiondir.Watcher, error)) (*changes, error) {
	w, err := watch(ctx)
	if errors.Is(err, unix.EMFILE) {
		return &changes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &changes{w: w}, nil
}

func (c *changes) wait(ctx context.Context) error {
	if c.w == nil {
		pause := pollPause
		return rest(ctx, &pause)
	}
	if err := c.w.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

func (c *changes) close() {
	if c.w != nil {
		c.w.Close()
	}
}

// WatchAll gives the snapshots of all sessions, those made later included, until
// the context ends.
func (c *Client) WatchAll(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		w, err := c.root.Watch(ctx)
		if err != nil {
			yield(Status{}, err)
			return
		}
		defer w.Close()
		a := &all{client: c, seen: make(map[protocol.SessionID]*newest)}
		ids, err := c.root.List()
		for err == nil {
			for _, id := range ids {
				if !a.look(id, yield) {
					return
				}
			}
			ids, err = w.Wait(ctx)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		yield(Status{}, err)
	}
}

// all remembers what was given of every session.
type all struct {
	client *Client
	seen   map[protocol.SessionID]*newest
}

func (a *all) look(id protocol.SessionID, yield func(Status, error) bool) bool {
	s, err := a.client.open(id)
	if err != nil {
		delete(a.seen, id)
		return CodeOf(err) == CodeNoSession || yield(Status{}, err)
	}
	defer s.Close()
	st, err := s.fromFiles()
	if errors.Is(err, sessiondir.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		delete(a.seen, id)
		return true
	}
	if err != nil {
		return yield(Status{}, err)
	}
	if a.seen[id] == nil {
		a.seen[id] = &newest{}
	}
	return !a.seen[id].news(st) || yield(st, nil)
}
