package protocol

import "github.com/seed-8e62c83d/mur/internal/lifecycle"

// Version is the protocol version spoken; MinVersion the oldest understood.
const (
	Version    = 1
	MinVersion = 1
)

// CapLifecycle is the capability that subscribe needs.
const CapLifecycle = "lifecycle/1"

// Capabilities lists what this version offers.
func Capabilities() []string { return []string{CapLifecycle} }

// Hello is the first frame of a connection, from the client.
type Hello struct {
	Version        int      `json:"version"`
	ExecutionToken []byte   `json:"execution_token,omitempty"`
	Authentication []byte   `json:"authentication"`
	Capabilities   []string `json:"capabilities,omitempty"`
}

// Role is what a connection may do.
type Role string

// The roles.
const (
	RoleController Role = "controller"
)

// Welcome answers a Hello; with Error set the connection is closed after it.
type Welcome struct {
	Version      int       `json:"version"`
	MinVersion   int       `json:"min_version"`
	Session      SessionID `json:"session,omitempty"`
	Role         Role      `json:"role,omitempty"`
	Capabilities []string  `json:"capabilities,omitempty"`
	Generation   uint64    `json:"generation,omitempty"`
	Limits       *Limits   `json:"limits,omitempty"`
	Error        *Error    `json:"error,omitempty"`
}

// Limits are the guardian's limits, each answered with CodeBusy when reached.
type Limits struct {
	Frame          int `json:"frame"` // bytes
	RequestConns   int `json:"request_connections"`
	Subscribers    int `json:"subscribers"`
	Attachers      int `json:"attachers"`
	InFlight       int `json:"in_flight"`        // requests per connection
	FrameTimeoutMS int `json:"frame_timeout_ms"` // for a whole frame once begun, and for taking an answer
	InputCredit    int `json:"input_credit"`     // bytes of input in flight per attacher
}

// DefaultLimits are the limits of a guardian that was not told otherwise.
func DefaultLimits() Limits {
	return Limits{
		Frame: MaxFrame, RequestConns: 16, Subscribers: 8, Attachers: 16, InFlight: 64,
		FrameTimeoutMS: 5000, InputCredit: 65_536,
	}
}

// Ready is the one frame a guardian writes to its startup descriptor: it serves
// (Error nil), or why it does not.
type Ready struct {
	Version    int    `json:"version"`
	PID        int    `json:"pid"`
	Generation uint64 `json:"generation,omitempty"`
	// Already: another guardian holds the session; that is success for who asked.
	Already bool               `json:"already,omitempty"`
	Error   *lifecycle.Failure `json:"error,omitempty"`
}
