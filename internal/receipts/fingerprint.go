package receipts

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Fingerprint tells whether two mutations ask for the same.
type Fingerprint [32]byte

// NewFingerprint is SHA-256 of three deterministic CBOR items in a row: the name
// of the op, its version, and the fields that the op knows, without request and
// mutation id. Fields that are optional and absent must be left out (omitempty),
// so that a later version may know more of them.
func NewFingerprint(op string, version int, fields any) (Fingerprint, error) {
	if op == "" || version < 1 {
		return Fingerprint{}, errors.New("cannot make fingerprint: op or version missing")
	}
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return Fingerprint{}, fmt.Errorf("cannot make fingerprint of %s: %w", op, err)
	}
	sum := sha256.New()
	enc := mode.NewEncoder(sum)
	for _, item := range []any{op, version, fields} {
		if err := enc.Encode(item); err != nil {
			return Fingerprint{}, fmt.Errorf("cannot make fingerprint of %s: %w", op, err)
		}
	}
	return Fingerprint(sum.Sum(nil)), nil
}
