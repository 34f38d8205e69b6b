package output

import (
	"sync"
	"sync/atomic"
)

// notice tells any number of goroutines of one change. While nobody asks, a
// change costs one atomic load.
type notice struct {
	asked  atomic.Bool
	mu     sync.Mutex // guards ch and closed
	ch     chan struct{}
	closed bool
}

// next gives a channel that is closed at the next change. Who asks must look at
// the changed thing after asking.
func (n *notice) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
		if n.closed {
			close(n.ch)
		}
	}
	n.asked.Store(true)
	return n.ch
}

// changed wakes those who asked before.
func (n *notice) changed() {
	if !n.asked.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.ch == nil {
		return
	}
	close(n.ch)
	n.ch = nil
	n.asked.Store(false)
}

// close wakes all, also those who will ask.
func (n *notice) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	if n.ch != nil {
		close(n.ch)
	}
}
