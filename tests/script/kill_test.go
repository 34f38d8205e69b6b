package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	fewKills, manyKills = 25, 200
	// fewLines and manyLines are how far a session counts.
	fewLines, manyLines = 300_000, 5_000_000
	// longTime bounds one session.
	longTime = 3 * time.Minute
)

// counting is a session that counts, and everybody who follows it.
type counting struct {
	*bench
	s     *client.Session
	dir   *sessiondir.Dir
	lines int

	ctx      context.Context
	readers  sync.WaitGroup
	attached shown
	waited   client.Status
	watched  []client.Status
	told     []client.Update

	mu     sync.Mutex // guards faults
	faults []error
}

// shown is what an attacher got.
type shown struct {
	output bytes.Buffer
	gap    bool
	end    *client.EndFrame
}

func (c *counting) fault(who string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Errorf("%s: %w", who, err))
}

// count starts a session that counts to lines and exits with 7.
func (b *bench) count(lines int) *counting {
	b.t.Helper()
	return b.countBy(fmt.Sprintf("seq 1 %d; exit 7", lines), lines)
}

func (b *bench) countBy(script string, lines int) *counting {
	b.t.Helper()
	op := client.NewMutationID()
	_, status, err := b.mur("start", "-d", "--op", op.String(), "--history", "64MiB", "--", "sh", "-c", script)
	if err != nil || status != 0 {
		b.t.Fatalf("start: %d, %v", status, err)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	dir, err := sessiondir.Open(s.Dir())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { dir.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), longTime)
	b.t.Cleanup(cancel)
	c := &counting{bench: b, s: s, dir: dir, lines: lines, ctx: ctx}
	c.follow()
	return c
}

// follow connects an attacher, a waiter, a watcher and a subscriber.
func (c *counting) follow() {
	var zero int64
	a, err := c.s.Attach(c.ctx, client.AttachOptions{Since: &zero})
	if err != nil {
		c.t.Fatal(err)
	}
	c.readers.Go(func() {
		for f, err := range a.Frames() {
			switch {
			case err != nil:
				c.fault("attacher", err)
			case f.Output != nil:
				c.attached.output.Write(f.Output.Bytes)
			case f.Gap != nil:
				c.attached.gap = true
			case f.End != nil:
				c.attached.end = f.End
			}
		}
	})
	c.readers.Go(func() {
		st, err := c.s.WaitEnd(c.ctx)
		if c.waited = st; err != nil {
			c.fault("waiter", err)
		}
	})
	c.readers.Go(func() {
		for st, err := range c.s.Watch(c.ctx, 0) {
			if err != nil {
				c.fault("watcher", err)
				return
			}
			c.watched = append(c.watched, st)
		}
	})
	c.readers.Go(func() {
		for u, err := range c.s.Subscribe(c.ctx, client.SubscribeOptions{}) {
			if err != nil {
				c.fault("subscriber", err)
				return
			}
			c.told = append(c.told, u)
		}
	})
}

// end is the offset after what was captured.
func (c *counting) end() (int64, error) {
	dir, err := c.dir.Output()
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	r, err := output.OpenReader(dir)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	_, end, err := r.Bounds()
	return end, err
}

// pause waits for d, or the session's end.
func (c *counting) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// loss is how long a killed guardian was missed.
type loss struct {
	captured, replaced time.Duration // 0: the session had ended before
}

// killOne kills the guardian and measures until the log grows again, whoever
// captures, and until another guardian holds the lock. false: the session is over.
func (c *counting) killOne() (l loss, ok bool, err error) {
	var old procs.Identity
	for old == (procs.Identity{}) {
		v, err := c.dir.Read()
		if err != nil || v.Snapshot.State.Final() {
			return l, false, err
		}
		if c.ctx.Err() != nil {
			return l, false, errors.New("no guardian comes")
		}
		old = v.Guardian
		c.pause(100 * time.Microsecond)
	}
	c.pause(time.Duration(rand.IntN(12_000)) * time.Microsecond)
	p, err := procs.Open(old)
	if errors.Is(err, procs.ErrGone) {
		return l, true, nil
	}
	if err != nil {
		return l, false, err
	}
	defer p.Close()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return l, true, nil
	}
	killed := time.Now()
	if err := p.Wait(c.ctx); err != nil {
		return l, false, err
	}
	before, err := c.end() // whatever comes from here on was captured by another
	if err != nil {
		return l, false, err
	}
	for round := 0; l.captured == 0 || l.replaced == 0; round++ {
		now, err := c.end()
		if err != nil {
			return l, false, err
		}
		if l.captured == 0 && now > before {
			l.captured = time.Since(killed)
		}
		id, held, err := c.dir.Holder(sessiondir.GuardianLock)
		if err != nil {
			return l, false, err
		}
		if l.replaced == 0 && held && id != old && id != (procs.Identity{}) {
			l.replaced = time.Since(killed)
		}
		if round%50 == 49 {
			if v, err := c.dir.Read(); err != nil || v.Snapshot.State.Final() {
				return l, false, err
			}
		}
		if c.ctx.Err() != nil {
			return l, false, fmt.Errorf("nothing is captured any more: %+v", l)
		}
		c.pause(100 * time.Microsecond)
	}
	return l, true, nil
}

// check compares what everybody got with what the target wrote.
func (c *counting) check() {
	t := c.t
	c.readers.Wait()
	for _, err := range c.faults {
		t.Error(err)
	}
	want := numbers(c.lines)
	if got := c.attached.output.Bytes(); c.attached.gap || !bytes.Equal(got, want) {
		t.Errorf("attached: %s (gap: %v)", difference(got, want), c.attached.gap)
	}
	if log, status, err := c.mur("logs", c.s.ID()); err != nil || status != 0 || !bytes.Equal([]byte(log), want) {
		t.Errorf("logs: %s, %d, %v", difference([]byte(log), want), status, err)
	}
	if _, status, err := c.mur("wait", c.s.ID()); err != nil || status != 7 {
		t.Errorf("wait exits with %d, %v", status, err)
	}
	records := map[string]*client.Record{"waiter": c.waited.Record}
	if c.attached.end != nil {
		records["attacher"] = c.attached.end.Record
	}
	if n := len(c.watched); n > 0 {
		records["watcher"] = c.watched[n-1].Record
	}
	if n := len(c.told); n > 0 {
		records["subscriber"] = c.told[n-1].Record
	}
	for _, who := range []string{"waiter", "attacher", "watcher", "subscriber"} {
		r := records[who]
		if r == nil || r.ExitCode == nil || *r.ExitCode != 7 || r.EndOffset != int64(len(want)) {
			t.Errorf("the %s ends with %+v", who, r)
		}
	}
	ascending := func(who string, revisions []uint64) {
		if !slices.IsSorted(revisions) || len(slices.Compact(slices.Clone(revisions))) != len(revisions) {
			t.Errorf("the %s got revisions %v", who, revisions)
		}
	}
	var watched, told []uint64
	for _, st := range c.watched {
		watched = append(watched, st.Revision)
	}
	for _, u := range c.told {
		told = append(told, u.Revision)
	}
	ascending("watcher", watched)
	ascending("subscriber", told)
}

func numbers(n int) []byte {
	out := make([]byte, 0, 9*n)
	for i := 1; i <= n; i++ {
		out = strconv.AppendInt(out, int64(i), 10)
		out = append(out, '\r', '\n')
	}
	return out
}

// difference says where two outputs part.
func difference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, at-20)):min(len(b), at+20)] }
	return fmt.Sprintf("%d bytes instead of %d, from %d on %q instead of %q", len(got), len(want), at, around(got), around(want))
}

// TestKilledGuardiansCostNothing kills guardians at moments of no one's choice.
func TestKilledGuardiansCostNothing(t *testing.T) {
	kills, lines := often(fewKills, manyKills), often(fewLines, manyLines)
	b := newBench(t)
	var captured, replaced []time.Duration
	sessions, done := 0, 0
	for ; done < kills && !t.Failed(); sessions++ {
		c := b.count(lines)
		for ok := true; ok && done < kills; {
			l, more, err := c.killOne()
			if ok = more; err != nil {
				t.Fatal(err)
			}
			if l != (loss{}) || more {
				done++
			}
			if l.captured != 0 {
				captured = append(captured, l.captured)
			}
			if l.replaced != 0 {
				replaced = append(replaced, l.replaced)
			}
		}
		c.check()
		if err := b.done(c.s); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d kills in %d sessions of %d lines", done, sessions, lines)
	t.Logf("until the log grew again: %s", spread(captured))
	t.Logf("until another guardian had the lock: %s", spread(replaced))
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "never seen"
	}
	slices.Sort(all)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("median %v, p95 %v, longest %v (%d times)",
		round(all[len(all)/2]), round(all[len(all)*95/100]), round(all[len(all)-1]), len(all))
}
