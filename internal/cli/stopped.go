package cli

import (
	"context"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

// stoppedEvery is how often it is looked whether a guardian is stopped.
const stoppedEvery = 2 * time.Second

// tellStopped says, once, that the session's guardian or owner is stopped, while
// somebody waits for what only they can record.
func (d *deps) tellStopped(ctx context.Context, s *client.Session) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(stoppedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if pid := s.StoppedGuardian(); pid != 0 {
				d.sayStopped(called(s), pid)
				return
			}
			if pid := s.StoppedOwner(); pid != 0 {
				d.say("the owner of %s (pid %d) is stopped: the end of its program would not be seen", called(s), pid)
				d.say("hint: kill -CONT %d", pid)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (d *deps) sayStopped(name string, pid int) {
	d.say("the guardian of %s (pid %d) is stopped: nothing is recorded or answered meanwhile", name, pid)
	d.say("hint: mur recover --force %s", name)
}
