package protocol

import "github.com/seed-8e62c83d/mur/internal/lifecycle"

// AttachRequest turns the connection into an attachment: server frames are
// [AttachFrame], client frames [AttachInput].
type AttachRequest struct {
	Head
	Size     *Size `json:"size,omitempty"`
	ReadOnly bool  `json:"read_only,omitempty"`
	// Since is the offset to begin at; absent: the present.
	Since *int64 `json:"since,omitempty"`
	// Back is how many bytes of the past to begin with when Since is absent.
	Back int64 `json:"back,omitempty"`
	// Nudge asks full-screen programs to repaint.
	Nudge bool `json:"nudge,omitempty"`
}

// AttachFrame is one frame to an attacher; exactly one field is set.
type AttachFrame struct {
	Output   *OutputFrame        `json:"output,omitempty"`
	Gap      *GapFrame           `json:"gap,omitempty"`
	Size     *Size               `json:"size,omitempty"`
	Snapshot *lifecycle.Snapshot `json:"snapshot,omitempty"`
	Ack      *AckFrame           `json:"ack,omitempty"`
	Refused  *RefusedFrame       `json:"refused,omitempty"`
	End      *EndFrame           `json:"end,omitempty"`
}

// OutputFrame is output as written. Offset is that of its first byte, Next the
// offset after the bytes of the log that it stands for.
type OutputFrame struct {
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"`
	Bytes  []byte `json:"bytes"`
}

// GapFrame says which output is no longer kept.
type GapFrame struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// AckFrame says that an input frame was written to the terminal.
type AckFrame struct {
	Seq     uint64 `json:"seq"`
	Written int    `json:"written"`
	Credit  int    `json:"credit"` // bytes that may be in flight now
}

// RefusedFrame says that an input frame was not written, or not whole.
type RefusedFrame struct {
	Seq     uint64 `json:"seq"`
	Written int    `json:"written"`
	Error   *Error `json:"error"`
}

// EndFrame is the last frame of an attachment: all output up to EndOffset of the
// record was sent before it.
type EndFrame struct {
	Record *lifecycle.Record `json:"record,omitempty"`
	// Error says why the attachment ends while the session does not.
	Error *Error `json:"error,omitempty"`
}

// AttachInput is one frame from an attacher; exactly one field is set.
type AttachInput struct {
	Input  *InputFrame `json:"input,omitempty"`
	Resize *Size       `json:"resize,omitempty"`
	Detach bool        `json:"detach,omitempty"`
}

// InputFrame is input with its number; numbers grow.
type InputFrame struct {
	Seq   uint64 `json:"seq"`
	Bytes []byte `json:"bytes"`
}
