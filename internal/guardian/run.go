package guardian

import (
	"errors"
	"flag"
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
	"github.com/seed-8e62c83d/mur/internal/version"
)

// idleLeave is how long a guardian whose session is over stays without a
// connection. The next client that needs one starts the next.
const idleLeave = 30 * time.Second

// ownerExecutable is the owner's file name, beside the guardian's own.
const ownerExecutable = "mur-owner"

// Run is mur-guardian: args as after the program's name, the exit status back.
// It is started by a client, serves one session and leaves when that is retired,
// idle after its end, or told to.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mur-guardian", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("session", "", "the session's `directory`")
	startupFD := flags.Int("startup-fd", -1, "`descriptor` that gets one frame: served, or why not")
	showVersion := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "mur-guardian serves one session. It is started by mur and by clients, not by hand.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *showVersion {
		fmt.Fprintln(stdout, version.String())
		return 0
	}
	if *path == "" || flags.NArg() > 0 {
		flags.Usage()
		return 2
	}
	absolute, err := filepath.Abs(*path) // before the working directory is left
	if err != nil {
		fmt.Fprintf(stderr, "mur-guardian: error: cannot find the session: %v\n", err)
		return 1
	}
	return serve(absolute, *startupFD, stderr)
}

// serve runs the guardian and tells on startupFD how it went.
func serve(path string, startupFD int, stderr io.Writer) int {
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
	if err := detach(startupFD); err != nil {
		tell(protocol.Ready{Error: &lifecycle.Failure{Stage: "environment", Message: err.Error()}})
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
	startup = nil
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
