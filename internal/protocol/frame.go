package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// MaxFrame is the largest CBOR item in a frame, in bytes.
const MaxFrame = 262_144

const headSize = 4

var (
	// ErrFrameSize is returned when a frame is empty or over MaxFrame; nothing
	// of it was read beyond its length.
	ErrFrameSize = errors.New("frame length is not within 1 to 262144 bytes")
	// ErrMalformed is returned when a frame is not the strict CBOR that its
	// place asks for.
	ErrMalformed = errors.New("malformed frame")
)

type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// modes is built once: it is immutable and on the path of every frame.
var modes = sync.OnceValue(newCodec)

// newCodec cannot fail: its options are constants.
func newCodec() codec {
	options := cbor.CoreDetEncOptions()
	options.TextMarshaler = cbor.TextMarshalerTextString
	options.NilContainers = cbor.NilContainerAsEmpty // a list is a list, also to other languages
	enc, err := options.EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  16,
		MaxArrayElements: 16_384,
		MaxMapPairs:      16_384,
		UTF8:             cbor.UTF8RejectInvalid,
		// Otherwise "ID" would set the field of "id" a second time, undetected.
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		IntDec:            cbor.IntDecConvertNone,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc: enc, dec: dec}
}

// Marshal encodes v deterministically, and always to something that [Unmarshal]
// reads: what is no UTF-8 in a text becomes question marks.
func Marshal(v any) ([]byte, error) {
	b, err := modes().enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", v, err)
	}
	repairText(b)
	return b, nil
}

// Unmarshal decodes exactly one item strictly: duplicate keys, indefinite
// lengths, tags, trailing bytes and excessive nesting are refused with
// [ErrMalformed].
func Unmarshal(data []byte, v any) error {
	if err := modes().dec.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	return nil
}

// ReadFrame reads one frame's item. It returns io.EOF only at a frame's start;
// a frame cut short is io.ErrUnexpectedEOF. begun is called once the first byte
// has arrived, for the deadline of the rest; it may be nil.
func ReadFrame(r io.Reader, begun func()) ([]byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return nil, err
	}
	if begun != nil {
		begun()
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return nil, unexpected(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return nil, fmt.Errorf("%w: %d", ErrFrameSize, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, unexpected(err)
	}
	return body, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendFrame appends v as a frame to buf.
func AppendFrame(buf []byte, v any) ([]byte, error) {
	body, err := Marshal(v)
	if err != nil {
		return buf, err
	}
	if len(body) > MaxFrame {
		return buf, fmt.Errorf("%w: %d", ErrFrameSize, len(body))
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(body)))
	return append(buf, body...), nil
}

// WriteFrame writes v as one frame in one Write.
func WriteFrame(w io.Writer, v any) error {
	buf, err := AppendFrame(nil, v)
	if err != nil {
		return err
	}
	_, err = w.Write(buf)
	return err
}
