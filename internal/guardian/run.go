package guardian

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// ownerExecutable is the owner's file name, beside the guardian's own.
const ownerExecutable = "mur-owner"

// Config says what to serve.
type Config struct {
	Session string // the session's directory
	// StartupFD gets one frame: that it is served, or why not. Negative: none.
	StartupFD int
	// Adopt: an owner has started this guardian and has handed over its
	// descriptors.
	Adopt bool
	// Idle is how long a guardian stays that has no connection and no output. The
	// next client, or the next output, has the next one started.
	Idle time.Duration

	heir *heir
}

// Run serves a session and returns the exit code. It is started by a client or by
// the session's owner, and leaves when the session is retired, when it has nothing
// to do, or when it is told to.
func Run(c Config, stderr io.Writer) int {
	var startup *os.File
	if c.StartupFD >= 0 {
		startup = os.NewFile(uintptr(c.StartupFD), "startup")
		unix.CloseOnExec(c.StartupFD)
	}
	tell := func(r protocol.Ready) {
		r.Version, r.PID = protocol.Version, os.Getpid()
		if startup != nil {
			protocol.WriteFrame(startup, r)
			startup.Close()
		}
		if r.Error != nil {
			fmt.Fprintf(stderr, "mur-guardian: error: cannot serve the session: %s: %s\n", r.Error.Stage, r.Error.Message)
		}
	}
	var err error
	c.Session, err = filepath.Abs(c.Session) // before the working directory is left
	kept := []int{c.StartupFD}
	if c.Adopt {
		c.heir = inherited()
		for fd := ownerlink.GuardianChannel; fd <= ownerlink.GuardianListener; fd++ {
			kept = append(kept, fd)
		}
	}
	if err == nil {
		err = detach(kept)
	}
	if err != nil {
		tell(protocol.Ready{Error: asFailure(&stageError{"environment", err})})
		return 1
	}
	// Before anybody can know the pid: from then on a SIGTERM has its bye.
	hangups, ends := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP)
	signal.Notify(ends, syscall.SIGTERM)
	g, err := begin(c)
	if errors.Is(err, errAlready) {
		tell(protocol.Ready{Already: true})
		return 0
	}
	if err != nil {
		tell(protocol.Ready{Error: asFailure(err)})
		return 1
	}
	tell(protocol.Ready{Generation: g.session.state.Generation})
	g.run(ends)
	return 0
}

// stageError is a refusal to serve.
type stageError struct {
	stage string
	err   error
}

func (e *stageError) Error() string {
	return fmt.Sprintf("cannot serve the session: %s: %v", e.stage, e.err)
}
func (e *stageError) Unwrap() error { return e.err }

func asFailure(err error) *lifecycle.Failure {
	f := &lifecycle.Failure{Stage: "start", Message: err.Error()}
	var stage *stageError
	if errors.As(err, &stage) {
		f.Stage, f.Message = stage.stage, stage.err.Error()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}

// guardian is one process' service of one session.
type guardian struct {
	dir      *sessiondir.Dir
	lock     *os.File
	endpoint *endpoint
	session  *session
	first    resumed
	idle     time.Duration
	server   *server
	log      *slog.Logger
}

// run serves until the session lets the guardian go.
func (g *guardian) run(ends <-chan os.Signal) {
	go func() {
		<-ends
		g.session.post(leave{})
	}()
	go g.endpoint.keep(g.server)
	go g.leaveWhenIdle()
	g.log.Info("serving", "generation", g.session.state.Generation, "state", string(g.session.state.State))
	g.session.loop(g.first)
	g.leave()
}

// leave ends the service. The session lives on: what comes out of the terminal
// from here on waits there, and who connects waits at the socket, until the owner,
// who is told, sees that and starts the next guardian.
func (g *guardian) leave() {
	g.log.Info("leaving")
	o := g.session.owner
	g.endpoint.close(o != nil)
	g.server.shut()
	if dead := g.session.unwritten; dead != nil {
		dead.close()
	}
	if o == nil {
		return
	}
	o.capture.Stop()
	if err := o.conn.Send(ownerlink.Control{Kind: ownerlink.ControlBye, Successor: g.session.successor}, time.Second); err != nil {
		g.log.Warn("cannot say bye to the owner", "error", err)
	}
}

// retiredIdle is how long a guardian of a retired session stays without a client. It
// came for one that wants an answer again, or too late.
const retiredIdle = 2 * time.Second

// overslept is by how much a pause is longer when the guardian, or the machine, was
// stopped over it.
const overslept = time.Second

// leaveWhenIdle ends a guardian that nobody is connected to and whose session
// writes nothing. A session that is not started stays with it: nobody else could
// start the next; so does one that has not written everything down. One whose
// directory was removed does not wait, and leaves also with clients once the output
// has no file to go to: nobody would see any more of it.
func (g *guardian) leaveWhenIdle() {
	end, since := int64(-1), time.Now()
	removed := g.endpoint.removed
	for {
		if now := g.outputEnd(); now != end {
			end, since = now, time.Now()
		}
		d := g.server.board.read()
		idle := g.idle
		if d.State == lifecycle.Retired {
			idle = min(idle, retiredIdle)
		}
		alone := g.server.idle()
		rest := idle - min(alone, time.Since(since))
		pause := max(rest, idle/8)
		leaves := rest <= 0 && d.State != lifecycle.New && d.NotDurable == ""
		if removed == nil {
			leaves, pause = alone > 0 || g.captureFails(), time.Second
		}
		if leaves {
			g.session.post(leave{})
			return
		}
		began := time.Now()
		select {
		case <-time.After(pause):
			if time.Since(began) > pause+overslept {
				since = time.Now() // what has come meanwhile is taken first
			}
		case <-removed:
			removed = nil
		case <-g.session.left:
			return
		}
	}
}

func (g *guardian) captureFails() bool {
	c := g.session.term.capture.Load()
	return c != nil && c.State().Err != nil
}

func (g *guardian) outputEnd() int64 {
	if c := g.session.term.capture.Load(); c != nil {
		return c.End()
	}
	return 0
}
