package client

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"slices"
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
	_ = s.dir.DissolveGroup() // the last who knows of it; of no use is a purge that fails over it
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
		if err := c.wait(ctx, st.recheck); err != nil {
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
	if noMoreWatches(err) {
		return &changes{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &changes{w: w}, nil
}

// wait returns at the next change, or after recheck if that is not 0.
func (c *changes) wait(ctx context.Context, recheck time.Duration) error {
	if c.w == nil {
		pause := pollPause
		return rest(ctx, &pause)
	}
	return within(ctx, recheck, c.w.Wait)
}

// within waits at most for the time given; 0: without a bound. That it is over is
// no error.
func within(ctx context.Context, bound time.Duration, wait func(context.Context) error) error {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if bound > 0 {
		limited, cancel = context.WithTimeout(ctx, bound)
	}
	defer cancel()
	switch err := wait(limited); {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return nil
	default:
		return err
	}
}

// noMoreWatches tells that the user's inotify instances or watches are used up
// (inotify(7)): then it is looked from time to time.
func noMoreWatches(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOSPC) }

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
		if err == nil {
			defer w.Close()
		} else if !noMoreWatches(err) {
			yield(Status{}, err)
			return
		}
		a := &all{client: c, seen: make(map[protocol.SessionID]*newest), behind: make(map[protocol.SessionID]bool)}
		ids, err := c.root.List()
		for err == nil {
			for _, id := range ids {
				if !a.look(id, yield) {
					return
				}
			}
			if ids, err = a.wait(ctx, w); noMoreWatches(err) {
				w.Close()
				w = nil
				ids, err = c.root.List()
			}
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
	// behind are to be looked at again at recheck though nothing happens.
	behind  map[protocol.SessionID]bool
	recheck time.Time
}

// wait returns the sessions that are worth another look: all of them, from time to
// time, where the kernel tells nothing (w is nil).
func (a *all) wait(ctx context.Context, w *sessiondir.RootWatcher) (ids []protocol.SessionID, err error) {
	if w == nil {
		pause := pollPause
		if err := rest(ctx, &pause); err != nil {
			return nil, err
		}
		return a.client.root.List()
	}
	var bound time.Duration
	if len(a.behind) > 0 {
		bound = max(time.Until(a.recheck), time.Nanosecond)
	}
	err = within(ctx, bound, func(ctx context.Context) error {
		ids, err = w.Wait(ctx)
		return err
	})
	if err == nil && len(ids) == 0 {
		ids = slices.Collect(maps.Keys(a.behind))
	}
	return ids, err
}

func (a *all) look(id protocol.SessionID, yield func(Status, error) bool) bool {
	delete(a.behind, id)
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
	if st.recheck > 0 {
		if len(a.behind) == 0 {
			a.recheck = time.Now().Add(st.recheck)
		}
		a.behind[id] = true
	}
	if a.seen[id] == nil {
		a.seen[id] = &newest{}
	}
	return !a.seen[id].news(st) || yield(st, nil)
}
