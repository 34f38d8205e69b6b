package guardian

import (
	"sync/atomic"
	"time"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// maxLiveMS is a day.
const maxLiveMS = 86_400_000

// stream makes the connection an attachment or a subscription. The request's
// answer is its first frame.
func (c *conn) stream(head protocol.Head, frame []byte) func() {
	refuse := func(code protocol.Code, message string) func() {
		c.note(head.ID, code, message)
		return nil
	}
	limits := c.server.limits
	if head.Op == protocol.OpSubscribe {
		r := new(protocol.SubscribeRequest)
		if err := protocol.Unmarshal(frame, r); err != nil || r.LiveMS < 0 || r.LiveMS > maxLiveMS {
			return refuse(protocol.CodeInvalid, "cannot subscribe: a field has an impossible value")
		}
		if !take(&c.server.subscribers, limits.Subscribers) {
			return refuse(protocol.CodeBusy, "cannot subscribe: too many subscribers")
		}
		return func() {
			defer c.server.subscribers.Add(-1)
			c.subscribe(r)
		}
	}
	r := new(protocol.AttachRequest)
	if err := protocol.Unmarshal(frame, r); err != nil {
		return refuse(protocol.CodeInvalid, "cannot attach: "+err.Error())
	}
	if r.Size != nil {
		if err := checkSize(*r.Size); err != nil {
			return refuse(protocol.CodeInvalid, "cannot attach: "+err.Error())
		}
	}
	if r.Back < 0 || r.Since != nil && *r.Since < 0 {
		return refuse(protocol.CodeInvalid, "cannot attach: an offset is negative")
	}
	if !take(&c.server.attachers, limits.Attachers) {
		return refuse(protocol.CodeBusy, "cannot attach: too many attachers")
	}
	return func() {
		defer c.server.attachers.Add(-1)
		c.attach(r)
	}
}

// take takes one of limit places.
func take(places *atomic.Int64, limit int) bool {
	if places.Add(1) > int64(limit) {
		places.Add(-1)
		return false
	}
	return true
}

// begin answers the request that made the connection a stream.
func (c *conn) begin(id uint64) error {
	c.net.SetWriteDeadline(time.Now().Add(c.server.patience()))
	defer c.net.SetWriteDeadline(time.Time{})
	return protocol.WriteFrame(c.net, protocol.Response{ID: id, Snapshot: c.status()})
}

// subscribe sends each newer state, the latest when the client is slow, until the
// one that carries the final record.
func (c *conn) subscribe(r *protocol.SubscribeRequest) {
	woken, stop := c.server.board.changes.listen()
	defer stop()
	if err := c.begin(r.ID); err != nil {
		return
	}
	closed := make(chan struct{})
	go c.server.contain(func() {
		defer close(closed)
		c.untilCancel()
	})
	defer func() {
		c.net.Close()
		<-closed
	}()
	var live <-chan time.Time
	if r.LiveMS > 0 {
		t := time.NewTicker(time.Duration(r.LiveMS) * time.Millisecond)
		defer t.Stop()
		live = t.C
	}
	for sent, first, onlyLive := r.Since, true, false; ; {
		d := c.server.board.read()
		if d.Revision > sent || first && r.Since == 0 || onlyLive {
			f := protocol.SubscribeFrame{Snapshot: &lifecycle.Snapshot{Durable: d}, Last: d.State.Final()}
			f.Skipped = sent > 0 && d.Revision > sent+1
			if r.LiveMS > 0 {
				f.Snapshot = c.status()
			}
			if err := protocol.WriteFrame(c.net, f); err != nil || f.Last {
				return
			}
			sent, first = d.Revision, false
		} else if d.State.Final() {
			protocol.WriteFrame(c.net, protocol.SubscribeFrame{Snapshot: &lifecycle.Snapshot{Durable: d}, Last: true})
			return
		}
		onlyLive = false
		select {
		case <-woken:
		case <-live:
			onlyLive = true
		case <-closed:
			return
		case <-c.server.leaving:
			return
		}
	}
}

// untilCancel reads until the client cancels or leaves.
func (c *conn) untilCancel() {
	for {
		frame, err := protocol.ReadFrame(c.net, nil)
		if err != nil {
			return
		}
		var head protocol.Head
		if err := protocol.Unmarshal(frame, &head); err != nil || head.Op == protocol.OpCancel {
			return
		}
	}
}
