package guardian

import (
	"errors"
	"time"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// tx is what one event changes.
type tx struct {
	records       []receipts.Record
	before, after lifecycle.Durable
	// reserved: it may use what is kept free for the end of a session on a full
	// disk. Facts about the target always may.
	reserved bool
	// strict: without a durable record it must not happen.
	strict bool
	done   []func(durable bool)    // after the commit
	undone []func(*protocol.Error) // instead, when it was taken back
}

func (t *tx) changed() bool { return t.before.Revision != t.after.Revision }

func (t *tx) run(durable bool) {
	for _, f := range t.done {
		f(durable)
	}
}

// record adds a receipt's change to the current tx.
func (s *session) record(r receipts.Record) {
	t := s.txs[len(s.txs)-1]
	t.records = append(t.records, r)
}

// then runs f once the current tx is on the disk, or, when it cannot be and is
// not strict, all the same.
func (s *session) then(f func(durable bool)) {
	t := s.txs[len(s.txs)-1]
	t.done = append(t.done, f)
}

// otherwise runs f when the current tx was taken back.
func (s *session) otherwise(f func(*protocol.Error)) {
	t := s.txs[len(s.txs)-1]
	t.undone = append(t.undone, f)
}

// commit makes all changes since the last one durable with one fdatasync, then
// publishes the state, then lets each change have its effects and answers.
func (s *session) commit() {
	txs := s.txs
	s.txs = nil
	if len(txs) == 0 {
		return
	}
	err := s.append(txs)
	if errors.Is(err, journal.ErrFull) && len(txs) > 1 {
		for _, t := range txs { // those that fit, and those that may use the reserve
			s.settle([]*tx{t}, s.append([]*tx{t}))
		}
		return
	}
	s.settle(txs, err)
}

// append writes the receipts of txs and the state as of the last of them.
func (s *session) append(txs []*tx) error {
	var out [][]byte
	reserved := true
	for _, t := range txs {
		for _, r := range t.records {
			b, err := s.encode(r)
			if err != nil {
				return err
			}
			out = append(out, b)
			reserved = reserved && t.reserved
		}
	}
	if last := txs[len(txs)-1]; last.after.Revision != txs[0].before.Revision {
		b, err := sessiondir.EncodeEntry(sessiondir.Entry{Life: &last.after})
		if err != nil {
			return err
		}
		out = append(out, b)
	}
	switch {
	case len(out) == 0:
		return nil
	case s.fault != nil:
		return s.fault
	case reserved:
		return s.journal.AppendReserved(out...)
	default:
		return s.journal.Append(out...)
	}
}

func (s *session) settle(txs []*tx, err error) {
	switch {
	case err == nil:
		s.board.publish(txs[len(txs)-1].after)
		for _, t := range txs {
			t.run(true)
		}
		s.compact()
	case errors.Is(err, journal.ErrFull) && len(txs) == 1 && txs[0].strict:
		s.undo(txs, protocol.Refuse(protocol.CodeNotDurable,
			"it cannot be recorded, the disk is full: free some space and repeat it"))
	default:
		s.degrade(txs, err)
	}
}

// undo takes back what was not committed, newest first.
func (s *session) undo(txs []*tx, why *protocol.Error) {
	for i := len(txs) - 1; i >= 0; i-- {
		t := txs[i]
		for j := len(t.records) - 1; j >= 0; j-- {
			s.book.Undo(t.records[j])
		}
		if t.changed() && s.state.Revision == t.after.Revision {
			s.state = t.before
		}
		for _, f := range t.undone {
			f(why)
		}
	}
}

// degrade is what a journal that cannot be written leaves: a new one is begun at
// once; failing that, what must not happen without a record is taken back and
// the rest (the end of the target, term, sweep) happens and says that it is not
// durable.
func (s *session) degrade(txs []*tx, cause error) {
	s.fault = cause
	s.log.Error("cannot write the journal", "error", cause)
	if s.heal() {
		for _, t := range txs {
			t.run(true)
		}
		return
	}
	for i := len(txs) - 1; i >= 0; i-- {
		if txs[i].strict {
			s.undo(txs[i:i+1], protocol.Refuse(protocol.CodeNotDurable,
				"it cannot be recorded: "+cause.Error()))
		}
	}
	s.mark(lifecycle.Event{Kind: lifecycle.FailDurable, Failure: &lifecycle.Failure{
		Stage: "journal", Message: cause.Error(),
	}})
	s.publishLoose()
	for _, t := range txs {
		if !t.strict {
			t.run(false)
		}
	}
}

// publishLoose shows a state that is not on the disk.
func (s *session) publishLoose() {
	if err := s.noteSelf(); err != nil {
		s.log.Error("cannot note the revision", "error", err)
	}
	s.publish()
}

// noteSelf writes who holds guardian.lock, for people and for readers that wait
// for the guardian's end, and the number of the state that it shows, which no later
// guardian gives to another state.
func (s *session) noteSelf() error {
	self, err := procs.Self()
	if err != nil {
		return err
	}
	return sessiondir.NoteHolder(s.lock, self, s.state.Revision)
}

// heal begins a new journal with all that is known and tells whether it could.
func (s *session) heal() bool {
	before := s.state
	s.mark(lifecycle.Event{Kind: lifecycle.HealDurable})
	j, err := s.rewrite()
	if err != nil {
		s.state = before
		return false
	}
	s.journal.Close()
	s.journal, s.fault = j, nil
	s.publish()
	if s.departs {
		s.after(0, leave{s.successor})
	}
	return true
}

// mark changes the state outside of any tx.
func (s *session) mark(e lifecycle.Event) {
	e.At = time.Now().UnixNano()
	if after, _, err := lifecycle.Step(s.state, e); err == nil {
		s.state = after
	}
}

func (s *session) rewrite() (*journal.File, error) {
	records, err := s.entries(s.book.Records())
	if err != nil {
		return nil, err
	}
	return journal.Rewrite(s.dir.File(), sessiondir.JournalFile, records)
}

// compact shrinks a journal that has grown to what is still needed. If it fails
// the old one goes on.
func (s *session) compact() {
	if !s.journal.ShouldCompact() || time.Now().Before(s.compactAfter) {
		return
	}
	s.book.Shrink(receipts.KeepWhole)
	j, err := s.rewrite()
	if err != nil {
		s.log.Warn("cannot compact the journal", "error", err)
		s.compactAfter = time.Now().Add(time.Minute)
		return
	}
	s.journal.Close()
	s.journal = j
}

// entries is a whole journal: every receipt, then the state.
func (s *session) entries(records []receipts.Record) ([][]byte, error) {
	var out [][]byte
	for _, r := range records {
		b, err := s.encode(r)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	b, err := sessiondir.EncodeEntry(sessiondir.Entry{Life: &s.state})
	return append(out, b), err
}

// encode makes a journal record of a receipt's step.
func (s *session) encode(r receipts.Record) ([]byte, error) {
	e := sessiondir.Entry{Receipt: &r}
	if intent, ok := s.signals[r.ID]; ok && !r.Done {
		e.Signal = &intent
	}
	return sessiondir.EncodeEntry(e)
}

func (s *session) publish() { s.board.publish(s.state) }
