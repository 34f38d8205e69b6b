package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// errAlready is returned when another guardian holds the session.
var errAlready = errors.New("another guardian holds the session")

// begin takes the session's lock, settles what an earlier guardian left, and
// binds the socket, in this order: nobody is answered before the past is settled.
func begin(path string) (*guardian, error) {
	dir, err := sessiondir.Open(path)
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
	g := &guardian{dir: dir, lock: lock}
	if g.log, err = openLog(dir); err != nil {
		return nil, &stageError{"log", err}
	}
	s := newSession(dir, g.log)
	if err := s.recover(); err != nil {
		return nil, err
	}
	// Not before the recovery: who held the lock last tells in which boot of the
	// machine that was.
	if err := g.noteSelf(); err != nil {
		return nil, &stageError{"lock", err}
	}
	if g.endpoint, err = bind(dir); err != nil {
		return nil, &stageError{"socket", err}
	}
	s.spawner.listener = g.endpoint.listener
	g.session = s
	g.server = &server{
		session: s, board: s.board, log: g.log, limits: protocol.DefaultLimits(),
		leaving: make(chan struct{}), quiet: time.Now(),
	}
	g.server.conns = map[*net.UnixConn]struct{}{}
	return g, nil
}

func newSession(dir *sessiondir.Dir, log *slog.Logger) *session {
	sp := &spawner{dir: dir}
	sp.exe, sp.exeErr = openSibling(ownerExecutable)
	return &session{
		dir: dir, log: log, board: &board{}, term: newTerminal(dir.Bootstrap().Size),
		inbox: make(chan event, maxBatch), left: make(chan struct{}),
		book: receipts.NewBook(), waiting: map[protocol.MutationID][]*mutation{}, spawner: sp,
	}
}

// recover brings the session up to what the files and locks say and commits
// that.
func (s *session) recover() error {
	if err := s.openJournal(); err != nil {
		return &stageError{"journal", err}
	}
	view, err := s.dir.Recover()
	if err != nil {
		return &stageError{"journal", err}
	}
	if view.OwnerLive {
		return &stageError{"adopt", errors.New(
			"its guardian was lost and its owner lives; this version cannot take it over: the owner records the session to its end")}
	}
	s.state = view.Snapshot
	s.mark(lifecycle.Event{Kind: lifecycle.Adopt})
	var records []receipts.Record
	for _, r := range s.book.Pending() {
		answer := s.settled(r)
		body, err := protocol.Marshal(answer)
		if err != nil {
			return &stageError{"journal", err}
		}
		done, err := s.book.Complete(r.ID, codeOK, body, time.Now())
		if err != nil {
			return &stageError{"journal", err}
		}
		records = append(records, done)
	}
	out, err := entries(s.state, records)
	if err != nil {
		return &stageError{"journal", err}
	}
	if err := s.journal.AppendReserved(out...); err != nil {
		return &stageError{"journal", err}
	}
	if s.state.State.Final() {
		s.term.conclude()
	}
	s.publish()
	return nil
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
		return s.sweptBefore(id)
	case protocol.OpRetire:
		s.mark(lifecycle.Event{Kind: lifecycle.Retire})
		s.mark(lifecycle.Event{Kind: lifecycle.EndTerminal})
		return protocol.RetireAnswer{MutationID: id, Record: s.state.Record}
	default:
		return protocol.ControlAnswer{MutationID: id, Delivery: protocol.NotDelivered}
	}
}
