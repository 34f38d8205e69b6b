package guardian

import (
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// event is what the inbox holds. handle runs on the session's goroutine and must
// not wait for anything.
type event interface{ handle(*session) }

// session owns the state of the one session. Everything in it belongs to the
// goroutine of loop; other goroutines send events and read the board.
type session struct {
	dir   *sessiondir.Dir
	lock  *os.File // guardian.lock, held
	log   *slog.Logger
	board *board
	term  *terminal
	inbox chan event
	left  chan struct{} // closed when loop has returned

	journal *journal.File
	book    *receipts.Book
	state   lifecycle.Durable
	// fault is why the journal cannot be written; nil when it can.
	fault error

	owner *owner // nil: none yet, none any more, or not reached
	// ownerGone is when an owner's end was seen, since the machine's boot; 0: it was
	// not, or there was none.
	ownerGone time.Duration
	seeking   bool // an owner lives and is not reached
	// unwritten is a dead owner whose last output waits for room in the log.
	unwritten *owner
	// continued: the owner was, and has said nothing since.
	continued bool
	signals   map[protocol.MutationID]sessiondir.SignalIntent // admitted, not completed
	launch    *launching                                      // the start under way
	waiting   map[protocol.MutationID][]*mutation             // for a completion
	held      []*mutation                                     // for the start to be decided
	queue     controls
	// retiring are the retirements that wait for the owner's end.
	retiring []protocol.MutationID
	spawner  *spawner
	sweeping sync.Mutex // held by who sweeps without an owner, or takes the group away

	compactAfter time.Time // a compaction has failed
	txs          []*tx     // the changes since the last commit, in order
	leaving      bool
	departs      bool // asked to leave, and what keeps it is still there
	// successor: whoever asked for the leaving starts the next guardian.
	successor bool
}

// maxBatch bounds how many events share one commit, and batchBytes is more than they
// usually take.
const (
	maxBatch   = 64
	batchBytes = 40 << 10
)

func (s *session) loop(first event) {
	defer close(s.left)
	s.run(first)
	s.commit()
	for !s.leaving {
		var retry <-chan time.Time
		if s.fault != nil {
			retry = time.After(time.Second)
		}
		select {
		case e := <-s.inbox:
			s.run(e)
			// On a full disk each for itself: what has to be taken back then is the
			// last that changed anything.
			if s.fault == nil && s.journal.Roomy(batchBytes) {
				s.drainInbox()
			}
		case <-retry:
			s.heal()
		}
		s.commit()
		for s.resumeHeld() {
			s.commit()
		}
	}
}

// drainInbox takes what has come meanwhile, so that all of it shares one commit.
func (s *session) drainInbox() {
	for range maxBatch {
		select {
		case e := <-s.inbox:
			s.run(e)
		default:
			return
		}
	}
}

// run lets one event change the state, as one tx.
func (s *session) run(e event) {
	t := &tx{before: s.state}
	s.txs = append(s.txs, t)
	e.handle(s)
	t.after = s.state
}

// post sends e to the session from another goroutine; it gives up when the
// session's loop has ended.
func (s *session) post(e event) {
	select {
	case s.inbox <- e:
	case <-s.left:
	}
}

// after posts e once d has passed. The timer dies with the process only: e must
// do no harm when it is late.
func (s *session) after(d time.Duration, e event) {
	time.AfterFunc(d, func() { s.post(e) })
}

// step moves the state; the change is part of the current tx. An event that is
// not possible in the state changes nothing.
func (s *session) step(e lifecycle.Event) {
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	after, effects, err := lifecycle.Step(s.state, e)
	if err != nil {
		s.log.Debug("passed over", "event", string(e.Kind), "error", err)
		return
	}
	s.take(after, effects)
}

// take makes after the state and plans the effects for after the commit.
func (s *session) take(after lifecycle.Durable, effects []lifecycle.Effect) {
	s.state = after
	if after.State == lifecycle.Exited {
		s.then(func(bool) { s.term.input.close() }) // it has no one to go to any more
	}
	for _, effect := range effects {
		switch effect {
		case lifecycle.Launch:
			s.then(func(bool) { s.spawn() })
		case lifecycle.Conclude:
			s.then(func(bool) { s.term.conclude() })
		case lifecycle.Release:
			s.then(func(bool) {
				s.dissolveGroup()
				s.leaveSoon()
			})
		}
	}
}
