package owner

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// lastWord is how long a leaving owner waits for its guardian to take its state.
	lastWord = 2 * time.Second
	// launchTries is how often the first record is tried, well within the time
	// that a guardian gives its owner.
	launchTries = 3
)

// owner is the state of the one goroutine that runs on the main thread.
type owner struct {
	in       *inherited
	build    string
	ledger   *ledger
	voice    *voice // nil while there is no guardian
	children chan os.Signal
	controls chan ownerlink.Control
	lost     chan lostChannel
	claims   chan claim
	presence *sessiondir.Presence
	channel  *ownerlink.Conn // to the guardian, nil while there is none
	next     succession
	timer    *time.Timer

	target    *target       // nil: not launched, or reaped
	group     *cgroup.Group // of the target and what it starts; nil: there is none
	launched  bool
	history   int64         // bytes of output to keep
	idle      time.Duration // for the guardians
	childless bool          // the kernel said that no descendant is left
	termios   *unix.Termios
	reports   *reports
	frames    <-chan lifecycle.Report // nil once the pipe has ended
	told      *lifecycle.Report       // what it said so far

	answers  map[string]ownerlink.Answer // by mutation, for the repetition
	answer   *ownerlink.Answer           // to the latest control
	taken    string                      // the mutation of the latest sweep
	asked    askers
	grace    grace
	stopSeen time.Time // of the latest commit of stopped
	suspect  time.Time // until then it is looked whether the directory is removed
	drain    *drain    // nil before the exit and after the drain
	released bool
	alone    *alone // captures when there is no guardian
}

// Run is the whole program. It returns the exit code: 0, or 2 when it was not
// started as an owner is, which it says on stderr.
func Run(stderr io.Writer, build string) int {
	// First of all: nothing that a guardian or its parent left open may reach
	// the target.
	err := procs.CloseOnExecFrom(3)
	children := catchSignals()
	if err == nil {
		err = procs.ClearMask()
	}
	if err == nil {
		err = procs.ResetSignals()
	}
	var in *inherited
	if err == nil {
		in, err = takeOver()
	}
	if err != nil {
		fmt.Fprintf(stderr, "mur-owner: cannot run: %v\nmur-owner is started by mur-guardian, never by hand\n", err)
		return 2
	}
	o := &owner{
		in: in, build: build, children: children, timer: time.NewTimer(0),
		controls: make(chan ownerlink.Control), lost: make(chan lostChannel, 8), claims: make(chan claim),
		answers: map[string]ownerlink.Answer{},
	}
	o.next.exe = in.guardian
	o.connect(in.channel)
	o.begin()
	if o.ledger != nil {
		o.loop()
	}
	o.leave()
	return 0
}

// catchSignals keeps the signals that a terminal or a shutdown sends from ending
// the owner. They are caught, never ignored: what is ignored stays ignored in the
// target.
func catchSignals() (children chan os.Signal) {
	children = make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	deaf := make(chan os.Signal, 1)
	signal.Notify(deaf, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGTSTP)
	return children
}

// begin launches the target, or records and reports why it could not.
func (o *owner) begin() {
	launch, err := o.prepare()
	if err != nil {
		o.fail(failed("owner", err))
		return
	}
	if !o.recordLaunching(o.makeGroup(launch.Session)) {
		o.fail(failed("outcome", o.ledger.cause))
		return
	}
	report := -1
	if launch.Report {
		if o.reports, report, err = openReports(); err != nil {
			o.fail(failed("owner", err))
			return
		}
	}
	oom, err := procs.OutOfMemoryKills()
	if err != nil {
		oom = math.MaxUint64 // then nothing is said about it
	}
	pid, pidfd, failure := spawn(launch, report, o.group)
	if failure != nil && o.group != nil {
		// Somebody may have taken the group away, and nothing was executed. Who finds
		// none will not take its emptiness for a proof.
		o.dissolveGroup()
		pid, pidfd, failure = spawn(launch, report, nil)
	}
	born := time.Now()
	if report >= 0 {
		unix.Close(report)
	}
	if failure != nil {
		o.fail(failure)
		return
	}
	o.target = &target{pid: pid, pidfd: pidfd, born: born, oom: oom}
	o.launched = true
	// Unreaped, the pid is the target's, dead or alive.
	id, err := procs.Of(pid)
	if err != nil {
		id = procs.Identity{PID: pid}
	}
	o.commit(lifecycle.OutcomeRecord{Running: &lifecycle.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}})
	if o.reports != nil {
		o.frames = o.reports.frames
		go o.reports.read()
	}
	// Only now: no control can come between the launch and its record.
	go hear(o.channel, o.controls, o.lost)
}

// prepare is all that has to be right before anything may be launched.
func (o *owner) prepare() (launch ownerlink.Launch, err error) {
	if err := unix.Chdir("/"); err != nil {
		return launch, fmt.Errorf("cannot change to the root directory: %w", err)
	}
	if o.ledger, err = newLedger(o.in.dir); err != nil {
		return launch, err
	}
	if err := procs.SetName("mur-owner"); err != nil {
		return launch, err
	}
	if err := procs.Undumpable(); err != nil {
		return launch, err
	}
	// Before the target exists: only what is born later has this process for its
	// last resort.
	if err := procs.BecomeSubreaper(); err != nil {
		return launch, err
	}
	self, err := procs.Self()
	if err != nil {
		return launch, err
	}
	forks, err := procs.Forks()
	if err != nil {
		return launch, err
	}
	if err := sessiondir.NoteHolder(o.in.lock, self, forks); err != nil {
		return launch, err
	}
	termios, err := ptmx.GetTermios(o.in.master)
	if err != nil {
		return launch, err
	}
	o.termios = &termios
	if launch, err = readLaunch(o.in.launch); err != nil {
		return launch, err
	}
	o.history, o.idle, o.next.socket = launch.History, launch.Idle, launch.Socket
	if o.next.listen, err = ownerlink.Listen(o.in.dir); err != nil {
		return launch, err
	}
	go acceptClaims(o.next.listen, o.claims)
	if o.presence, err = sessiondir.WatchPresence(o.in.dir); err != nil {
		return launch, err
	}
	return launch, nil
}

// recordLaunching has to succeed before the launch: a recovery takes an outcome
// without this record for the proof that nothing was ever started.
func (o *owner) recordLaunching(group string) bool {
	err := o.ledger.commit(lifecycle.OutcomeRecord{Launching: true, Cgroup: group})
	for try := 1; err != nil && try < launchTries; try++ {
		o.publish()
		<-time.After(retryEvery)
		err = o.ledger.flush()
	}
	if err == nil {
		return true
	}
	// Nothing was launched and nothing will be.
	o.ledger.pending = nil
	return false
}

// fail settles a launch that did not happen. It is reported even if it cannot be
// recorded: no later evidence can say otherwise.
func (o *owner) fail(f *lifecycle.Failure) {
	if o.ledger == nil {
		o.voice.say(ownerlink.State{Version: ownerlink.Version, Build: o.build, Outcome: lifecycle.Outcome{Failure: f}})
		return
	}
	o.childless = true
	o.commit(lifecycle.OutcomeRecord{Failure: f})
	go hear(o.channel, o.controls, o.lost)
}

// commit makes r durable and tells the guardian.
func (o *owner) commit(r lifecycle.OutcomeRecord) {
	_ = o.ledger.commit(r) // kept, retried and told by publish
	o.publish()
}

// publish tells the guardian what is durable.
func (o *owner) publish() {
	if o.voice == nil {
		return
	}
	s := ownerlink.State{
		Version: ownerlink.Version, Build: o.build, Outcome: o.ledger.durable,
		Answer: o.answer, Taken: o.taken, History: o.history, Socket: o.next.socket, NotDurable: o.ledger.trouble(),
	}
	s.Outcome.Applied, s.Outcome.Delivered = nil, nil
	if s.Outcome.Failure == nil && !o.launched {
		s.Outcome.Failure = o.ledger.known().Failure
	}
	o.voice.say(s)
}
