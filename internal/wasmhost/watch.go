package wasmhost

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	abandonAfter = 500 * time.Millisecond // a stopped guest that has not unwound by then never will
	gentleFor    = 20 * time.Second       // how long a SIGTERM lets a guest finish with its files
)

// watch is the goroutine that ends a run from outside: by a signal, a limit, or the caller's context.
type watch struct {
	r         *run
	ctx       context.Context
	begin     chan struct{} // closed at the guest's first instruction, where its limits start to count
	abandoned chan struct{} // closed when the guest is given up
	done      chan struct{}
	wg        sync.WaitGroup
	terms     int
}

func (r *run) startWatch(ctx context.Context) *watch {
	w := &watch{r: r, ctx: ctx, begin: make(chan struct{}), abandoned: make(chan struct{}), done: make(chan struct{})}
	w.wg.Go(w.loop)
	return w
}

func (w *watch) began() { close(w.begin) }

func (w *watch) end() {
	close(w.done)
	w.wg.Wait()
}

func (w *watch) loop() {
	limits, begin := w.r.limits, w.begin
	signals, canceled, stopped := w.r.cfg.Signals, w.ctx.Done(), w.r.stop.stopped
	var deadline, cpu, patience <-chan time.Time
	var cpuAtStart time.Duration
	var lastCalls uint64
	var gentleUntil time.Time
	for {
		select {
		case <-w.done:
			return
		case <-begin:
			begin = nil
			if limits.Deadline > 0 {
				deadline = time.After(limits.Deadline)
			}
			if limits.CPUSeconds > 0 {
				cpuAtStart = cpuTime()
				cpu = time.After(cpuLeft(limits.CPUSeconds, cpuAtStart))
			}
		case sig, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			w.signal(sig)
		case <-canceled:
			canceled = nil
			w.r.stop.stop(ending{Canceled, 143, "the run was canceled"}, true)
		case <-deadline:
			w.r.stop.stop(ending{DeadlineOver, 1, fmt.Sprintf("the deadline of %s has passed", limits.Deadline)}, true)
		case <-cpu:
			if cpuLeft(limits.CPUSeconds, cpuAtStart) <= cpuStep {
				w.r.stop.stop(ending{CPUOver, 1, fmt.Sprintf("the limit of %d s of processor time was reached", limits.CPUSeconds)}, true)
			} else {
				cpu = time.After(cpuLeft(limits.CPUSeconds, cpuAtStart))
			}
		case <-stopped:
			stopped = nil
			gentleUntil = time.Now().Add(gentleFor)
			lastCalls = w.r.stop.calls.Load()
			patience = time.After(abandonAfter)
		case <-patience:
			calls := w.r.stop.calls.Load()
			inCall := calls%2 == 1
			switch {
			case w.r.stop.hard.Load():
				close(w.abandoned)
				return
			case calls == lastCalls && !inCall:
				close(w.abandoned) // it does not call the host, so it would not notice
				return
			case time.Now().After(gentleUntil):
				w.r.stop.stop(ending{}, true)
			}
			lastCalls = calls
			patience = time.After(abandonAfter)
		}
	}
}

// signal does what a signal means. Only SIGTERM is gentle, and only once.
func (w *watch) signal(sig os.Signal) {
	switch sig {
	case unix.SIGINT:
		w.r.stop.stop(ending{Interrupted, 130, ""}, true)
	case unix.SIGQUIT:
		w.r.stop.stop(ending{Quit, 131, ""}, true)
	case unix.SIGHUP:
		w.r.stop.stop(ending{HungUp, 129, ""}, true)
	case unix.SIGTERM:
		w.terms++
		w.r.stop.stop(ending{Terminated, 143, ""}, w.terms > 1)
	}
}

const cpuStep = 10 * time.Millisecond

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuLeft is the least time in which the rest of the limit can be used up.
func cpuLeft(seconds int64, start time.Duration) time.Duration {
	left := time.Duration(seconds)*time.Second - (cpuTime() - start)
	return max(left/time.Duration(runtime.NumCPU()), cpuStep)
}
