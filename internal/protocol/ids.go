package protocol

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// MutationID is the UUID (RFC 9562) that makes a mutation happen once. The nil
// UUID is no id: it is left out on the wire and refused there.
type MutationID [16]byte

// NewMutationID returns a fresh version 7 UUID for the given time.
func NewMutationID(now time.Time) MutationID {
	var id MutationID
	rand.Read(id[:]) // never fails, crypto/rand
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ParseMutationID reads any UUID in its canonical text form. The nil UUID is
// refused: it is what a forgotten id looks like.
func ParseMutationID(s string) (MutationID, error) {
	var id MutationID
	bad := fmt.Errorf("cannot read operation id %q: not a UUID", s)
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, bad
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, bad
	}
	copy(id[:], raw)
	if id == (MutationID{}) {
		return id, fmt.Errorf("cannot use operation id %q: the nil UUID names nothing", s)
	}
	return id, nil
}

// String is the canonical text form.
func (id MutationID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// MarshalText makes the id a text string on the wire and in JSON.
func (id MutationID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *MutationID) UnmarshalText(text []byte) error {
	parsed, err := ParseMutationID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// UnmarshalCBOR takes a text string and nothing else: a byte string, an empty
// one above all, would become an id without passing ParseMutationID.
func (id *MutationID) UnmarshalCBOR(item []byte) error {
	var text string
	if err := modes().dec.Unmarshal(item, &text); err != nil {
		return err
	}
	return id.UnmarshalText([]byte(text))
}

// SessionID names a session: "ses_" and the hexadecimal digits of the id of the
// operation that created it, so that a repeated creation finds the same session.
type SessionID string

const sessionPrefix = "ses_"

// NewSessionID returns the session that the operation id creates.
func NewSessionID(id MutationID) SessionID {
	return SessionID(sessionPrefix + hex.EncodeToString(id[:]))
}

// ParseSessionID checks that s is a whole session id.
func ParseSessionID(s string) (SessionID, error) {
	digits, ok := strings.CutPrefix(s, sessionPrefix)
	if !ok || len(digits) != 32 || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", fmt.Errorf("cannot read session id %q: want %s and 32 hexadecimal digits", s, sessionPrefix)
	}
	return SessionID(s), nil
}
