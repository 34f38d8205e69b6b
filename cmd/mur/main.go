// Command mur runs capsules and plain programs in terminal sessions that outlive
// whatever shows them, and controls these sessions.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/cli"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

func main() {
	// Guardians live for days; what the caller left open is not theirs to keep.
	// Nothing is lost if this fails.
	_ = procs.CloseOnExecFrom(3)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(signals, s)
		}
	}
	go func() { cancel(cli.Signal((<-signals).(syscall.Signal))) }()
	os.Exit(end(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())))
}

// end dies of the signal that ended the work, after the work has cleaned up: so
// who waits for mur sees what happened.
func end(code int) int {
	if code >= 0 {
		return code
	}
	s := syscall.Signal(-code)
	signal.Reset(s)
	// The runtime's own way to die of SIGQUIT is pages long.
	if s != syscall.SIGQUIT && syscall.Kill(os.Getpid(), s) == nil {
		<-time.After(time.Second) // it is on its way
	}
	return 128 + int(s)
}
