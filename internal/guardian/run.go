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
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// idleLeave is how long a guardian whose session is over stays without a
// connection. The next client that needs one starts the next.
const idleLeave = 30 * time.Second

// ownerExecutable is the owner's file name, beside the guardian's own.
const ownerExecutable = "mur-owner"

// Run serves the session in the directory path, and tells on the descriptor
// startupFD (if it is not negative) in one frame that it does, or why not. It
// returns the exit code. It is started by a client and leaves when the session is
// retired, idle after its end, or told to.
func Run(path string, startupFD int, stderr io.Writer) int {
	var startup *os.File
	if startupFD >= 0 {
		startup = os.NewFile(uintptr(startupFD), "startup")
		unix.CloseOnExec(startupFD)
	}
	tell := func(r protocol.Ready) {
		r.Version, r.PID = protocol.Version, os.Getpid()
		if startup != nil {
			protocol.WriteFrame(startup, r)
			startup.Close()
		}
		if r.Error != nil {
			fmt.Fprintf(stderr, "mur-guardian: error: %s\n", r.Error.Message)
		}
	}
	path, err := filepath.Abs(path) // before the working directory is left
	if err == nil {
		err = detach(startupFD)
	}
	if err != nil {
		tell(protocol.Ready{Error: asFailure(&stageError{"environment", err})})
		return 1
	}
	g, err := begin(path)
	if errors.Is(err, errAlready) {
		tell(protocol.Ready{Already: true})
		return 0
	}
	if err != nil {
		tell(protocol.Ready{Error: asFailure(err)})
		return 1
	}
	tell(protocol.Ready{Generation: g.session.state.Generation})
	g.run()
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
		f.Stage = stage.stage
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
	server   *server
	log      *slog.Logger
}

// run serves until the session lets the guardian go.
func (g *guardian) run() {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP)
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() {
		<-ends
		g.session.post(leave{})
	}()
	go g.endpoint.keep(g.server)
	go g.leaveWhenIdle()
	g.log.Info("serving", "generation", g.session.state.Generation, "state", string(g.session.state.State))
	g.session.loop()
	g.endpoint.close()
	g.server.shut()
	g.log.Info("leaving")
}

// leaveWhenIdle ends a guardian whose session has nothing more to come, once
// nobody has been connected for a while.
func (g *guardian) leaveWhenIdle() {
	woken, stop := g.server.board.changes.listen()
	defer stop()
	for !g.server.board.read().TerminalSessionEnded {
		select {
		case <-woken:
		case <-g.session.left:
			return
		}
	}
	for {
		rest := idleLeave - g.server.idle()
		if rest <= 0 {
			g.session.post(leave{})
			return
		}
		select {
		case <-time.After(rest):
		case <-g.session.left:
			return
		}
	}
}

// noteSelf writes who holds guardian.lock, for people and for readers that wait
// for the guardian's end.
func (g *guardian) noteSelf() error {
	self, err := procs.Self()
	if err != nil {
		return err
	}
	return sessiondir.NoteHolder(g.lock, self)
}
