package output

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

const (
	// lazyBytes and lazyTime bound what waits in the pipe while nobody watches.
	lazyBytes = 64 << 10
	lazyTime  = 5 * time.Millisecond
	// takeBytes is moved at most before requests are looked at again.
	takeBytes = 64 << 10
	// takeAllBytes bounds what is moved for one flush: the kernel holds far less of
	// what was written before it.
	takeAllBytes = 256 << 10

	indexEvery = 50 * time.Millisecond
	hungUpPoll = 100 * time.Millisecond
	retryFirst = 200 * time.Millisecond
	retryLast  = time.Second
)

// loop is the capturing thread: one wait for the terminal, a request or a time,
// then one step. Nothing of it is touched by another goroutine between open and
// release.
type loop struct {
	c     *Capture
	epoll int
	armed bool // the master is in the epoll set
	log   *log
	index *index

	pending int64     // bytes in the pipe
	since   time.Time // of the oldest of them
	retry   time.Duration
	retryAt time.Time // zero: the log can be written
	hungUp  bool
	stuck   bool // pipe full and log failing: the master would wake us for nothing

	indexedAt time.Time
	indexErr  error
	onState   func(State)
}

func (l *loop) open(c *Capture, opts Options) (err error) {
	l.c, l.epoll, l.onState = c, -1, opts.OnState
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	c.wake = os.NewFile(uintptr(event), "wake")
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if err := l.add(event); err != nil {
		return err
	}
	if l.log, err = openLog(c.dir, opts); err != nil {
		return err
	}
	if l.pending, err = c.move.waiting(); err != nil {
		return err
	}
	l.index, err = openIndex(c.dir, l.log.end+l.pending)
	return err
}

func (l *loop) release() {
	if l.c == nil {
		return
	}
	if l.epoll >= 0 {
		unix.Close(l.epoll)
	}
	if l.log != nil && l.log.cur != nil {
		l.log.cur.Close()
	}
	if l.index != nil {
		l.index.f.Close()
	}
}

func (l *loop) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &ev)
}

// recover moves what a predecessor left; a failure is retried like any other.
func (l *loop) recover() {
	l.publish()
	l.flush()
}

func (l *loop) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for !l.c.stopping.Load() {
		if err := l.arm(); err != nil {
			return err
		}
		ready, err := l.wait()
		if err != nil {
			return err
		}
		l.step(ready)
	}
	l.requests()
	l.flush()
	return nil
}

// arm keeps the master in the epoll set exactly while its events are of use: a
// hang-up is reported for ever and cannot be masked.
func (l *loop) arm() (err error) {
	want := !l.hungUp && !l.stuck
	if want == l.armed {
		return nil
	}
	if want {
		err = l.add(l.c.move.master)
	} else {
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, l.c.move.master, nil)
	}
	if err != nil {
		return fmt.Errorf("cannot wait for output: %w", err)
	}
	l.armed = want
	return nil
}

// wait tells whether the master may have something.
func (l *loop) wait() (ready bool, err error) {
	var events [2]unix.EpollEvent
	timeout := l.timeout()
	n, err := unix.EpollWait(l.epoll, events[:], timeout)
	if err == unix.EINTR {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot wait for output: %w", err)
	}
	for _, ev := range events[:n] {
		if ev.Fd == int32(l.c.move.master) {
			ready = true
			continue
		}
		var count [8]byte
		unix.Read(int(ev.Fd), count[:])
	}
	return ready || (n == 0 && l.hungUp), nil
}

// timeout is in milliseconds, -1 for none.
func (l *loop) timeout() int {
	left := time.Duration(-1)
	sooner := func(d time.Duration) {
		if d = max(d, 0); left < 0 || d < left {
			left = d
		}
	}
	switch {
	case !l.retryAt.IsZero():
		sooner(time.Until(l.retryAt))
	case l.pending > 0:
		sooner(time.Until(l.since.Add(lazyTime)))
	}
	if l.hungUp {
		sooner(hungUpPoll)
	}
	if left < 0 {
		return -1
	}
	return int((left + time.Millisecond - 1) / time.Millisecond)
}

func (l *loop) step(ready bool) {
	full := false
	if ready {
		full = l.take()
	}
	waiting := l.requests()
	if len(waiting) > 0 {
		full = l.takeAll()
	}
	if full && l.retryAt.IsZero() || len(waiting) > 0 || l.due() {
		l.flush()
	}
	l.stuck = (full || l.stuck) && !l.retryAt.IsZero()
	for _, ch := range waiting {
		ch <- flushed{l.log.end, l.c.State().Err}
	}
}

// due tells whether what is in the pipe should go to the log now.
func (l *loop) due() bool {
	switch {
	case l.pending == 0 && l.retryAt.IsZero():
		return false
	case !l.retryAt.IsZero():
		return !time.Now().Before(l.retryAt)
	}
	return l.c.watchers.Load() > 0 || l.pending >= lazyBytes || time.Since(l.since) >= lazyTime
}

// takeAll moves what the terminal holds, which is not all that poll(2) shows to
// others: while this thread is between taking bytes and telling the line
// discipline, it shows nothing and yet more is there. Only who reads can know.
//
// A full pipe looks like an empty terminal, and few bytes can fill it; so it is
// emptied until nothing comes any more. And even who reads can find nothing once
// where there is more: a worker of the kernel that found no room a moment ago begins
// anew only when it has ended, and the reader waits for its end, not for the new
// beginning (flush_work of a work that queues itself). A second look waits for that.
func (l *loop) takeAll() (full bool) {
	const looks = 2
	empty := 0
	for first := l.log.end + l.pending; l.log.end+l.pending-first < takeAllBytes; {
		before := l.log.end + l.pending
		full = l.take()
		if !full && l.log.end+l.pending == before {
			if empty++; empty == looks {
				return false
			}
			continue
		}
		empty = 0
		l.flush()
		if !l.retryAt.IsZero() {
			return full // it cannot be written
		}
	}
	return full
}

// take moves what the master has into the pipe; full tells that the pipe takes
// no more.
func (l *loop) take() (full bool) {
	copying := l.c.move.copying()
	taken := int64(0)
	for taken < takeBytes {
		n, err := l.c.move.in()
		if n > 0 {
			l.took(n, taken == 0)
			taken += n
			continue
		}
		if err == unix.EAGAIN {
			full = taken == 0 && l.pending > 0 && l.c.move.pipeFull()
			l.setHungUp(l.hungUp && full)
			break
		}
		// EIO and end of file: every slave is closed. Not final, and anything
		// else is treated alike: looked at again, without a busy loop.
		l.setHungUp(true)
		break
	}
	if copying != l.c.move.copying() {
		l.report()
	}
	return full
}

func (l *loop) took(n int64, first bool) {
	if l.pending == 0 || first {
		now := time.Now()
		if l.pending == 0 {
			l.since = now
		}
		if now.Sub(l.indexedAt) >= indexEvery {
			l.record(Record{Offset: l.log.end + l.pending, Time: now, Size: l.index.last.Size})
		}
	}
	l.pending += n
}

// requests does what others asked for and gives those who wait for a flush.
func (l *loop) requests() (waiting []chan flushed) {
	if v := l.c.size.Swap(0); v != 0 {
		size := ptmx.Size{Cols: uint16(v >> 16), Rows: uint16(v)}
		if size != l.index.last.Size || l.index.end == 0 {
			r := Record{Offset: l.log.end + l.pending, Time: time.Now(), Size: size}
			if !l.record(r) {
				l.c.size.CompareAndSwap(0, v) // the next record's turn
			}
		}
	}
	if to := l.c.trimTo.Load(); l.log.lossless && to > l.log.mark {
		l.trim(to)
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	waiting = l.c.flushes
	l.c.flushes = nil
	return waiting
}

func (l *loop) trim(to int64) {
	if err := l.log.trim(to); err != nil {
		l.fail(err)
		return
	}
	l.c.tail.Store(l.log.tail())
	if errors.Is(l.c.State().Err, ErrFull) {
		l.retryAt = time.Now()
	}
}

func (l *loop) record(r Record) (ok bool) {
	if r.Time.Before(l.index.last.Time) { // the clock was set back
		r.Time = l.index.last.Time
	}
	err := l.index.append(r)
	l.indexedAt = time.Now()
	l.noteIndex(err)
	return err == nil
}

func (l *loop) noteIndex(err error) {
	if (err == nil) != (l.indexErr == nil) {
		l.indexErr = err
		l.report()
	}
}

// flush moves the pipe into the log.
func (l *loop) flush() {
	tail := l.log.tail()
	copying := l.c.move.copying()
	err := l.drain()
	l.publish()
	if now := l.log.tail(); now != tail {
		l.noteIndex(l.index.drop(now))
	}
	switch {
	case err != nil:
		l.fail(err)
	case !l.retryAt.IsZero():
		l.retry, l.retryAt = 0, time.Time{}
		l.report()
	case copying != l.c.move.copying():
		l.report()
	}
}

func (l *loop) drain() error {
	for l.pending > 0 {
		f, at, room, err := l.log.room()
		if err != nil {
			return err
		}
		n, err := l.c.move.out(f, at, min(room, l.pending))
		l.log.end += n
		l.pending -= n
		if err == unix.EAGAIN && n == 0 {
			// Less in the pipe than we counted: somebody else took from it.
			if l.pending, err = l.c.move.waiting(); err == nil && l.pending > 0 {
				err = unix.EIO
			}
		}
		if err == nil && n == 0 && l.pending > 0 {
			err = unix.EIO
		}
		if err != nil {
			return fmt.Errorf("cannot write output: %w", err)
		}
	}
	return nil
}

// publish lets readers know; the file's size is already true.
func (l *loop) publish() {
	l.c.tail.Store(l.log.tail())
	if l.c.end.Swap(l.log.end) != l.log.end {
		l.c.grown.changed()
	}
}

func (l *loop) fail(err error) {
	l.retry = min(max(2*l.retry, retryFirst), retryLast)
	l.retryAt = time.Now().Add(l.retry)
	if old := l.c.State().Err; old == nil || old.Error() != err.Error() {
		l.reportErr(err)
	}
}

func (l *loop) setHungUp(now bool) {
	if l.hungUp != now {
		l.hungUp = now
		l.report()
	}
}

// report publishes the state of a log that can be written, or keeps its error.
func (l *loop) report() {
	var err error
	if !l.retryAt.IsZero() {
		err = l.c.State().Err
	}
	l.reportErr(err)
}

func (l *loop) reportErr(err error) {
	s := &State{Err: err, HungUp: l.hungUp, Copying: l.c.move.copying(), IndexErr: l.indexErr}
	l.c.state.Store(s)
	if l.onState != nil {
		l.onState(*s)
	}
}
