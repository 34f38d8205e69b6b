package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// errAlready is returned when another guardian holds the session.
var errAlready = errors.New("another guardian holds the session")

// begin takes the session's lock, settles what an earlier guardian left, takes
// over the owner if one lives, and binds the socket, in this order: nobody is
// answered before the past is settled.
func begin(c Config) (*guardian, error) {
	dir, err := sessiondir.Open(c.Session)
	if err != nil {
		return nil, &stageError{"directory", err}
	}
	lock, ok, err := dir.LockGuardian()
	if err != nil {
		return nil, &stageError{"lock", err}
	}
	if !ok {
		return nil, errAlready
	}
	g := &guardian{dir: dir, lock: lock, idle: c.Idle}
	g.log = openLog(dir)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, &stageError{"environment", err}
	}
	s := newSession(dir, g.log, self, c.Idle)
	s.lock = lock
	p, err := s.recover(c.heir)
	if err != nil {
		return nil, err
	}
	// Not before the recovery: who held the lock last tells in which boot of the
	// machine that was.
	if err := s.noteSelf(); err != nil {
		return nil, &stageError{"lock", err}
	}
	if g.endpoint, err = endpointOf(dir, p.heir); err != nil {
		return nil, &stageError{"socket", err}
	}
	s.spawner.listener, s.spawner.socket = g.endpoint.listener, g.endpoint.socket()
	g.session, g.first = s, resumed{pending: p.pending}
	if p.heir != nil {
		g.first.state = &p.heir.state
		if p.heir.state.Socket != g.endpoint.socket() {
			s.entrust()
		}
		if p.heir.listener != nil {
			p.heir.listener.Close() // the endpoint has a duplicate, or does without
		}
	}
	g.server = &server{
		session: s, board: s.board, log: g.log, limits: protocol.DefaultLimits(),
		leaving: make(chan struct{}), quiet: time.Now(), conns: map[*net.UnixConn]struct{}{},
	}
	return g, nil
}

func newSession(dir *sessiondir.Dir, log *slog.Logger, self *os.File, idle time.Duration) *session {
	sp := &spawner{dir: dir, self: self, idle: idle}
	sp.exe, sp.exeErr = openSibling(ownerExecutable)
	return &session{
		dir: dir, log: log, board: &board{}, term: newTerminal(dir.Bootstrap().Size),
		inbox: make(chan event, maxBatch), left: make(chan struct{}),
		book: receipts.NewBook(), waiting: map[protocol.MutationID][]*mutation{},
		signals: map[protocol.MutationID]sessiondir.SignalIntent{}, spawner: sp,
	}
}

// past is what an earlier guardian has left to a later one.
type past struct {
	heir    *heir // nil: no owner lives, or it was not reached
	pending []receipts.Receipt
}

// recover brings the session up to what files, locks and owner say and commits
// that.
func (s *session) recover(given *heir) (past, error) {
	if err := s.openJournal(); err != nil {
		return past{}, &stageError{"journal", err}
	}
	view, err := s.dir.Recover()
	if err != nil {
		return past{}, &stageError{"journal", err}
	}
	var p past
	var o *owner
	if view.OwnerLive {
		p.heir, o, err = s.reachOwner(given)
		if errors.Is(err, errOwnerGone) {
			if view, err = s.dir.Recover(); err != nil {
				return past{}, &stageError{"journal", err}
			}
		}
	} else if given != nil {
		given.close()
	}
	s.state = view.Snapshot
	s.mark(lifecycle.Event{Kind: lifecycle.Adopt})
	if err := s.commitRecovery(view.OwnerLive, &p); err != nil {
		// A disk that is full, say: term and sweep have to work all the same.
		s.log.Error("cannot record the recovery", "error", err)
		s.fault = err
		s.mark(lifecycle.Event{Kind: lifecycle.FailDurable, Failure: &lifecycle.Failure{
			Stage: "journal", Message: err.Error(),
		}})
	}
	s.publish()
	switch {
	case o != nil:
		s.takeOwner(o)
	case view.OwnerLive:
		s.seek()
	}
	if s.state.State.Final() {
		s.term.conclude()
	}
	if s.state.State == lifecycle.Retired && !view.OwnerLive {
		s.dissolveGroup() // by a guardian that died over it, it was left
	}
	return p, nil
}

// reachOwner takes over a living owner. After any error but errOwnerGone the owner
// lives and has to be sought.
func (s *session) reachOwner(given *heir) (*heir, *owner, error) {
	h, err := reach(s.dir, s.spawner.self, given, adoptPatience)
	if err != nil {
		s.log.Warn("cannot reach the owner", "error", err)
		return nil, nil, err
	}
	o, err := h.own(s.dir)
	if err != nil {
		s.log.Warn("cannot take over the owner", "error", err)
		h.close()
		return nil, nil, err
	}
	return h, o, nil
}

// commitRecovery makes the recovered state durable. What was admitted and not
// completed is settled now if no owner is left to ask.
func (s *session) commitRecovery(ownerLive bool, p *past) error {
	var records []receipts.Record
	for _, r := range s.book.Pending() {
		if ownerLive {
			p.pending = append(p.pending, r)
			continue
		}
		body, err := protocol.Marshal(s.settled(r))
		if err != nil {
			return err
		}
		done, err := s.book.Complete(r.ID, codeOK, body, time.Now())
		if err != nil {
			return err
		}
		records = append(records, done)
	}
	out, err := s.entries(records)
	if err != nil {
		return err
	}
	return s.journal.AppendReserved(out...)
}

// openJournal begins the journal, or reads the one there is.
func (s *session) openJournal() error {
	j, records, err := journal.Open(s.dir.File(), sessiondir.JournalFile)
	if errors.Is(err, fs.ErrNotExist) {
		j, err = journal.Create(s.dir.File(), sessiondir.JournalFile)
	}
	if err != nil {
		return err
	}
	s.journal = j
	for i, data := range records {
		e, err := sessiondir.DecodeEntry(data)
		if err == nil && e.Receipt != nil {
			err = s.book.Apply(*e.Receipt)
			if e.Signal != nil {
				s.signals[e.Receipt.ID] = *e.Signal
			}
			if e.Receipt.Done {
				delete(s.signals, e.Receipt.ID)
			}
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return nil
}

// settled is the answer to a mutation that was admitted and not completed before
// a crash, when no owner is left to ask.
func (s *session) settled(r receipts.Receipt) any {
	id := r.ID
	switch protocol.Op(r.Op) {
	case protocol.OpStart:
		return protocol.StartAnswer{
			MutationID: id, State: answerState(s.state.State), TargetPID: s.state.TargetPID, Error: s.state.Error,
		}
	case protocol.OpSweep:
		s.mark(lifecycle.Event{Kind: lifecycle.Account})
		answer := s.sweptBefore(id)
		found, proved := s.sweepRemains(s.remains())
		withFound(&answer, found, proved)
		if answer.Proved {
			s.mark(lifecycle.Event{Kind: lifecycle.Consume})
		}
		return answer
	case protocol.OpRetire:
		s.dissolveGroup()
		s.mark(lifecycle.Event{Kind: lifecycle.Retire})
		s.mark(lifecycle.Event{Kind: lifecycle.EndTerminal})
		return protocol.RetireAnswer{MutationID: id, Record: s.state.Record}
	default:
		if protocol.Op(r.Op) == protocol.OpTerm {
			s.mark(lifecycle.Event{Kind: lifecycle.Account})
		}
		return protocol.ControlAnswer{MutationID: id, Delivery: s.delivered(id)}
	}
}
