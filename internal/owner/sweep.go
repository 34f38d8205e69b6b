package owner

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	// sweepTime bounds a sweep.
	sweepTime = 10 * time.Second
	// sweepPause is between two rounds when no child has ended meanwhile.
	sweepPause = time.Millisecond
	// maxSwept bounds the report.
	maxSwept = 256
)

// swept collects the report of a sweep.
type swept struct {
	met   []protocol.Swept
	index map[int]int // of a pid in met
}

// sweep kills the whole tree and reaps until the kernel says that there is no
// child left. That is the proof: an empty list of children is none, as processes
// are forked and handed over while it is read. Killing and reaping are done here,
// by turns, so that a child's pid stays its own between the two.
func (o *owner) sweep() protocol.SweepAnswer {
	s := swept{index: map[int]int{}}
	deadline := time.Now().Add(sweepTime)
	for {
		o.kill(&s)
		o.watch()
		if o.childless {
			return s.answer(true, nil)
		}
		if time.Now().After(deadline) {
			left, _ := procs.Descendants(os.Getpid())
			return s.answer(false, left)
		}
		select {
		case <-o.children:
		case <-time.After(sweepPause):
		}
	}
}

// kill sends SIGKILL to every descendant that it meets, and those in the group at
// once.
func (o *owner) kill(s *swept) {
	if o.target != nil {
		s.add(o.target.pid, "target")
		_ = o.target.signal(syscall.SIGKILL)
	}
	pids, _ := procs.Descendants(os.Getpid())
	var left []int
	for _, pid := range pids {
		k, ok := kinOf(pid)
		if !ok || k.zombie || o.target != nil && pid == o.target.pid {
			continue
		}
		how := "descendant"
		if k.ppid == os.Getpid() {
			how = "orphan"
		}
		s.add(pid, how)
		left = append(left, pid)
	}
	o.killGroup(s) // their names are known by now
	for _, pid := range left {
		_ = signalOne(pid, syscall.SIGKILL, living)
	}
}

func (s *swept) add(pid int, how string) {
	if _, met := s.index[pid]; met || len(s.met) >= maxSwept {
		return
	}
	name, _ := procs.Name(pid)
	s.index[pid] = len(s.met)
	// The name is the process's own choice of bytes; the report is text.
	s.met = append(s.met, protocol.Swept{
		PID: pid, Name: strings.ToValidUTF8(name, "?"), How: how, Signal: int(syscall.SIGKILL),
	})
}

// answer says of each process whether it is gone, and of those that are left
// who they are.
func (s *swept) answer(proved bool, left []int) protocol.SweepAnswer {
	alive := map[int]bool{}
	var names []string
	for _, pid := range left {
		alive[pid] = true
		name, _ := procs.Name(pid)
		names = append(names, fmt.Sprintf("%d (%s)", pid, strings.ToValidUTF8(name, "?")))
	}
	for i := range s.met {
		s.met[i].Gone = !alive[s.met[i].PID]
	}
	a := protocol.SweepAnswer{Proved: proved, Processes: s.met}
	if !proved {
		if len(names) > 16 {
			names = append(names[:16], fmt.Sprintf("and %d more", len(left)-16))
		}
		a.Partial = "still there after " + sweepTime.String() + ": " + strings.Join(names, ", ")
	}
	if a.Processes == nil {
		a.Processes = []protocol.Swept{}
	}
	return a
}
