package ownerlink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// Conn is one end of the channel. Send and Receive may be used by two
// goroutines at once, each by one.
type Conn struct {
	f   *os.File
	buf []byte
}

// NewConn takes over f, a non-blocking SOCK_SEQPACKET socket.
func NewConn(f *os.File) *Conn {
	return &Conn{f: f, buf: make([]byte, MaxMessage)}
}

// Send writes v as one packet. A peer that does not read makes it fail with
// os.ErrDeadlineExceeded after patience; nothing of v was sent then.
func (c *Conn) Send(v any, patience time.Duration) error {
	packet, err := pack(v)
	if err != nil {
		return err
	}
	if err := c.f.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = c.f.Write(packet)
	return err
}

// TrySend is Send without any waiting, at the price of knowing nothing of why it
// failed: false, and nothing of v was sent.
func (c *Conn) TrySend(v any) bool {
	packet, err := pack(v)
	if err != nil {
		return false
	}
	raw, err := c.f.SyscallConn()
	if err != nil {
		return false
	}
	sent := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.Write(int(fd), packet)
		sent = err == nil
	})
	return err == nil && sent
}

func pack(v any) ([]byte, error) {
	packet, err := protocol.Marshal(v)
	if err == nil && len(packet) > MaxMessage {
		err = fmt.Errorf("cannot send %T: %d bytes are over the channel's %d", v, len(packet), MaxMessage)
	}
	return packet, err
}

// Receive waits for one packet. io.EOF means that nobody holds the other end
// any more; protocol.ErrMalformed that the packet was no message.
func (c *Conn) Receive(v any) error {
	n, err := c.f.Read(c.buf)
	if err != nil {
		if errors.Is(err, os.ErrClosed) {
			return io.EOF
		}
		return err
	}
	return protocol.Unmarshal(c.buf[:n], v)
}

// ReceiveWithin is Receive with a bound; os.ErrDeadlineExceeded when it is over.
func (c *Conn) ReceiveWithin(v any, patience time.Duration) error {
	if err := c.f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	defer c.f.SetReadDeadline(time.Time{})
	return c.Receive(v)
}

// Close ends the channel and wakes a waiting Receive.
func (c *Conn) Close() error { return c.f.Close() }
