// Package receipts is the memory that makes every mutation happen once: which
// ids were admitted, with what content, and what came of them.
//
// It owns the bookkeeping and the form of its records, nothing else. It does no
// I/O: Admit and Complete stage a step and return the [Record] that the caller
// commits before anyone learns of it, Undo takes back a step whose commit
// failed, Apply replays committed records after a crash. What survives is what
// the caller committed; a book replayed from it is the same.
//
// Outcomes are opaque bytes. An id is never forgotten: the completed receipts of
// control operations, but the newest [KeepWhole], shrink to what is needed to
// recognise them and to name their outcome, those of start and retire never do. By
// number and not by age: no clock that is set can take an answer away. It starts no
// goroutine and has no lock: a book belongs to the one goroutine that uses it.
package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	// MaxReceipts is how many receipts there may be before signal and spawn are
	// refused.
	MaxReceipts = 65_536

	// KeepWhole is how many receipts of control operations, the newest, keep a long
	// response and their times.
	KeepWhole = 1024

	// shortResponse is the longest response that is kept for ever, in bytes.
	shortResponse = 128
)

var (
	// ErrNoID is returned for the nil UUID.
	ErrNoID = errors.New("mutation id missing")

	// ErrKnown is returned when an id is admitted that the book has already.
	ErrKnown = errors.New("mutation id already known")

	// ErrNotPending is returned when something is completed that is not admitted
	// or already completed.
	ErrNotPending = errors.New("mutation is not pending")

	// ErrReceiptsFull is returned when the book has no room for another receipt
	// of that op.
	ErrReceiptsFull = errors.New("receipts full")

	// ErrImpossible is returned when a replayed record contradicts those before
	// it: they cannot come from one book.
	ErrImpossible = errors.New("impossible sequence of receipts")
)

// Receipt is what is known of one mutation. Times are in UTC, as they are kept.
type Receipt struct {
	ID          protocol.MutationID
	Op          string
	Fingerprint Fingerprint
	AdmittedAt  time.Time
	CompletedAt time.Time
	Done        bool   // completed; Code and Response are the outcome
	Code        string // opaque
	Response    []byte // opaque, not to be changed
	Shrunk      bool   // a long response and the times are gone
}

func (r Receipt) equal(other Receipt) bool {
	return r.ID == other.ID && r.Op == other.Op && r.Fingerprint == other.Fingerprint &&
		r.AdmittedAt.Equal(other.AdmittedAt) && r.CompletedAt.Equal(other.CompletedAt) &&
		r.Done == other.Done && r.Code == other.Code && bytes.Equal(r.Response, other.Response) && r.Shrunk == other.Shrunk
}

// Verdict says what a mutation is to the book.
type Verdict int

const (
	Fresh    Verdict = iota // unknown: may be admitted
	Pending                 // known and the same, being done
	Replay                  // known and the same, completed: give the stored outcome
	Conflict                // known with other content
)

func (v Verdict) String() string {
	return [...]string{"fresh", "pending", "replay", "conflict"}[v]
}

// Book holds the receipts of one session.
type Book struct {
	byID  map[protocol.MutationID]*Receipt
	order []*Receipt // as admitted
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{byID: make(map[protocol.MutationID]*Receipt)} }

// Check says what to do with a mutation; the receipt is a copy, nil if fresh.
func (b *Book) Check(id protocol.MutationID, op string, fp Fingerprint) (Verdict, *Receipt) {
	known, ok := b.byID[id]
	if !ok {
		return Fresh, nil
	}
	receipt := *known
	switch {
	case known.Op != op || known.Fingerprint != fp:
		return Conflict, &receipt
	case known.Done:
		return Replay, &receipt
	default:
		return Pending, &receipt
	}
}

// Room fails with ErrReceiptsFull when there is none for another op. Operations
// that end a session always have room.
func (b *Book) Room(op string) error {
	if len(b.order) >= MaxReceipts && (op == "signal" || op == "spawn") {
		return fmt.Errorf("%w: the session has %d, and only term, sweep and retire are taken", ErrReceiptsFull, len(b.order))
	}
	return nil
}

// Admit stages a new receipt and returns the record to commit.
func (b *Book) Admit(id protocol.MutationID, op string, fp Fingerprint, now time.Time) (Record, error) {
	if b.byID[id] != nil {
		return Record{}, fmt.Errorf("cannot admit %s %s: %w", op, id, ErrKnown)
	}
	record := Record{KindAdmit, Receipt{ID: id, Op: op, Fingerprint: fp, AdmittedAt: stamp(now)}}
	if err := record.check(); err != nil {
		return Record{}, fmt.Errorf("cannot admit %s: %w", op, err)
	}
	if err := b.Room(op); err != nil {
		return Record{}, err
	}
	b.add(record.Receipt)
	return record, nil
}

// Complete stages the outcome of a pending receipt and returns the record to
// commit.
func (b *Book) Complete(id protocol.MutationID, code string, response []byte, now time.Time) (Record, error) {
	known := b.byID[id]
	if known == nil || known.Done {
		return Record{}, fmt.Errorf("cannot complete %s: %w", id, ErrNotPending)
	}
	record := Record{KindComplete, Receipt{ID: id, Done: true, Code: code, Response: own(response), CompletedAt: stamp(now)}}
	if err := record.check(); err != nil {
		return Record{}, fmt.Errorf("cannot complete %s: %w", id, err)
	}
	known.complete(record)
	return record, nil
}

// Undo takes back a staged step whose commit failed. Steps that were to be
// committed together may be undone in any order; what was not staged by this
// very record stays as it is.
func (b *Book) Undo(record Record) {
	known := b.byID[record.ID]
	switch {
	case known == nil || known.Shrunk:
	case record.Kind == KindAdmit && known.admission().equal(record.Receipt):
		delete(b.byID, record.ID)
		for i, receipt := range slices.Backward(b.order) { // it is one of the last
			if receipt == known {
				b.order = slices.Delete(b.order, i, i+1)
				return
			}
		}
	case record.Kind == KindComplete && known.completion().equal(record.Receipt):
		*known = known.admission()
	}
}

// Apply replays a committed record. A record that was applied before changes
// nothing; one that contradicts the book is refused with ErrImpossible.
func (b *Book) Apply(record Record) error {
	if err := record.check(); err != nil {
		return fmt.Errorf("cannot replay receipt: %w", err)
	}
	record.Response = own(record.Response)
	record.AdmittedAt, record.CompletedAt = stamp(record.AdmittedAt), stamp(record.CompletedAt)
	known := b.byID[record.ID]
	switch {
	case known == nil && record.Kind != KindComplete:
		b.add(record.Receipt)
	case known == nil:
		return fmt.Errorf("cannot replay receipt %s: %w: completed but never admitted", record.ID, ErrImpossible)
	case record.Kind == KindComplete && !known.Done:
		known.complete(record)
	case record.Kind == KindAdmit && !known.admission().equal(record.Receipt),
		record.Kind == KindComplete && !known.completion().equal(record.Receipt),
		record.Kind == KindSettled && !known.equal(record.Receipt):
		return fmt.Errorf("cannot replay receipt %s: %w: %s differs from the one before", record.ID, ErrImpossible, record.Kind)
	}
	return nil
}

func (b *Book) add(receipt Receipt) {
	b.byID[receipt.ID] = &receipt
	b.order = append(b.order, &receipt)
}

// admission and completion are the receipt as the two records told it.
func (r *Receipt) admission() Receipt {
	return Receipt{ID: r.ID, Op: r.Op, Fingerprint: r.Fingerprint, AdmittedAt: r.AdmittedAt}
}

func (r *Receipt) completion() Receipt {
	return Receipt{ID: r.ID, CompletedAt: r.CompletedAt, Done: r.Done, Code: r.Code, Response: r.Response}
}

func (r *Receipt) complete(record Record) {
	r.Done, r.CompletedAt, r.Code, r.Response = true, record.CompletedAt, record.Code, record.Response
}

// own copies a response; an empty one is none, as on the disk.
func own(response []byte) []byte {
	if len(response) == 0 {
		return nil
	}
	return bytes.Clone(response)
}

// Get returns the receipt of an id.
func (b *Book) Get(id protocol.MutationID) (Receipt, bool) {
	known, ok := b.byID[id]
	if !ok {
		return Receipt{}, false
	}
	return *known, true
}

// List returns all receipts in the order of their admission.
func (b *Book) List() []Receipt {
	list := make([]Receipt, 0, len(b.order))
	for _, receipt := range b.order {
		list = append(list, *receipt)
	}
	return list
}

// Pending returns the receipts that are admitted and not completed, in the order
// of their admission.
func (b *Book) Pending() []Receipt {
	var list []Receipt
	for _, receipt := range b.order {
		if !receipt.Done {
			list = append(list, *receipt)
		}
	}
	return list
}

// Records returns what compaction keeps: the whole book, one record a receipt,
// in the order of admission. Staged steps are part of it: written down with it
// they are committed.
func (b *Book) Records() []Record {
	records := make([]Record, 0, len(b.order))
	for _, receipt := range b.order {
		kind := KindAdmit
		if receipt.Done {
			kind = KindSettled
		}
		records = append(records, Record{kind, *receipt})
	}
	return records
}

// Shrink takes times and long responses from the completed receipts of control
// operations, but for the newest keep. On the disk it shows with the next
// compaction.
func (b *Book) Shrink(keep int) {
	for _, r := range slices.Backward(b.order) {
		if !r.Done || r.Op == "start" || r.Op == "retire" {
			continue
		}
		if keep--; keep >= 0 || r.Shrunk {
			continue
		}
		short := r.Response
		if len(short) > shortResponse {
			short = nil
		}
		*r = Receipt{
			ID: r.ID, Op: r.Op, Fingerprint: r.Fingerprint, Done: true, Code: r.Code, Response: short, Shrunk: true,
		}
	}
}
