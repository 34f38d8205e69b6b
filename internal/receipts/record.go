package receipts

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Kind says what a record tells.
type Kind uint8

const (
	// KindAdmit begins a receipt: ID, Op, Fingerprint, AdmittedAt.
	KindAdmit Kind = iota + 1
	// KindComplete ends it: ID, CompletedAt, Code, Response.
	KindComplete
	// KindSettled is a completed receipt in one, as compaction keeps it.
	KindSettled
)

func (k Kind) String() string {
	switch k {
	case KindAdmit:
		return "admit"
	case KindComplete:
		return "complete"
	case KindSettled:
		return "settled"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Record is one step of the book, to be committed. Fields that its kind does
// not name are zero.
type Record struct {
	Kind Kind
	Receipt
}

const (
	// MaxResponse is the length of the longest response that is kept, that of
	// the longest frame.
	MaxResponse = 256 << 10

	maxWord    = 64 // op, code
	maxEncoded = MaxResponse + 1024
)

// wire is a record on the disk: a map with small integers as keys, absent what
// is zero.
type wire struct {
	Kind        Kind   `cbor:"1,keyasint"`
	ID          []byte `cbor:"2,keyasint"`
	Op          string `cbor:"3,keyasint,omitempty"`
	Fingerprint []byte `cbor:"4,keyasint,omitempty"`
	AdmittedAt  int64  `cbor:"5,keyasint,omitempty"` // Unix time in nanoseconds
	CompletedAt int64  `cbor:"6,keyasint,omitempty"`
	Code        string `cbor:"7,keyasint,omitempty"`
	Response    []byte `cbor:"8,keyasint,omitempty"`
	Shrunk      bool   `cbor:"9,keyasint,omitempty"`
}

// Encode returns the record as one item of core deterministic CBOR (RFC 8949,
// 4.2.1).
func (r Record) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("cannot encode receipt: %w", err)
	}
	data, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("cannot encode receipt: %w", err)
	}
	return data, nil
}

func encode(r Record) ([]byte, error) {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, err
	}
	w := wire{
		Kind: r.Kind, ID: r.ID[:], Op: r.Op, Code: r.Code, Response: r.Response, Shrunk: r.Shrunk,
		AdmittedAt: toDisk(r.AdmittedAt), CompletedAt: toDisk(r.CompletedAt),
	}
	if r.Fingerprint != (Fingerprint{}) {
		w.Fingerprint = r.Fingerprint[:]
	}
	return mode.Marshal(w)
}

// DecodeRecord reads what Encode wrote, and nothing else: exactly one item, in
// its only encoding, with the fields of its kind.
func DecodeRecord(data []byte) (Record, error) {
	r, err := decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("cannot decode receipt: %w", err)
	}
	return r, nil
}

func decode(data []byte) (Record, error) {
	if len(data) > maxEncoded {
		return Record{}, errors.New("too long")
	}
	mode, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxNestedLevels:   4,
		MaxArrayElements:  16,
		MaxMapPairs:       16,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		return Record{}, err
	}
	var w wire
	if err := mode.Unmarshal(data, &w); err != nil {
		return Record{}, err
	}
	if len(w.ID) != len(protocol.MutationID{}) || len(w.Fingerprint) != 0 && len(w.Fingerprint) != len(Fingerprint{}) {
		return Record{}, errors.New("id or fingerprint of a wrong length")
	}
	r := Record{w.Kind, Receipt{
		ID: protocol.MutationID(w.ID), Op: w.Op, Code: w.Code, Response: w.Response, Shrunk: w.Shrunk,
		AdmittedAt: fromDisk(w.AdmittedAt), CompletedAt: fromDisk(w.CompletedAt), Done: w.Kind != KindAdmit,
	}}
	copy(r.Fingerprint[:], w.Fingerprint)
	if err := r.check(); err != nil {
		return Record{}, err
	}
	// Longer encodings of the same, keys out of order, zeros written out: all
	// that differs from the one form is refused here at once.
	if again, err := encode(r); err != nil || !bytes.Equal(again, data) {
		return Record{}, errors.New("not in deterministic form")
	}
	return r, nil
}

// check tells whether the record has the fields of its kind and no others.
func (r Record) check() error {
	admitted := Receipt{ID: r.ID, Op: r.Op, Fingerprint: r.Fingerprint, AdmittedAt: r.AdmittedAt}
	completed := Receipt{ID: r.ID, CompletedAt: r.CompletedAt, Code: r.Code, Response: r.Response, Done: true}
	switch {
	case r.ID == protocol.MutationID{}:
		return ErrNoID
	case r.Kind < KindAdmit || r.Kind > KindSettled:
		return errors.New("unknown kind of record")
	case r.Kind == KindAdmit && !r.Receipt.equal(admitted),
		r.Kind == KindComplete && !r.Receipt.equal(completed),
		r.Kind == KindSettled && !r.Done:
		return fmt.Errorf("fields that %s does not have", r.Kind)
	case r.Kind != KindComplete && (r.Op == "" || r.Fingerprint == Fingerprint{}):
		return errors.New("op or fingerprint missing")
	case r.Shrunk && (len(r.Response) > shortResponse || !r.AdmittedAt.IsZero() || !r.CompletedAt.IsZero()):
		return errors.New("shrunk receipt with more than its code")
	case len(r.Op) > maxWord || len(r.Code) > maxWord || len(r.Response) > MaxResponse:
		return errors.New("op, code or response too long")
	case !utf8.ValidString(r.Op) || !utf8.ValidString(r.Code):
		return errors.New("op or code is not UTF-8") // no decoder would take it back
	}
	return nil
}

// A time is kept as the disk has it, so that a book is the same after replay;
// zero stands for none.
func stamp(t time.Time) time.Time { return fromDisk(toDisk(t)) }

func toDisk(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromDisk(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}
