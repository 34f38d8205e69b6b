package guardian_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// opType is what an attachment does that an input request does, too.
const opType protocol.Op = "attach, input"

// operation is one thing that can be asked. It is asked on a connection of its own.
type operation struct {
	op  protocol.Op
	ask func(l *link, id protocol.MutationID) protocol.Response
	// alone: where it succeeds the session may be another one after it.
	alone    bool
	mutation bool
}

// operations are all of them (docs/protocol.md).
func operations() []operation {
	return []operation{
		{op: protocol.OpStatus, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.StatusRequest{Head: l.head(protocol.OpStatus)})
		}},
		{op: protocol.OpRead, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.ReadRequest{Head: l.head(protocol.OpRead)})
		}},
		{op: protocol.OpReceipts, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.ReceiptsRequest{Head: l.head(protocol.OpReceipts)})
		}},
		{op: protocol.OpSubscribe, ask: subscription},
		{op: protocol.OpCancel, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.Head{ID: 1, Op: protocol.OpCancel})
		}},
		{op: protocol.OpAttach, ask: attachment},
		{op: opType, ask: typing},
		{op: protocol.OpInput, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.InputRequest{Head: l.head(protocol.OpInput), Bytes: []byte("x")})
		}},
		{op: protocol.OpResize, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.ResizeRequest{Head: l.head(protocol.OpResize), Size: protocol.Size{Cols: 90, Rows: 30}})
		}},
		{op: protocol.OpStart, alone: true, mutation: true, ask: func(l *link, id protocol.MutationID) protocol.Response {
			return l.start(id, shell("exec sleep 1000"))
		}},
		{op: protocol.OpTerm, alone: true, mutation: true, ask: (*link).term},
		{op: protocol.OpSweep, alone: true, mutation: true, ask: (*link).sweep},
		{op: protocol.OpSignal, alone: true, mutation: true, ask: func(l *link, id protocol.MutationID) protocol.Response {
			return l.signal(id, syscall.SIGWINCH, protocol.GroupTarget)
		}},
		{op: protocol.OpRetire, alone: true, mutation: true, ask: (*link).retire},
		{op: protocol.OpLeave, alone: true, ask: func(l *link, _ protocol.MutationID) protocol.Response {
			return l.call(protocol.LeaveRequest{Head: l.head(protocol.OpLeave)})
		}},
	}
}

// subscription takes the first state of a subscription and ends it.
func subscription(l *link, _ protocol.MutationID) protocol.Response {
	l.t.Helper()
	r := l.call(protocol.SubscribeRequest{Head: l.head(protocol.OpSubscribe)})
	if r.Error != nil {
		return r
	}
	var f protocol.SubscribeFrame
	read(l.t, l.conn, &f)
	if f.Snapshot == nil || f.Snapshot.State != r.Snapshot.State || f.Last != f.Snapshot.State.Final() {
		l.t.Errorf("the subscription begins with %+v", f)
	}
	if !f.Last {
		if err := protocol.WriteFrame(l.conn, protocol.Head{ID: 2, Op: protocol.OpCancel}); err != nil {
			l.t.Error(err)
		}
	}
	closed(l.t, l.conn)
	return r
}

// attachment attaches; it ends by itself where the session has its final record.
func attachment(l *link, _ protocol.MutationID) protocol.Response {
	l.t.Helper()
	r := l.call(protocol.AttachRequest{Head: l.head(protocol.OpAttach), Size: &protocol.Size{Cols: 91, Rows: 31}, Nudge: true})
	switch {
	case r.Error != nil:
	case r.Snapshot.State.Final():
		if got := l.toEnd(); got.end.Record == nil || got.end.Error != nil {
			l.t.Errorf("the attachment ends with %+v", got.end)
		}
	default:
		var f protocol.AttachFrame
		if read(l.t, l.conn, &f); f.Size == nil {
			l.t.Errorf("the attachment begins with %+v", f)
		}
	}
	return r
}

// typing types through an attachment. One to a session that has its final record ends
// without that.
func typing(l *link, _ protocol.MutationID) protocol.Response {
	l.t.Helper()
	r := l.call(protocol.AttachRequest{Head: l.head(protocol.OpAttach)})
	if r.Error != nil || r.Snapshot.State.Final() {
		return r
	}
	in := protocol.AttachInput{Input: &protocol.InputFrame{Seq: 1, Bytes: []byte("x")}}
	if err := protocol.WriteFrame(l.conn, in); err != nil {
		l.t.Fatal(err)
	}
	for {
		var f protocol.AttachFrame
		read(l.t, l.conn, &f)
		switch {
		case f.Refused != nil:
			r.Error = f.Refused.Error
			return r
		case f.Ack != nil:
			return r
		case f.End != nil:
			l.t.Fatalf("the attachment ends with %+v", f.End)
		}
	}
}

// watched is a process that no operation may touch but those whose work that is: the
// target, or what it has left behind.
type watched struct {
	id      procs.Identity
	stopped bool
}

func watch(t *testing.T, pid int) watched {
	t.Helper()
	id, err := procs.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	return watched{id, id.Stopped()}
}

// intact: it is the same process, and runs or is stopped as before. Most signals end or
// stop a process that does not handle them, as these do not.
func (w watched) intact() bool { return w.id.Alive() && w.id.Stopped() == w.stopped }

// heir is a process that the target has left behind, in the target's process group.
func (s *session) heir() watched {
	s.t.Helper()
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		s.t.Fatal(err)
	}
	found := 0
	eventually(s.t, "what the target leaves behind", func() bool {
		pids, err := procs.Descendants(owner.PID)
		i := slices.IndexFunc(pids, func(pid int) bool { name, err := procs.Name(pid); return err == nil && name == "sleep" })
		if err == nil && i >= 0 {
			found = pids[i]
		}
		return found != 0
	})
	return watch(s.t, found)
}

// become waits until the session is in a state.
func (s *session) become(state lifecycle.State) {
	s.t.Helper()
	l := s.reach()
	defer l.conn.Close()
	eventually(s.t, "the session to be "+string(state), func() bool { return l.status().State == state })
}

// begin sends a start whose answer nobody waits for.
func (s *session) begin(spec protocol.StartSpec) *link {
	s.t.Helper()
	l, id := s.dial(), newID()
	s.admitted(l, protocol.StartRequest{Head: l.head(protocol.OpStart), MutationID: id, StartSpec: spec}, id)
	return l
}

// holdOpen makes whoever opens a file wait until the function that it returns is called.
func holdOpen(t *testing.T, path string) (letGo func()) {
	t.Helper()
	group, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY)
	if err == nil {
		if err = unix.FanotifyMark(group, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, path); err != nil {
			unix.Close(group)
		}
	}
	if err != nil {
		t.Skipf("cannot hold up an open (needs root and permission events of fanotify): %v", err)
	}
	return func() { unix.Close(group) } // who waits goes on
}

// reservedSession stays in the moment between the admission of a start and its owner: the
// launch waits for a file of the log that only the launch opens.
func reservedSession(t *testing.T) (*session, watched) {
	s := newSession(t)
	lock := filepath.Join(s.dir.Path(), sessiondir.OutputDir, "lock")
	fd, err := unix.Open(lock, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	letGo := holdOpen(t, lock)
	t.Cleanup(func() {
		letGo()
		// Whatever was asked meanwhile, the one launch goes on as if nothing had been.
		eventually(t, "the target", func() bool {
			v, err := s.dir.Read()
			return err == nil && v.Snapshot.State == lifecycle.Running
		})
	})
	s.begin(shell("exec sleep 1000"))
	s.become(lifecycle.Reserved)
	return s, watched{}
}

// startingSession has an owner that says nothing, and a start that is not answered.
func startingSession(t *testing.T, silent string) (*session, *link) {
	s := makeSession(t)
	s.bin = silent
	if r := s.startGuardian(); r.Error != nil {
		t.Fatalf("%+v", r.Error)
	}
	l := s.begin(shell("true"))
	s.become(lifecycle.Starting)
	return s, l
}

// exitedSession stays in the moment between the target's end and that of its output: the
// guardian was stopped over the first, and the owner is before the second.
func exitedSession(t *testing.T) (*session, watched) {
	s := newSession(t)
	wait, open := gate(t)
	target := watch(t, s.dial().run(fmt.Sprintf("sleep 1000 & read x <%s; echo last words; exit 7", wait)).TargetPID)
	heir, guardian := s.heir(), s.guardianPID()
	stop(t, guardian)
	open()
	// Its status is given back after it was recorded and told.
	eventually(t, "the target to be reaped", func() bool { return !living(target.id) })
	owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, owner.PID)
	if err := syscall.Kill(guardian, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.become(lifecycle.Exited)
	return s, heir
}

// retiredSession gets a new guardian with each connection.
func retiredSession(s *session) *session {
	l := s.reach()
	decode[protocol.RetireAnswer](s.t, l.retire(newID()))
	closed(s.t, l.conn)
	s.become(lifecycle.Retired)
	return s
}

// codes are how the operations of a state are refused. All others succeed.
type codes map[protocol.Op]protocol.Code

// row is a state and what is to be expected in it.
type row struct {
	name  string // where there are several of a state
	state lifecycle.State
	make  func(*testing.T) (*session, watched)
	codes codes
	// term is what a term tells where it succeeds, and proved what a sweep does.
	term   protocol.Delivery
	proved bool
	// touched are the operations that reach the watched process.
	touched []protocol.Op
	waits   bool // its operations or its making wait for a patience to end
}

// table is the protocol's promise for each state, from docs/protocol.md and
// docs/lifecycle.md. silent is where an owner is that says nothing.
func table(silent string) []row {
	const (
		conflict, notEnded, busy = protocol.CodeConflict, protocol.CodeNotEnded, protocol.CodeBusy
		notStarted, notRunning   = protocol.CodeNotStarted, protocol.CodeNotRunning
	)
	// Not a target any more: nothing can be typed, signalled or resized.
	over := codes{
		protocol.OpStart: conflict, protocol.OpSignal: notRunning, protocol.OpInput: notRunning, protocol.OpResize: notRunning,
	}
	alive := codes{protocol.OpStart: conflict, protocol.OpRetire: notEnded}
	controls := []protocol.Op{protocol.OpTerm, protocol.OpSweep, protocol.OpSignal}
	return []row{
		{
			state: lifecycle.New,
			make:  func(t *testing.T) (*session, watched) { return newSession(t), watched{} },
			codes: codes{
				protocol.OpTerm: notStarted, protocol.OpSweep: notStarted, protocol.OpSignal: notStarted,
				protocol.OpInput: notStarted, opType: notStarted,
			},
		},
		{
			state: lifecycle.Reserved, waits: true,
			make: reservedSession,
			codes: codes{ // there is no terminal yet
				protocol.OpStart: conflict, protocol.OpRetire: notEnded,
				protocol.OpTerm: busy, protocol.OpSweep: busy, protocol.OpSignal: busy,
				protocol.OpInput: notStarted, opType: notStarted,
			},
		},
		{
			state: lifecycle.Starting, waits: true,
			make: func(t *testing.T) (*session, watched) {
				s, _ := startingSession(t, silent)
				return s, watched{}
			},
			codes: codes{ // there is a terminal to type into
				protocol.OpStart: conflict, protocol.OpRetire: notEnded,
				protocol.OpTerm: busy, protocol.OpSweep: busy, protocol.OpSignal: busy,
			},
		},
		{
			name: "starting, and answered so", state: lifecycle.Starting, waits: true,
			make: func(t *testing.T) (*session, watched) {
				s, l := startingSession(t, silent)
				var r protocol.Response
				read(t, l.conn, &r)
				if a := decode[protocol.StartAnswer](t, r); a.State != lifecycle.Starting {
					t.Fatalf("%+v", a)
				}
				return s, watched{}
			},
			codes: codes{ // a sweep is possible from the answer on
				protocol.OpStart: conflict, protocol.OpRetire: notEnded,
				protocol.OpTerm: busy, protocol.OpSignal: busy,
			},
			proved: true,
		},
		{
			name: "starting, a capsule's runtime", state: lifecycle.Starting,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				spec := shell("exec sleep 1000")
				spec.Capsule = &lifecycle.Capsule{Name: "silent", Version: "1", SHA256: "0", Path: "/dev/null"}
				s.begin(spec)
				l, target := s.dial(), 0
				eventually(t, "the runtime", func() bool { target = l.status().TargetPID; return target != 0 })
				return s, watch(t, target)
			},
			codes: alive, term: protocol.Delivered, proved: true, touched: controls,
		},
		{
			state: lifecycle.Running,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				return s, watch(t, s.dial().run("exec sleep 1000").TargetPID)
			},
			codes: alive, term: protocol.Delivered, proved: true, touched: controls,
		},
		{
			state: lifecycle.Stopped,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				l := s.dial()
				target := l.run("exec sleep 1000").TargetPID
				decode[protocol.ControlAnswer](t, l.signal(newID(), syscall.SIGSTOP, protocol.GroupTarget))
				s.become(lifecycle.Stopped)
				return s, watch(t, target)
			},
			codes: alive, term: protocol.Delivered, proved: true, touched: controls,
		},
		{
			state: lifecycle.Exited, waits: true,
			make: exitedSession,
			codes: codes{
				protocol.OpStart: conflict, protocol.OpRetire: notEnded,
				protocol.OpSignal: notRunning, protocol.OpInput: notRunning, opType: notRunning, protocol.OpResize: notRunning,
			},
			term: protocol.NotNeeded, proved: true, touched: []protocol.Op{protocol.OpSweep},
		},
		{
			state: lifecycle.Ended,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				s.dial().run("sleep 1000 & exit 7")
				s.become(lifecycle.Ended)
				return s, s.heir()
			},
			// The owner, which a retirement lets go, hangs up.
			codes: over, term: protocol.NotNeeded, proved: true, touched: []protocol.Op{protocol.OpSweep, protocol.OpRetire},
		},
		{
			state: lifecycle.LaunchFailed,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				s.dial().start(newID(), protocol.StartSpec{Program: []byte("/no/such")})
				s.become(lifecycle.LaunchFailed)
				return s, watched{}
			},
			codes: over, term: protocol.NotNeeded, proved: true,
		},
		{
			state: lifecycle.Lost,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				s.dial().run("exec sleep 1000")
				owner, _, err := s.dir.Holder(sessiondir.OwnerLock)
				if err == nil {
					err = syscall.Kill(owner.PID, syscall.SIGKILL)
				}
				if err != nil {
					t.Fatal(err)
				}
				s.become(lifecycle.Lost)
				return s, watched{}
			},
			codes: over, term: protocol.NotDelivered,
		},
		{
			state: lifecycle.Retired,
			make: func(t *testing.T) (*session, watched) {
				s := newSession(t)
				s.dial().run("exit 7")
				s.become(lifecycle.Ended)
				return retiredSession(s), watched{}
			},
			codes: over, term: protocol.NotNeeded, proved: true,
		},
		{
			name: "retired, never started", state: lifecycle.Retired,
			make:  func(t *testing.T) (*session, watched) { return retiredSession(newSession(t)), watched{} },
			codes: over, term: protocol.NotNeeded, proved: true,
		},
	}
}

func TestEveryStateIsInTheTable(t *testing.T) {
	for _, state := range lifecycle.States() {
		if !slices.ContainsFunc(table(""), func(r row) bool { return r.state == state }) {
			t.Errorf("%s is not", state)
		}
	}
}

// Each operation, in each state, succeeds or is refused with the one code that says why.
// Nothing but term, sweep and signal reaches the target, and nothing does after its end.
func TestEveryOperationInEveryStateIsTyped(t *testing.T) {
	// Made before anything runs beside it: what is being written cannot be executed, and
	// whoever is just forked holds it open.
	silent := withOwner(t, "sleeps").bin
	for _, r := range table(silent) {
		name := r.name
		if name == "" {
			name = string(r.state)
		}
		try := func(name string, tries []operation) {
			t.Run(name, func(t *testing.T) {
				if r.waits {
					t.Parallel()
				}
				s, w := r.make(t)
				for _, o := range tries {
					r.check(s, w, o)
				}
			})
		}
		var together []operation
		for _, o := range operations() {
			if !o.alone {
				together = append(together, o)
				continue
			}
			try(name+"/"+string(o.op), []operation{o})
		}
		try(name+"/all that changes nothing", together)
	}
}

// check asks for one operation.
func (r row) check(s *session, w watched, o operation) {
	t := s.t
	t.Helper()
	want := r.codes[o.op]
	if o.op == protocol.OpCancel {
		want = protocol.CodeUnknownOp // it is one on a subscription only
	}
	l, id := s.reach(), newID()
	defer l.conn.Close()
	answer := o.ask(l, id)
	var code protocol.Code
	if answer.Error != nil {
		code = answer.Error.Code
	}
	if code != want {
		t.Errorf("%s is answered %q, want %q (%+v)", o.op, code, want, answer.Error)
	}
	if answer.Snapshot == nil {
		t.Errorf("%s: no snapshot is beside the answer", o.op)
	}
	if code != "" || !o.alone {
		r.left(s, o, id, answer.Error)
	}
	switch {
	case code != "":
	case o.op == protocol.OpSignal:
		if a := decode[protocol.ControlAnswer](t, answer); a.Delivery != protocol.Delivered {
			t.Errorf("signal: %+v", a)
		}
	case o.op == protocol.OpTerm:
		if a := decode[protocol.ControlAnswer](t, answer); a.Delivery != r.term {
			t.Errorf("term: %+v, want %s", a, r.term)
		}
	case o.op == protocol.OpSweep:
		proved := r.proved || r.state == lifecycle.Lost && s.group() != nil
		if a := decode[protocol.SweepAnswer](t, answer); a.Proved != proved || (a.Partial == "") != proved {
			t.Errorf("sweep: %+v, want proved: %v", a, proved)
		}
	case o.op == protocol.OpStart:
		if a := decode[protocol.StartAnswer](t, answer); a.State != lifecycle.Running {
			t.Errorf("start: %+v", a)
		}
	case o.op == protocol.OpRetire:
		if a := decode[protocol.RetireAnswer](t, answer); a.Record == nil {
			t.Error("retire: no record")
		}
	}
	if w.id.PID != 0 && !w.intact() && (code != "" || !slices.Contains(r.touched, o.op)) {
		t.Errorf("%s has reached process %d", o.op, w.id.PID)
	}
}

// left checks that what was refused, or only looks, types or resizes, has changed nothing.
// why is the refusal, or nil.
func (r row) left(s *session, o operation, id protocol.MutationID, why *protocol.Error) {
	t := s.t
	t.Helper()
	l := s.reach()
	defer l.conn.Close()
	now := l.status()
	if now.State != r.state {
		t.Errorf("after %s the session is %s", o.op, now.State)
	}
	if why == nil {
		return
	}
	if why.Code == protocol.CodeConflict && why.Holder != now.StartID {
		t.Errorf("%s: the launch belongs to %q and not to %q", o.op, now.StartID, why.Holder)
	}
	if !o.mutation || why.Retry == protocol.RetrySameID {
		return
	}
	got := l.call(protocol.ReceiptsRequest{Head: l.head(protocol.OpReceipts), MutationID: &id})
	if got.Error == nil || got.Error.Code != protocol.CodeNotFound {
		t.Errorf("%s is refused and has a receipt", o.op)
	}
}
