package sessiondir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func watch(t testing.TB, d *Dir) *Watcher {
	t.Helper()
	w, err := d.Watch(context.Background())
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// until reads and waits as every user of a watcher does.
func until(t testing.TB, d *Dir, w *Watcher, reached func(*View) bool) {
	t.Helper()
	ctx := bounded(t)
	for {
		v := read(t, d)
		if reached(v) {
			return
		}
		if err := w.Wait(ctx); err != nil {
			t.Fatalf("%v; last seen %+v", err, v)
		}
	}
}

func quiet(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing happened and Wait gives %v", err)
	}
}

func TestEveryChangeEndsAWait(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	w := watch(t, d)
	k := keep(t, d)
	settle := func(what string) {
		t.Helper()
		if err := w.Wait(bounded(t)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for done := false; !done; { // what else it caused
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			done = w.Wait(ctx) != nil
			cancel()
		}
	}
	quiet(t, w)
	k.step(adopt())
	settle("a journal appears")
	k.step(reserve())
	settle("an append to a journal that was just made")
	rewritten := k.journal
	entry, err := EncodeEntry(Entry{Life: &k.life})
	must(t, err)
	k.journal, err = journal.Rewrite(d.File(), JournalFile, [][]byte{entry})
	must(t, err)
	rewritten.Close()
	settle("a compaction")
	k.step(spawned())
	settle("an append to a compacted journal")
	k.owner(lifecycle.OutcomeRecord{Launching: true})
	settle("an outcome appears")
	k.owner(lifecycle.OutcomeRecord{Running: self(t)})
	settle("an append to the outcome")
	k.lock(OwnerLock)
	quiet(t, w) // nobody can see that, and nobody needs to until it is noted
	must(t, NoteHolder(k.locks[OwnerLock], mustSelf(t), 0))
	settle("a holder notes itself")
	k.unlock(OwnerLock)
	settle("a lock is given back")
	must(t, os.WriteFile(filepath.Join(d.Path(), GuardianLog), []byte("x\n"), 0o600))
	quiet(t, w)
}

func TestDeathOfAHolderEndsAWait(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	w := watch(t, d)
	for _, lock := range []string{GuardianLock, OwnerLock} {
		live := func(v *View) bool { return v.GuardianLive || v.OwnerLive }
		for _, note := range []string{"note", "mute", "note", "mute", "note", "mute"} {
			c := spawn(t, "hold", d.Path(), lock, note)
			if note == "note" {
				until(t, d, w, live)
			} else if !live(read(t, d)) {
				t.Fatal("not held")
			}
			go c.kill()
			until(t, d, w, func(v *View) bool { return !live(v) })
		}
	}
	// It may have lived before the watcher did.
	c := spawn(t, "hold", d.Path(), OwnerLock, "note")
	late := watch(t, d)
	c.kill()
	must(t, late.Wait(bounded(t)))
	until(t, d, w, func(v *View) bool { return !v.OwnerLive })
}

// The kernel tells of the closing before it gives the lock back (__fput): a reader
// may look between the two.
func TestALockThatIsFreeOnlyAfterItsClosingWasReadEndsAWait(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.lock(OwnerLock)
	w := watch(t, d)
	f, err := os.OpenFile(filepath.Join(d.Path(), OwnerLock), os.O_WRONLY, 0)
	must(t, err)
	f.Close()
	must(t, w.Wait(bounded(t)))
	if !read(t, d).OwnerLive {
		t.Fatal("not held")
	}
	must(t, procs.Unlock(k.locks[OwnerLock])) // nothing tells of it
	must(t, w.Wait(bounded(t)))
	if read(t, d).OwnerLive {
		t.Error("still held")
	}
}

func TestNoChangeIsLostBetweenReadAndWait(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	k := keep(t, d)
	k.lock(GuardianLock)
	const last = 200
	var wg sync.WaitGroup
	for range 4 {
		w := watch(t, d)
		wg.Go(func() {
			ctx := bounded(t)
			for {
				v, err := d.Read()
				if err == nil && v.Snapshot.Generation < last {
					err = w.Wait(ctx)
				} else if err == nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range last {
		k.step(adopt())
	}
	wg.Wait()
}

func TestGrowingOutputEndsAWaitForIt(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	w, err := d.WatchOutput(t.Context())
	must(t, err)
	defer w.Close()
	plain := watch(t, d)
	f, err := os.OpenFile(filepath.Join(d.Path(), OutputDir, "0000000000000000.seg"), os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	defer f.Close()
	for range 3 {
		must(t, w.Wait(bounded(t)))
		quiet(t, w)
		_, err := f.WriteString("x")
		must(t, err)
	}
	must(t, w.Wait(bounded(t)))
	quiet(t, plain)
	keep(t, d).step(adopt())
	must(t, w.Wait(bounded(t)))
}

func TestPurgeEndsAWait(t *testing.T) {
	r := newRoot(t)
	d := create(t, r, newID(), CreateOptions{})
	retire(t, d)
	w := watch(t, d)
	quiet(t, w)
	must(t, r.Purge(d.ID()))
	must(t, w.Wait(bounded(t)))
	if _, err := d.Read(); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestWaitEndsWithItsContextAndWithClose(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	w, err := d.Watch(ctx)
	must(t, err)
	quiet(t, w)
	done := make(chan error, 1)
	go func() { done <- w.Wait(bounded(t)) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the watcher's context ends: %v", err)
	}
	w.Close()
	w = watch(t, d)
	go func() { done <- w.Wait(bounded(t)) }()
	w.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := w.Wait(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	// An expired context does not end the next wait.
	w = watch(t, d)
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	keep(t, d).step(adopt())
	must(t, w.Wait(bounded(t)))
}

func TestWaitersCostNoThreads(t *testing.T) {
	d := create(t, newRoot(t), newID(), CreateOptions{})
	ctx, cancel := context.WithCancel(bounded(t))
	threads := func() int { return pprof.Lookup("threadcreate").Count() }
	before := threads()
	var wg sync.WaitGroup
	for range 30 {
		w := watch(t, d)
		wg.Go(func() { _ = w.Wait(ctx) })
	}
	keep(t, d).step(adopt())
	cancel()
	wg.Wait()
	if after := threads(); after > before+10 {
		t.Errorf("%d threads before, %d after", before, after)
	}
}

func TestRootWatcherNamesWhatChanges(t *testing.T) {
	r := newRoot(t)
	old := create(t, r, newID(), CreateOptions{})
	w, err := r.Watch(context.Background())
	must(t, err)
	defer w.Close()
	next := func(what string, want protocol.SessionID) {
		t.Helper()
		ctx := bounded(t)
		for {
			ids, err := w.Wait(ctx)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if slices.Contains(ids, want) {
				return
			}
		}
	}
	fresh := create(t, r, newID(), CreateOptions{})
	next("a session appears", fresh.ID())
	for _, d := range []*Dir{old, fresh} {
		k := keep(t, d)
		k.step(adopt())
		next("its journal appears", d.ID())
		k.step(lifecycle.Event{Kind: lifecycle.Retire, At: 1})
		next("its journal grows", d.ID())
		c := spawn(t, "hold", d.Path(), OwnerLock, "note")
		next("its owner appears", d.ID())
		go c.kill()
		ctx := bounded(t)
		for read(t, d).OwnerLive {
			_, err := w.Wait(ctx)
			must(t, err)
		}
		must(t, r.Purge(d.ID()))
		for {
			next("it is purged", d.ID())
			if err := opened1(r.Open(d.ID())); errors.Is(err, ErrNotFound) {
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		if _, err := w.Wait(ctx); errors.Is(err, context.Canceled) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	ended, err := r.Watch(ctx)
	must(t, err)
	cancel()
	if _, err := ended.Wait(bounded(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
