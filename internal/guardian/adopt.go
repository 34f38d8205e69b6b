package guardian

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/peersock"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/receipts"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// adoptPatience is how long a new guardian tries to reach a living owner
	// before it serves without it.
	adoptPatience = 5 * time.Second
	// seekEvery is how often it tries after that.
	seekEvery = time.Second
	// firstWord is how long an owner may take to say its state on a new channel.
	firstWord = 2 * time.Second
)

// heir is what a new guardian of a running session is given: by the owner that
// started it, or over owner.sock.
type heir struct {
	conn                 *ownerlink.Conn
	master, pipeR, pipeW *os.File
	listener             *os.File // nil: bind a new one
	state                ownerlink.State
}

func (h *heir) close() {
	h.conn.Close()
	for _, f := range []*os.File{h.master, h.pipeR, h.pipeW, h.listener} {
		if f != nil {
			f.Close()
		}
	}
}

// inherited takes the descriptors that an owner gives to a guardian it starts.
func inherited() *heir {
	open := func(fd int) *os.File {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return nil
		}
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), fmt.Sprintf("inherited %d", fd))
	}
	channel := open(ownerlink.GuardianChannel)
	h := &heir{
		master: open(ownerlink.GuardianMaster), pipeR: open(ownerlink.GuardianPipeR), pipeW: open(ownerlink.GuardianPipeW),
	}
	// The owner may have none, and then the number is anything's.
	if on, err := unix.GetsockoptInt(ownerlink.GuardianListener, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && on != 0 {
		h.listener = open(ownerlink.GuardianListener)
	}
	if channel == nil || h.master == nil || h.pipeR == nil || h.pipeW == nil {
		return nil
	}
	h.conn = ownerlink.NewConn(channel)
	return h
}

// claim asks the session's owner for the session.
func claim(dir *sessiondir.Dir, self *os.File) (*heir, error) {
	exe, err := number(self)
	if err != nil {
		return nil, err
	}
	conn, err := ownerlink.Dial(dir.File())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := ownerlink.SendFiles(conn, ownerlink.Claim{Version: ownerlink.Version}, int(exe)); err != nil {
		return nil, fmt.Errorf("cannot claim the session: %w", err)
	}
	var h ownerlink.Handover
	files, err := ownerlink.ReceiveFiles(conn, &h)
	if err != nil {
		return nil, fmt.Errorf("cannot claim the session: %w", err)
	}
	want := 4
	if h.Listener {
		want++
	}
	if h.Refused == "" && len(files) != want {
		h.Refused = fmt.Sprintf("it gives %d descriptors instead of %d", len(files), want)
	}
	if h.Refused != "" {
		ownerlink.CloseFiles(files)
		return nil, fmt.Errorf("cannot claim the session: the owner refuses: %s", h.Refused)
	}
	got := &heir{conn: ownerlink.NewConn(files[0]), master: files[1], pipeR: files[2], pipeW: files[3]}
	if h.Listener {
		got.listener = files[4]
	}
	return got, nil
}

// listen waits for the owner's state on a new channel. Without it the channel is
// of no use.
func (h *heir) listen() error {
	if err := h.conn.ReceiveWithin(&h.state, firstWord); err != nil {
		return fmt.Errorf("cannot hear the owner: %w", err)
	}
	if h.state.Version != ownerlink.Version {
		return fmt.Errorf("cannot understand the owner: it speaks version %d of the channel", h.state.Version)
	}
	return nil
}

// errOwnerGone is returned when the owner ended while it was sought.
var errOwnerGone = errors.New("the owner has ended")

// reach gets the session from its owner: with what was inherited if that is of
// use, else over owner.sock, for as long as the owner lives and patience lasts.
func reach(dir *sessiondir.Dir, self *os.File, given *heir, patience time.Duration) (*heir, error) {
	deadline := time.Now().Add(patience)
	for try := 1; ; try++ {
		h, err := given, error(nil)
		given = nil
		if h == nil {
			h, err = claim(dir, self)
		}
		if err == nil {
			if err = h.listen(); err == nil {
				return h, nil
			}
			h.close()
		}
		if _, held, lockErr := dir.Holder(sessiondir.OwnerLock); lockErr == nil && !held {
			return nil, errOwnerGone
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		if try == 1 && errors.Is(err, os.ErrDeadlineExceeded) {
			_ = signalHolder(dir, syscall.SIGCONT) // somebody may have stopped it
		}
		<-time.After(10 * time.Millisecond)
	}
}

// own makes the guardian's hold on a living owner of what it was given.
func (h *heir) own(dir *sessiondir.Dir) (*owner, error) {
	id, held, err := dir.Holder(sessiondir.OwnerLock)
	if err != nil || !held {
		return nil, errors.Join(errOwnerGone, err)
	}
	pidfd, err := procs.Open(id)
	if err != nil {
		return nil, err
	}
	capture, err := adoptCapture(dir, h)
	if err != nil {
		pidfd.Close()
		return nil, err
	}
	return &owner{
		id: id, pidfd: pidfd, conn: h.conn, capture: capture,
		master: h.master, pipes: [2]*os.File{h.pipeR, h.pipeW},
	}, nil
}

// adoptCapture goes on capturing where the last one stopped. A capture that is
// just ending may still hold its lock.
func adoptCapture(dir *sessiondir.Dir, h *heir) (*output.Capture, error) {
	out, err := dir.Output()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	deadline := time.Now().Add(firstWord)
	for {
		capture, err := output.NewCapture(out, h.master, h.pipeR, h.pipeW, output.Options{History: h.state.History})
		if err == nil || !errors.Is(err, output.ErrBusy) || time.Now().After(deadline) {
			return capture, err
		}
		<-time.After(time.Millisecond)
	}
}

// endpointOf goes on listening on the socket that clients wait at, if its name
// still leads there.
func endpointOf(dir *sessiondir.Dir, h *heir) (*endpoint, error) {
	if h == nil || h.listener == nil {
		return bind(dir)
	}
	file := peersock.FileID{Dev: h.state.Socket.Dev, Ino: h.state.Socket.Ino}
	if !peersock.StillBound(dir.File(), sessiondir.GuardianSocket, file) {
		return bind(dir)
	}
	listener, err := peersock.FileListener(h.listener)
	if err != nil {
		return nil, err
	}
	e := newEndpoint(dir)
	e.listener, e.file = listener, file
	if err := e.watch(); err != nil {
		listener.Close()
		return nil, err
	}
	return e, nil
}

// entrust gives the listener to the owner for safe-keeping. Without it clients
// that come while there is no guardian are refused, and start one.
func (s *session) entrust() {
	listener, socket := s.spawner.listener, s.spawner.socket
	go func() {
		if err := offer(s.dir, listener, socket); err != nil {
			s.log.Warn("cannot give the listener to the owner", "error", err)
		}
	}()
}

func offer(dir *sessiondir.Dir, listener *net.UnixListener, socket ownerlink.Socket) error {
	f, err := listener.File()
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := number(f)
	if err != nil {
		return err
	}
	conn, err := ownerlink.Dial(dir.File())
	if err != nil {
		return err
	}
	defer conn.Close()
	c := ownerlink.Claim{Version: ownerlink.Version, Listener: &socket}
	if err := ownerlink.SendFiles(conn, c, int(n)); err != nil {
		return err
	}
	var answer ownerlink.Handover
	files, err := ownerlink.ReceiveFiles(conn, &answer)
	ownerlink.CloseFiles(files)
	return err
}

// takeOwner makes the owner that was reached the session's.
func (s *session) takeOwner(o *owner) {
	s.owner, s.seeking = o, false
	s.board.silent.Store(false)
	s.term.adopt(o)
	o.watch(s)
}

// seek goes on trying to reach an owner that lives and does not answer.
func (s *session) seek() {
	s.seeking = true
	s.board.silent.Store(true)
	go func() {
		for {
			h, err := reach(s.dir, s.spawner.self, nil, 0)
			if err == nil {
				o, err := h.own(s.dir)
				if err == nil {
					if h.listener != nil {
						h.listener.Close() // while it is open, clients wait there in vain
					}
					s.post(found{o, h.state})
					return
				}
				h.close()
			}
			if errors.Is(err, errOwnerGone) {
				s.post(ownerGone{})
				return
			}
			select {
			case <-time.After(seekEvery):
			case <-s.left:
				return
			}
		}
	}()
}

// found is an owner that was reached at last.
type found struct {
	owner *owner
	state ownerlink.State
}

func (e found) handle(s *session) {
	if s.owner != nil || !s.seeking {
		e.owner.close()
		return
	}
	s.takeOwner(e.owner)
	if e.state.Socket != s.spawner.socket {
		s.then(func(bool) { s.entrust() }) // clients wait at the old one
	}
	ownerSays{e.state}.handle(s)
	s.then(func(bool) { s.sendNext() })
}

// channelLost is the end of the channel to an owner that lives: it did not
// understand something, and can be claimed anew.
type channelLost struct{ conn *ownerlink.Conn }

func (e channelLost) handle(s *session) {
	if s.owner == nil || s.owner.conn != e.conn {
		return
	}
	go func() {
		for {
			h, err := reach(s.dir, s.spawner.self, nil, 0)
			if err == nil {
				s.post(channelFound{h})
				return
			}
			select {
			case <-time.After(seekEvery):
			case <-s.left:
				return
			}
			if errors.Is(err, errOwnerGone) {
				return // its end is seen by its pidfd
			}
		}
	}()
}

// channelFound is a new channel to the same owner.
type channelFound struct{ heir *heir }

func (e channelFound) handle(s *session) {
	if s.owner == nil {
		e.heir.close()
		return
	}
	s.log.Warn("the channel to the owner was lost, and there is another")
	s.owner.conn.Close()
	s.owner.conn = e.heir.conn
	for _, f := range []*os.File{e.heir.master, e.heir.pipeR, e.heir.pipeW, e.heir.listener} {
		if f != nil {
			f.Close() // we have the same already
		}
	}
	for i := range s.queue.pending {
		s.queue.pending[i].sent = false // it carries out each mutation once
	}
	s.owner.hear(s)
	ownerSays{e.heir.state}.handle(s)
	s.then(func(bool) { s.sendNext() })
}

// resume takes up what an earlier guardian had admitted and not completed, now
// that there is an owner to ask.
func (s *session) resume(pending []receipts.Receipt) {
	for _, r := range pending {
		switch protocol.Op(r.Op) {
		case protocol.OpStart:
			s.launch = &launching{id: r.ID}
			s.after(startPatience, startTooLong{})
			if !s.starting() {
				s.answerStart()
			}
		case protocol.OpTerm:
			grace := s.signals[r.ID].Grace
			s.then(func(bool) { s.enqueue(r.ID, ownerlink.Control{Kind: ownerlink.ControlTerm, Grace: grace}) })
		case protocol.OpSweep:
			s.then(func(bool) {
				if s.undecided() { // it was admitted because the start is answered
					s.sweepUnreported(r.ID)
					return
				}
				s.enqueue(r.ID, ownerlink.Control{Kind: ownerlink.ControlSweep})
			})
		case protocol.OpSignal:
			intent := s.signals[r.ID]
			s.then(func(bool) {
				s.enqueue(r.ID, ownerlink.Control{Kind: ownerlink.ControlSignal, Signal: intent.Signal, Group: intent.Group})
			})
		case protocol.OpRetire:
			s.then(func(bool) { s.releaseOwner(r.ID) })
		}
	}
}

// resumed is the first event of a guardian that took a running session over.
type resumed struct {
	pending []receipts.Receipt
	state   *ownerlink.State // nil: the owner was not reached
}

func (e resumed) handle(s *session) {
	if s.state.State == lifecycle.Reserved && s.owner != nil {
		s.step(lifecycle.Event{Kind: lifecycle.Spawn, OwnerPID: s.owner.id.PID})
	}
	if e.state != nil {
		ownerSays{*e.state}.handle(s)
	}
	s.resume(e.pending)
	if s.starting() && s.launch == nil { // an earlier guardian has answered that it is
		s.launch = &launching{answered: true}
	}
}

// adopt gives an owner's terminal to attachers, with the size that it has.
func (t *terminal) adopt(o *owner) {
	ptmx.Control(o.master, func(fd int) error {
		size, err := ptmx.GetSize(fd)
		if err == nil && size.Cols > 0 && size.Rows > 0 {
			t.mu.Lock()
			t.size = protocol.Size{Cols: int(size.Cols), Rows: int(size.Rows)}
			t.mu.Unlock()
		}
		return err
	})
	t.open(o)
}
