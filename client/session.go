package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// livePatience is how long a reader waits for what only a guardian knows.
	livePatience = 100 * time.Millisecond
	// The pauses between two attempts to reach a guardian.
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// Session is one session. It may be used by several goroutines.
type Session struct {
	client *Client
	dir    *sessiondir.Dir

	mu   sync.Mutex // guards link, held while a connection or guardian is made
	link *link
}

func newSession(c *Client, dir *sessiondir.Dir) *Session { return &Session{client: c, dir: dir} }

// ID is the session's id.
func (s *Session) ID() string { return string(s.dir.Bootstrap().Session) }

// Name is what people call the session; it may be empty.
func (s *Session) Name() string { return s.dir.Bootstrap().Name }

// Dir is the session's directory.
func (s *Session) Dir() string { return s.dir.Path() }

// Socket is the path of the guardian's socket.
func (s *Session) Socket() string { return filepath.Join(s.dir.Path(), sessiondir.GuardianSocket) }

// Close gives back what the Session holds here; the session itself goes on.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
	return s.dir.Close()
}

// Status is a session as its files and, if one lives, its guardian tell.
type Status struct {
	// Snapshot has a live part only when a guardian answered within 100 ms.
	Snapshot
	Dir string
	// GuardianPID and OwnerPID are 0 when no such process lives.
	GuardianPID, OwnerPID     int
	GuardianAlive, OwnerAlive bool
	// OwnerStopped: it lives and is stopped (SIGSTOP); the next change continues it.
	OwnerStopped bool
	// GuardianStopped: it lives and is stopped (SIGSTOP), see StoppedGuardian.
	GuardianStopped bool
	Created         time.Time
	OutputEnd       int64

	// recheck is when to look again though nothing happens; 0: never.
	recheck time.Duration
}

// Snapshot reads the session without starting anything.
func (s *Session) Snapshot(ctx context.Context) (Status, error) {
	st, err := s.fromFiles()
	if err != nil || !st.GuardianAlive || st.GuardianStopped {
		return st, err
	}
	ctx, cancel := context.WithTimeout(ctx, livePatience)
	defer cancel()
	// Once: what it takes to reach a guardian that is just leaving would start the
	// next. The files are the truth; what is missing stays unknown.
	r, err := s.askOnce(ctx, reading(), statusRequest)
	if err != nil || r.Error != nil || r.Snapshot == nil {
		return st, nil
	}
	live := r.Snapshot
	st.Live = live.Live
	if live.Revision >= st.Revision {
		st.Durable = live.Durable
	}
	return st, nil
}

// StoppedGuardian is the pid of a guardian that is stopped (SIGSTOP, a debugger): until
// it is continued or replaced (Recover with Force) nothing is recorded or answered. 0:
// there is none, or it runs. Nothing is asked of the guardian.
func (s *Session) StoppedGuardian() int { return s.stopped(sessiondir.GuardianLock) }

// StoppedOwner is the pid of an owner that is stopped: until it is continued, as the next
// change of the session does, the end of the target is not seen. 0 as above.
func (s *Session) StoppedOwner() int { return s.stopped(sessiondir.OwnerLock) }

func (s *Session) stopped(lock string) int {
	id, held, err := s.dir.Holder(lock)
	if err != nil || !held || !id.Stopped() {
		return 0
	}
	return id.PID
}

// Removed tells that the session's directory is no more: nobody can reach it again.
func (s *Session) Removed() bool { return sessiondir.Removed(s.dir.File()) }

func (s *Session) fromFiles() (Status, error) {
	v, err := s.dir.Read()
	if err != nil {
		return Status{}, err
	}
	return s.statusOf(v), nil
}

func (s *Session) statusOf(v *sessiondir.View) Status {
	b := s.dir.Bootstrap()
	st := Status{
		Snapshot: Snapshot{Durable: v.Snapshot}, Dir: s.dir.Path(), OutputEnd: v.OutputEnd,
		GuardianAlive: v.GuardianLive, OwnerAlive: v.OwnerLive, Created: time.Unix(0, b.Created),
		recheck: v.Recheck,
	}
	if v.GuardianLive {
		st.GuardianPID, st.GuardianStopped = v.Guardian.PID, v.Guardian.Stopped()
	}
	if v.OwnerLive {
		st.OwnerPID, st.OwnerStopped = v.Owner.PID, v.Owner.Stopped()
	}
	return st
}

// reach gives the connection for requests. With wake a guardian is started when
// none lives.
func (s *Session) reach(ctx context.Context, wake bool) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.alive() {
		return s.link, nil
	}
	s.link = nil
	conn, _, err := s.dial(ctx)
	if err != nil && wake && noListener(err) {
		if err = s.wake(ctx); err == nil {
			conn, _, err = s.dial(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	s.link = newLink(conn)
	return s.link, nil
}

// wake starts a guardian if none lives. The lock tells, never a failed connect. A
// session whose guardian has left, or was lost, normally has an owner that keeps
// the socket and starts the next: then nobody comes here.
func (s *Session) wake(ctx context.Context) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		_, held, err := s.dir.Holder(sessiondir.GuardianLock)
		if err != nil || held {
			return err
		}
		// One that is killed while it starts says nothing about the next.
		if _, err = s.spawnGuardian(ctx); !errors.Is(err, errStillborn) || attempt == spawnAttempts {
			return err
		}
		if rest(ctx, &pause) != nil {
			return err
		}
	}
}

func (s *Session) ensureGuardian(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wake(ctx)
}

// noListener tells that nobody accepts on the socket at the moment.
func noListener(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// passing tells that the same attempt may succeed a moment later.
func passing(err error) bool {
	return noListener(err) || errors.Is(err, errBroken) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// plan says how hard a request is to be tried.
type plan struct {
	wake  bool // start a guardian if none lives
	again bool // may be sent again when its answer was lost
}

func changing() plan { return plan{wake: true, again: true} }

func reading() plan { return plan{again: true} }

// busyError is the refusal of a guardian that has no room now, for the request or
// for the connection; nil: it was something else.
func busyError(r protocol.Response, err error) error {
	if err == nil && r.Error != nil && r.Error.Code == protocol.CodeBusy {
		return refusal(r.Error, r.Snapshot)
	}
	if CodeOf(err) == CodeBusy {
		return err
	}
	return nil
}

// ask sends one request and returns its answer, or the guardian's refusal as an
// *Error.
func (s *Session) ask(ctx context.Context, p plan, build func(id uint64) any) (protocol.Response, error) {
	pause := firstPause
	var refused error // the last time that there was an answer
	for {
		r, err := s.askOnce(ctx, p, build)
		// Busy had no effect and passes: a mutation is sent again, with its id, for
		// as long as it is wanted.
		if busy := busyError(r, err); busy != nil && p.wake && p.again {
			if refused = busy; rest(ctx, &pause) != nil {
				return r, busy
			}
			continue
		}
		switch {
		case err == nil && (r.Error == nil || r.Error.Code != protocol.CodeLeaving):
			if r.Error != nil {
				return r, refusal(r.Error, r.Snapshot)
			}
			return r, nil
		case ctx.Err() != nil && refused != nil:
			return r, refused
		case ctx.Err() != nil:
			return r, s.unreachable(ctx, nil)
		case err == nil:
			err = errors.New("it is leaving")
		case errors.Is(err, errBroken) && !p.again:
			return r, &Error{
				Code: CodeUnknownOutcome, Retry: RetryNever, cause: err,
				Message: "the connection was lost before the answer: whether it had its effect is unknown",
			}
		case !passing(err):
			return r, err
		}
		if !p.wake {
			if gone := s.whyNobody(ctx); gone != nil {
				return r, gone
			}
		}
		if rest(ctx, &pause) != nil {
			return r, s.unreachable(ctx, err)
		}
	}
}

func (s *Session) askOnce(ctx context.Context, p plan, build func(id uint64) any) (protocol.Response, error) {
	l, err := s.reach(ctx, p.wake)
	if err != nil {
		return protocol.Response{}, err
	}
	return l.call(ctx, build)
}

// whyNobody answers in place of a guardian that does not live, from the files;
// nil if one does, or does now: a session with an owner is never without for long.
func (s *Session) whyNobody(ctx context.Context) error {
	st, err := s.fromFiles()
	switch {
	case err != nil:
		return err
	case st.GuardianAlive:
		return nil
	case st.OwnerAlive:
		return s.ensureGuardian(ctx)
	case st.State.Final():
		return &Error{
			Code: CodeNotRunning, Retry: RetryNever, Snapshot: &st.Snapshot, Hint: "mur show " + s.ID(),
			Message: fmt.Sprintf("the session is %s", st.State),
		}
	default:
		return &Error{
			Code: CodeUnreachable, Retry: RetryLater, Snapshot: &st.Snapshot, Hint: "mur recover " + s.ID(),
			Message: fmt.Sprintf("session %s has no guardian", s.ID()),
		}
	}
}
