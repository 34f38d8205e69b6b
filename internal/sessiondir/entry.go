package sessiondir

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// Entry is one record of a session's journal: a lifecycle change, a step of a
// receipt, or both at once. Signal goes with the admission of a signal: it is what
// a receipt's fingerprint cannot give back, and what a guardian needs that has to
// deliver it after a crash.
type Entry struct {
	Life    *lifecycle.Durable
	Receipt *receipts.Record
	Signal  *SignalIntent
}

// SignalIntent is what an admitted signal or term asks for.
type SignalIntent struct {
	Signal int                  `json:"signal,omitempty"`
	Group  protocol.SignalGroup `json:"group,omitempty"`
	Grace  time.Duration        `json:"grace,omitempty"` // of a term; 0: none
}

// entryWire keeps the receipt in the form that its own package gives it.
type entryWire struct {
	Life    *lifecycle.Durable `json:"life,omitempty"`
	Receipt cbor.RawMessage    `json:"receipt,omitempty"`
	Signal  *SignalIntent      `json:"signal,omitempty"`
}

// EncodeEntry encodes a journal record deterministically.
func EncodeEntry(e Entry) ([]byte, error) {
	if e.Life == nil && e.Receipt == nil {
		return nil, errors.New("cannot encode a journal record: it is empty")
	}
	w := entryWire{Life: e.Life, Signal: e.Signal}
	if e.Receipt != nil {
		raw, err := e.Receipt.Encode()
		if err != nil {
			return nil, err
		}
		w.Receipt = raw
	}
	return protocol.Marshal(w)
}

// DecodeEntry reads what EncodeEntry wrote. What a reader could misunderstand (an
// unknown state, a snapshot of another version) is refused.
func DecodeEntry(data []byte) (Entry, error) {
	var w entryWire
	if err := protocol.Unmarshal(data, &w); err != nil {
		return Entry{}, fmt.Errorf("cannot decode a journal record: %w", err)
	}
	e := Entry{Life: w.Life, Signal: w.Signal}
	if w.Receipt != nil {
		record, err := receipts.DecodeRecord(w.Receipt)
		if err != nil {
			return Entry{}, fmt.Errorf("cannot decode a journal record: %w", err)
		}
		e.Receipt = &record
	}
	var err error
	switch {
	case e.Life == nil && e.Receipt == nil:
		err = errors.New("it is empty")
	case e.Life != nil && e.Life.Version != lifecycle.SnapshotVersion:
		err = fmt.Errorf("its snapshot is of version %d", e.Life.Version)
	case e.Life != nil && !slices.Contains(lifecycle.States(), e.Life.State):
		err = fmt.Errorf("its state %q is unknown", e.Life.State)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("cannot decode a journal record: %w", err)
	}
	return e, nil
}
