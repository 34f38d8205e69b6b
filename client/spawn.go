package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// errStillborn is returned when a guardian ended before it had said whether it
// serves.
var errStillborn = errors.New("it ended before it was ready")

const (
	// spawnAttempts is how many guardians may be stillborn in a row.
	spawnAttempts = 5
	// readyPatience is how long a new guardian may take until it serves.
	readyPatience = 10 * time.Second
	// startupFD is the first of exec.Cmd.ExtraFiles in the child.
	startupFD = 3
)

// spawnGuardian starts a guardian for the session and waits until it serves, or
// has found that another one does (Already).
func (s *Session) spawnGuardian(ctx context.Context) (protocol.Ready, error) {
	program, err := s.client.guardian()
	if err != nil {
		return protocol.Ready{}, s.spawnError(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return protocol.Ready{}, s.spawnError(err)
	}
	defer r.Close()
	pidFD := -1
	cmd := exec.Command(program, "--session", s.dir.Path(), "--startup-fd", fmt.Sprint(startupFD))
	cmd.Dir = "/"
	cmd.Env = []string{} // not nil, which would mean ours
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidFD}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return protocol.Ready{}, s.spawnError(err)
	}
	go reap(cmd, pidFD)
	return s.awaitReady(ctx, r)
}

// reap collects the guardian's end, whenever that is. A pidfd in the poller
// costs no thread meanwhile, a plain Wait would.
func reap(cmd *exec.Cmd, pidFD int) {
	if pidFD >= 0 {
		if p, err := procs.Adopt(pidFD); err == nil {
			p.Wait(context.Background())
			p.Close()
		}
	}
	cmd.Wait() // its status says nothing that the files do not say better
}

func (s *Session) awaitReady(ctx context.Context, r *os.File) (protocol.Ready, error) {
	r.SetReadDeadline(time.Now().Add(readyPatience))
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	frame, err := protocol.ReadFrame(r, nil)
	var ready protocol.Ready
	if err == nil {
		err = protocol.Unmarshal(frame, &ready)
	}
	switch {
	case ctx.Err() != nil:
		return ready, s.unreachable(ctx, ctx.Err())
	case errors.Is(err, io.EOF):
		return ready, s.spawnError(fmt.Errorf("%w, see %s/guardian.log", errStillborn, s.dir.Path()))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ready, s.spawnError(fmt.Errorf("it was not ready after %v", readyPatience))
	case err != nil:
		return ready, s.spawnError(err)
	case ready.Error != nil:
		return ready, s.spawnError(fmt.Errorf("%s: %s", ready.Error.Stage, ready.Error.Message))
	}
	return ready, nil
}

func (s *Session) spawnError(err error) error {
	return &Error{
		Code: CodeUnreachable, Retry: RetrySameID, cause: err,
		Message: fmt.Sprintf("cannot start the guardian of %s: %v", s.ID(), err),
	}
}
