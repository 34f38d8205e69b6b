package guardian

import (
	"sync"
	"sync/atomic"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

// board is where the session's goroutine publishes and everybody reads.
type board struct {
	durable atomic.Pointer[lifecycle.Durable]
	silent  atomic.Bool // the owner did not answer in time
	// holding: output of an owner that has died waits for room in the log.
	holding atomic.Bool
	changes hub
}

func (b *board) publish(d lifecycle.Durable) {
	if old := b.durable.Load(); old != nil && old.Revision == d.Revision {
		return
	}
	b.durable.Store(&d)
	b.changes.wake()
}

func (b *board) read() lifecycle.Durable { return *b.durable.Load() }

// hub wakes whoever listens. A wake is a hint: many may become one.
type hub struct {
	mu        sync.Mutex // guards listeners
	listeners map[chan struct{}]struct{}
}

// listen returns a channel that receives after every wake from now on, and what
// ends it.
func (h *hub) listen() (woken <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[chan struct{}]struct{}{}
	}
	h.listeners[c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, c)
	}
}

func (h *hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
