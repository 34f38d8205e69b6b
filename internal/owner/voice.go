package owner

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/seed-8e62c83d/mur/internal/ownerlink"
)

// voice tells the guardian the owner's state: the latest wins, the speaker never
// waits.
type voice struct {
	conn *ownerlink.Conn
	box  chan ownerlink.State // holds the one state that was not taken yet
	done chan struct{}

	mu   sync.Mutex // guards busy and what goes into box
	busy bool       // a state was not sent yet
}

func newVoice(conn *ownerlink.Conn, lost chan<- lostChannel) *voice {
	v := &voice{conn: conn, box: make(chan ownerlink.State, 1), done: make(chan struct{})}
	go v.speak(conn, lost)
	return v
}

// say sends s at once if that needs no waiting; else it replaces what was not sent
// yet. One goroutine says, so the box has room once it was emptied.
func (v *voice) say(s ownerlink.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.busy && v.conn.TrySend(s) {
		return
	}
	v.busy = true
	select {
	case <-v.box:
	default:
	}
	v.box <- s
}

func (v *voice) speak(conn *ownerlink.Conn, lost chan<- lostChannel) {
	defer close(v.done)
	for s := range v.box {
		if err := v.deliver(conn, s); err != nil {
			lost <- lostChannel{conn, err}
			for range v.box { // nobody listens any more
			}
			return
		}
		v.mu.Lock()
		v.busy = len(v.box) > 0
		v.mu.Unlock()
	}
}

// deliver sends s, or whatever replaces it while the guardian does not read.
func (v *voice) deliver(conn *ownerlink.Conn, s ownerlink.State) error {
	for {
		err := conn.Send(s, time.Second)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		select {
		case newer, open := <-v.box:
			if open {
				s = newer
			}
		default:
		}
	}
}

// hush lets the last state go out, for a moment at most: it is in the outcome
// file too.
func (v *voice) hush(patience time.Duration) {
	close(v.box)
	select {
	case <-v.done:
	case <-time.After(patience):
	}
}

// hear passes the guardian's controls on until the channel fails.
func hear(conn *ownerlink.Conn, controls chan<- ownerlink.Control, lost chan<- lostChannel) {
	for {
		var c ownerlink.Control
		if err := conn.Receive(&c); err != nil {
			lost <- lostChannel{conn, err}
			return
		}
		controls <- c
	}
}
