package wasmhost

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// The layout of poll_oneoff's arguments, see the witx of WASI preview 1.
const (
	subscriptionSize = 48
	eventSize        = 32

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2

	flagAbsolute = 1
	flagHangup   = 1

	typeDirectory = 3
	typeRegular   = 4

	maxSubscriptions = 1 << 16
)

// subscription is one thing the guest waits for, and how it stands.
type subscription struct {
	userdata [8]byte
	kind     byte
	alarm    alarm
	stream   *stream

	ready  bool
	errno  uint16
	nbytes uint64
	hangup bool
}

// pollOneoff waits for the first of clocks and descriptors. It replaces the runtime's, which cannot wait for an
// absolute time, for output, or be interrupted, and calls a clock fired that is not.
func (h *host) pollOneoff(_ context.Context, mod api.Module, stack []uint64) {
	in, out, count, result := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	mem := mod.Memory()
	if count == 0 || count > maxSubscriptions {
		stack[0] = errnoInval
		return
	}
	raw, ok := mem.Read(in, count*subscriptionSize)
	if !ok {
		stack[0] = errnoFault
		return
	}
	if _, ok := mem.Read(out, count*eventSize); !ok {
		stack[0] = errnoFault
		return
	}
	raw = append([]byte(nil), raw...) // the events may overlap it
	subs := make([]subscription, count)
	for i := range subs {
		h.readSubscription(&subs[i], raw[i*subscriptionSize:], mod, out)
	}
	h.awaitAny(subs)
	written := uint32(0)
	for i := range subs {
		if subs[i].ready {
			mem.Write(out+written*eventSize, subs[i].event())
			written++
		}
	}
	if !mem.WriteUint32Le(result, written) {
		stack[0] = errnoFault
		return
	}
	stack[0] = errnoSuccess
}

func (h *host) readSubscription(s *subscription, raw []byte, mod api.Module, scratch uint32) {
	copy(s.userdata[:], raw)
	s.kind = raw[8]
	switch s.kind {
	case eventClock:
		id, flags := binary.LittleEndian.Uint32(raw[16:]), binary.LittleEndian.Uint16(raw[40:])
		switch {
		case h.clocks.grant == capsule.ClockNone:
			s.fail(errnoNotcapable)
		case id > clockMonotonic || flags > flagAbsolute:
			s.fail(errnoInval)
		default:
			s.alarm = h.clocks.alarmFor(id, binary.LittleEndian.Uint64(raw[24:]), flags == flagAbsolute)
		}
	case eventFdRead, eventFdWrite:
		h.classify(s, binary.LittleEndian.Uint32(raw[16:]), mod, scratch)
	default:
		s.fail(errnoInval)
	}
}

// classify finds out what a descriptor is. Only the runtime knows its table of files, and only tells it by writing
// into guest memory, so the place of the events, written later anyway, serves as the paper.
func (h *host) classify(s *subscription, fd uint32, mod api.Module, scratch uint32) {
	if st := h.stdio(fd); st != nil {
		readable := fd == 0
		switch {
		case readable != (s.kind == eventFdRead):
			s.fail(errnoBadf)
		case st.fd < 0:
			s.ready = true
		default:
			s.stream = st
		}
		return
	}
	stack := []uint64{uint64(fd), uint64(scratch)}
	h.original("fd_fdstat_get").Call(context.Background(), mod, stack)
	kind, _ := mod.Memory().ReadByte(scratch)
	switch {
	case stack[0] != errnoSuccess:
		s.fail(uint16(stack[0]))
	case kind == typeRegular || kind == typeDirectory:
		s.ready = true
	default:
		s.fail(errnoNotsup)
	}
}

func (s *subscription) fail(errno uint16) { s.ready, s.errno = true, errno }

// awaitAny returns when at least one subscription is ready, with all marked that are.
func (h *host) awaitAny(subs []subscription) {
	h.stop.checkAny()
	settled := false
	for i := range subs {
		settled = settled || subs[i].ready
	}
	for {
		now := time.Now()
		timeout, fds := forever, []unix.PollFd(nil)
		for i := range subs {
			s := &subs[i]
			switch {
			case s.ready:
			case s.stream != nil:
				fds = append(fds, unix.PollFd{Fd: int32(s.stream.fd), Events: s.pollEvents()})
			default:
				timeout = min(timeout, s.alarm.left(now))
			}
		}
		if settled {
			timeout = 0
		}
		h.stop.wait(fds, timeout)
		if h.mark(subs, fds) || settled {
			return
		}
	}
}

func (s *subscription) pollEvents() int16 {
	if s.kind == eventFdWrite {
		return unix.POLLOUT
	}
	return unix.POLLIN
}

// mark notes which subscriptions are ready, and says whether any is.
func (h *host) mark(subs []subscription, fds []unix.PollFd) bool {
	now, any, next := time.Now(), false, 0
	for i := range subs {
		s := &subs[i]
		switch {
		case s.ready:
		case s.stream != nil:
			s.markStream(fds[next].Revents)
			next++
		case s.alarm.due(now):
			s.ready = true
			h.clocks.fired(s.alarm)
		}
		any = any || s.ready
	}
	return any
}

func (s *subscription) markStream(revents int16) {
	if revents == 0 {
		return
	}
	s.ready = true
	s.hangup = revents&unix.POLLHUP != 0
	switch {
	case revents&unix.POLLNVAL != 0:
		s.errno = errnoBadf
	case s.kind == eventFdWrite:
		s.nbytes = maxChunk
	default:
		if n, err := unix.IoctlGetInt(s.stream.fd, unix.TIOCINQ); err == nil && n > 0 {
			s.nbytes = uint64(n)
		}
	}
}

// event is the subscription's outcome as the guest reads it.
func (s *subscription) event() []byte {
	b := make([]byte, eventSize)
	copy(b, s.userdata[:])
	binary.LittleEndian.PutUint16(b[8:], s.errno)
	b[10] = s.kind
	if s.kind != eventClock {
		binary.LittleEndian.PutUint64(b[16:], s.nbytes)
		if s.hangup {
			binary.LittleEndian.PutUint16(b[24:], flagHangup)
		}
	}
	return b
}
