package guardian

import (
	"os"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// inputQueue writes input to the terminal, frame by frame, in the order of its
// arrival, each whole before the next.
type inputQueue struct {
	mu     sync.Mutex // guards the fields below; never held over a write
	more   sync.Cond
	jobs   []*inputJob
	now    *inputJob // being written
	master *os.File
	closed bool
}

// inputJob is one frame. done is called once, with how many bytes were written.
type inputJob struct {
	from  any // who may cancel it
	bytes []byte
	done  func(written int, why *protocol.Error)
}

func newInputQueue() *inputQueue {
	q := &inputQueue{}
	q.more.L = &q.mu
	return q
}

// open begins to write to master.
func (q *inputQueue) open(master *os.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.master == nil && !q.closed {
		q.master = master
		go q.run()
	}
}

// add queues a frame, or refuses it at once.
func (q *inputQueue) add(j *inputJob) {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		j.done(0, protocol.Refuse(protocol.CodeNotRunning, "cannot type: the target has ended"))
	case q.master == nil:
		q.mu.Unlock()
		j.done(0, protocol.Refuse(protocol.CodeNotStarted, "cannot type: the session has no target yet"))
	default:
		q.jobs = append(q.jobs, j)
		q.more.Signal()
		q.mu.Unlock()
	}
}

// cancel takes back what from has queued; what is being written ends where it is.
func (q *inputQueue) cancel(from any) {
	for _, j := range q.takeBack(from) {
		j.done(0, protocol.Refuse(protocol.CodeNotRunning, "cannot type: the writer left"))
	}
}

func (q *inputQueue) takeBack(from any) (dropped []*inputJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var kept []*inputJob
	for _, j := range q.jobs {
		if j.from == from {
			dropped = append(dropped, j)
		} else {
			kept = append(kept, j)
		}
	}
	q.jobs = kept
	if q.now != nil && q.now.from == from {
		q.master.SetWriteDeadline(time.Unix(1, 0))
	}
	return dropped
}

func (q *inputQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	if q.master != nil {
		q.master.SetWriteDeadline(time.Unix(1, 0))
	}
	q.more.Signal()
}

func (q *inputQueue) run() {
	for {
		j, last := q.next()
		for _, l := range last {
			l.done(0, protocol.Refuse(protocol.CodeNotRunning, "cannot type: the target has ended"))
		}
		if j == nil {
			return
		}
		n, err := q.master.Write(j.bytes)
		if err == nil {
			j.done(n, nil)
			continue
		}
		j.done(n, protocol.Refuse(protocol.CodeNotRunning, "cannot type all of it: the target has ended or the writer left"))
	}
}

// next waits for a frame. After the close it returns nil and what is left.
func (q *inputQueue) next() (j *inputJob, last []*inputJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now = nil
	for len(q.jobs) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		last, q.jobs = q.jobs, nil
		return nil, last
	}
	j = q.jobs[0]
	q.jobs = q.jobs[1:]
	q.now = j
	// A cancel of the frame before may have left its deadline.
	q.master.SetWriteDeadline(time.Time{})
	return j, nil
}
