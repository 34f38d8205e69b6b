package owner

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// stopEvery bounds how often stopped and continued are recorded.
	stopEvery = 250 * time.Millisecond
	// emptyEvery is how often an owner that has nothing else to wait for looks
	// whether pipe and terminal were emptied.
	emptyEvery = 20 * time.Millisecond
	// After a name was taken out of the session's directory it is looked for so long
	// whether the directory itself goes too.
	removalTime  = 2 * time.Second
	removalPause = 50 * time.Millisecond
)

// loop runs until there is nothing left that needs an owner. It sleeps without a
// timer while a target runs and all is recorded.
func (o *owner) loop() {
	for {
		o.watch()
		o.settle()
		if o.over() {
			return
		}
		o.sleep()
		select {
		case <-o.children:
		case <-o.timer.C:
		case c := <-o.controls:
			o.control(c)
		case l := <-o.lost:
			o.loseGuardian(l)
		case c := <-o.claims:
			o.claimed(c)
		case <-o.needed():
			o.startGuardian()
		case frame, open := <-o.frames:
			o.report(frame, open)
		case <-o.namesTaken():
			o.suspect = time.Now().Add(removalTime)
		}
	}
}

// namesTaken tells when a name was taken out of the session's directory.
func (o *owner) namesTaken() <-chan os.Signal {
	if o.presence == nil {
		return nil
	}
	return o.presence.C
}

// watch takes in what happened to the target and reaps the dead.
func (o *owner) watch() {
	spare := 0
	if o.target != nil {
		if exit := o.target.look(); exit != nil {
			o.end(exit)
		} else {
			spare = o.target.pid
		}
	}
	if o.launched {
		o.childless = reapOrphans(spare)
	}
}

// end records how the target ended. This goroutine alone sends signals, and none
// to a target that has ended: with the record made, its pid may be given back.
func (o *owner) end(exit *lifecycle.ExitStatus) {
	record := lifecycle.OutcomeRecord{Exit: exit}
	if o.reports != nil {
		record.Report = o.lastReport()
		if record.Report != nil {
			exit.Reason = record.Report.Reason
		}
	}
	exit.AskedBy = o.asked.of(exit)
	o.grace = grace{}
	o.restoreTerminal()
	releaseSlave()
	o.drain = o.beginDrain()
	o.commit(record)
	o.target.reap()
	o.target = nil
	if o.next.waiting != nil {
		o.startGuardian() // there is an end to tell, and output to drain
	}
}

// restoreTerminal brings back the settings of before the launch. This process is
// in the background of its own terminal, where that costs SIGTTOU, or EIO, unless
// the signal is blocked (tty_ioctl(4)); the master makes no difference. The exit
// does not depend on it.
func (o *owner) restoreTerminal() {
	var block, before unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before) != nil {
		return
	}
	_ = ptmx.SetTermios(o.in.master, *o.termios)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}

// releaseSlave leaves the terminal to those who still use it: while the owner
// holds the slave nobody could see that no one else does.
func releaseSlave() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup2(null, fd)
	}
	unix.Close(null)
}

// lastReport takes in what is left in the report pipe; nil: nothing new. Somebody
// else may hold its writing end, so there is a bound.
func (o *owner) lastReport() *lifecycle.Report {
	before := o.told
	if o.frames != nil {
		_ = o.reports.f.SetReadDeadline(time.Now().Add(reportPatience))
		for frame := range o.frames {
			o.told = merge(o.told, &frame)
		}
		o.told = merge(o.told, nil)
		o.frames = nil
	}
	if o.told == before && (o.told == nil || o.ledger.known().Report == o.told) {
		return nil
	}
	return o.told
}

// report records what the runtime says while it runs. A reason is recorded with
// the exit that it explains.
func (o *owner) report(frame lifecycle.Report, open bool) {
	before := o.told
	if open {
		o.told = merge(o.told, &frame)
	} else {
		o.frames = nil
		o.told = merge(o.told, nil)
	}
	if o.told != before && (open && frame.Reason == "" || !open) {
		o.commit(lifecycle.OutcomeRecord{Report: o.told})
	}
}

// settle does what time has made due.
func (o *owner) settle() {
	if !o.ledger.settled() && !time.Now().Before(o.ledger.nextTry) {
		_ = o.ledger.flush()
		o.publish()
	}
	if !o.suspect.IsZero() {
		if time.Now().After(o.suspect) {
			o.suspect = time.Time{}
		}
		if o.voice == nil && !o.released && sessiondir.Removed(o.in.dir) {
			o.hangUp()
		}
	}
	if !o.grace.until.IsZero() && !time.Now().Before(o.grace.until) {
		o.escalate()
	}
	if due := o.next.retryAt; !due.IsZero() && !time.Now().Before(due) {
		o.startGuardian()
	}
	if o.stopDue() <= 0 {
		stopped := o.target.stopped
		o.stopSeen = time.Now()
		o.commit(lifecycle.OutcomeRecord{Stopped: &stopped})
	}
	if o.drain != nil {
		if report := o.drain.step(o); report != nil {
			o.drain = nil
			o.commit(lifecycle.OutcomeRecord{Drain: report})
		}
	}
}

// stopDue tells in what time a stop or its end is to be recorded; a stop that is
// over by then is never told.
func (o *owner) stopDue() time.Duration {
	if o.target == nil || o.target.stopped == o.ledger.known().Stopped {
		return time.Hour
	}
	return time.Until(o.stopSeen.Add(stopEvery))
}

// sleep arms the timer for the next thing that is due, or for none.
func (o *owner) sleep() {
	due := o.stopDue()
	if !o.ledger.settled() {
		due = min(due, max(0, time.Until(o.ledger.nextTry)))
	}
	if !o.next.retryAt.IsZero() {
		due = min(due, max(0, time.Until(o.next.retryAt)))
	}
	if !o.suspect.IsZero() {
		due = min(due, removalPause)
	}
	if !o.grace.until.IsZero() {
		due = min(due, max(0, time.Until(o.grace.until)))
	}
	if o.drain != nil {
		due = min(due, o.drain.pause())
	}
	if o.childless && o.drain == nil {
		due = min(due, emptyEvery)
	}
	if due == time.Hour {
		o.timer.Stop()
		return
	}
	o.timer.Reset(due)
}

// over tells whether the owner may leave: nothing runs that it answers for,
// nothing is unrecorded, and nobody's bytes are in the objects that it holds.
func (o *owner) over() bool {
	if o.released {
		return o.target == nil || o.refused()
	}
	if !o.launched && o.voice == nil {
		return true // without any record it is as certain that nothing was launched
	}
	if !o.childless || o.drain != nil || !o.ledger.settled() {
		return false
	}
	return !o.launched || o.emptied()
}

func (o *owner) refused() bool { return o.told != nil && o.told.Refused != nil }

// emptied: whatever the session wrote is in the log.
func (o *owner) emptied() bool {
	in, _, err := ptmx.Readable(o.in.master)
	waiting, err2 := unix.IoctlGetInt(o.in.pipeR, unix.TIOCINQ)
	if in || err != nil || waiting > 0 || err2 != nil {
		return false
	}
	return o.alone == nil || o.alone.finish()
}

// hangUp ends a session that nobody can ever reach again, as a terminal does that
// is closed. What ignores the hangup goes on without a terminal, and the owner
// stays until the target's end.
func (o *owner) hangUp() {
	if o.alone != nil {
		o.alone.stop()
		o.alone = nil
	}
	o.hangUpForeground()
	o.closeListener()
	// The kernel hangs up on the rest with the last descriptor of the master.
	for _, fd := range []*int{&o.in.master, &o.in.pipeR, &o.in.pipeW} {
		unix.Close(*fd)
		*fd = -1
	}
	o.next.stopWaiting()
	o.next.retryAt, o.released = time.Time{}, true
}

func (o *owner) hangUpForeground() {
	if group, err := ptmx.ForegroundGroup(o.in.master); err == nil {
		_ = signalGroup(group, syscall.SIGHUP)
		_ = signalGroup(group, syscall.SIGCONT)
	}
}

// leave lets go of everything. A released owner hangs up on what still lives, as
// a terminal that is closed does; the kernel would tell the foreground group only
// while the session's leader has the terminal.
func (o *owner) leave() {
	if !o.childless && o.released {
		o.hangUpForeground()
	}
	if o.childless && o.launched {
		o.commit(lifecycle.OutcomeRecord{Childless: true})
	}
	o.dissolveGroup()
	if o.voice != nil {
		o.voice.hush(lastWord)
	}
}
