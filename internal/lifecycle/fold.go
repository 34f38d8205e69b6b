package lifecycle

// OutcomeRecord is one record of the owner's outcome file. Each carries only
// what is new; [Outcome] is their sum.
type OutcomeRecord struct {
	At        int64        `json:"at"`
	Launching bool         `json:"launching,omitempty"` // before the target is cloned
	Cgroup    string       `json:"cgroup,omitempty"`    // with Launching: the directory of the group that was made for it
	Running   *Process     `json:"running,omitempty"`
	Report    *Report      `json:"report,omitempty"`
	Failure   *Failure     `json:"failure,omitempty"` // the target could not be started
	Stopped   *bool        `json:"stopped,omitempty"`
	Applied   string       `json:"applied,omitempty"`   // a mutation that was carried out
	Delivered bool         `json:"delivered,omitempty"` // and its signal was taken
	Grace     *GracePeriod `json:"grace,omitempty"`
	// CleanupRequested: a grace is over, the owner begins to sweep for this mutation.
	CleanupRequested string       `json:"cleanup_requested,omitempty"`
	Exit             *ExitStatus  `json:"exit,omitempty"`
	Drain            *DrainReport `json:"drain,omitempty"`
	Consumed         bool         `json:"consumed,omitempty"` // a sweep has proved that no descendant is left
	// Childless: the owner leaves because no descendant is left, proved.
	Childless bool `json:"childless,omitempty"`
}

// GracePeriod is what a term leaves its target.
type GracePeriod struct {
	By    string `json:"by"`    // the mutation
	Until int64  `json:"until"` // wall clock, nanoseconds since 1970; the owner has its own
}

// Report is what a capsule's runtime says about its guest. It is a label, never
// the result: that is the exit status.
type Report struct {
	Running bool     `json:"running,omitempty"` // before the guest's first instruction
	Refused *Failure `json:"refused,omitempty"` // instead of it
	Reason  string   `json:"reason,omitempty"`  // at the end
	// Closed: the runtime said nothing and will not.
	Closed bool `json:"closed,omitempty"`
}

// Outcome is what the owner has made durable about its target.
type Outcome struct {
	Launching bool         `json:"launching,omitempty"`
	Cgroup    string       `json:"cgroup,omitempty"`
	Running   *Process     `json:"running,omitempty"`
	RunningAt int64        `json:"running_at,omitempty"`
	Report    *Report      `json:"report,omitempty"`
	Failure   *Failure     `json:"failure,omitempty"`
	Stopped   bool         `json:"stopped,omitempty"`
	Applied   []string     `json:"applied,omitempty"`
	Delivered []string     `json:"delivered,omitempty"` // those of Applied whose signal was taken
	Grace     *GracePeriod `json:"grace,omitempty"`
	// CleanupRequested is the mutation for which a grace was over.
	CleanupRequested string       `json:"cleanup_requested,omitempty"`
	Exit             *ExitStatus  `json:"exit,omitempty"`
	Drain            *DrainReport `json:"drain,omitempty"`
	Consumed         bool         `json:"consumed,omitempty"`
	Childless        bool         `json:"childless,omitempty"`
}

// Add takes one more record into o.
func (o *Outcome) Add(r OutcomeRecord) {
	o.Launching = o.Launching || r.Launching
	if r.Cgroup != "" {
		o.Cgroup = r.Cgroup
	}
	if r.Running != nil {
		o.Running, o.RunningAt = r.Running, r.At
	}
	if r.Report != nil {
		o.Report = o.Report.with(*r.Report)
	}
	if r.Failure != nil {
		o.Failure = r.Failure
	}
	if r.Stopped != nil {
		o.Stopped = *r.Stopped
	}
	if r.Applied != "" {
		o.Applied = append(o.Applied, r.Applied)
		if r.Delivered {
			o.Delivered = append(o.Delivered, r.Applied)
		}
	}
	if r.Grace != nil {
		o.Grace = r.Grace
	}
	if r.CleanupRequested != "" {
		o.CleanupRequested = r.CleanupRequested
	}
	if r.Exit != nil {
		o.Exit = r.Exit
	}
	if r.Drain != nil {
		o.Drain = r.Drain
	}
	o.Consumed = o.Consumed || r.Consumed
	o.Childless = o.Childless || r.Childless
}

// with is the sum of two reports: the runtime's closing word does not unsay
// that it refused.
func (r *Report) with(more Report) *Report {
	if r == nil {
		return &more
	}
	sum := *r
	sum.Running = sum.Running || more.Running
	sum.Closed = sum.Closed || more.Closed
	if more.Refused != nil {
		sum.Refused = more.Refused
	}
	if more.Reason != "" {
		sum.Reason = more.Reason
	}
	return &sum
}

// launched tells whether a target may ever have existed: the owner records that
// it is about to launch before it does. It is false for a nil o.
func (o *Outcome) launched() bool {
	return o != nil && (o.Launching || o.Running != nil || o.Exit != nil)
}

// Evidence is what the files, the locks and the machine say about a session
// whose guardian does not live.
type Evidence struct {
	// Outcome is nil when the owner never wrote one.
	Outcome *Outcome
	// OwnerHeld: owner.lock is held, so an owner exists. Free is the proof that
	// none exists and none can appear.
	OwnerHeld bool
	// SameBoot: the machine was not restarted since.
	SameBoot bool
	// Output is the end of the captured output on the disk.
	Output int64
	Now    int64
}

// stepper applies events one after the other and collects the effects. An
// event that is not possible is evidence older than the state: it is passed over.
type stepper struct {
	d       Durable
	effects []Effect
	now     int64
}

func (s *stepper) step(e Event) {
	if e.At == 0 {
		e.At = s.now
	}
	if !Legal(s.d.State, e.Kind) {
		return
	}
	after, effects, err := Step(s.d, e)
	if err != nil {
		return
	}
	s.d = after
	s.effects = append(s.effects, effects...)
}

// Advance brings d up to what a living owner says. It returns d unchanged when
// the outcome holds nothing new.
func Advance(d Durable, o Outcome, now int64) (Durable, []Effect) {
	s := stepper{d: d, now: now}
	s.replay(o)
	return s.d, s.effects
}

// Fold brings d, the last thing a guardian committed, up to what the evidence
// says. A recovering guardian commits the result; a reader only shows it.
func Fold(d Durable, ev Evidence) (Durable, []Effect) {
	s := stepper{d: d, now: ev.Now}
	if !d.Started {
		return d, nil
	}
	if ev.Outcome != nil {
		o := *ev.Outcome
		o.Drain = o.Drain.until(ev.Output)
		s.replay(o)
	}
	if ev.OwnerHeld && ev.SameBoot {
		return s.d, s.effects
	}
	s.loseOwner(ev)
	s.step(Event{Kind: EndTerminal})
	return s.d, s.effects
}

// until is the report of an owner corrected by the log. The owner only looks at what
// another process reads, and may see a terminal empty that is not (n_tty gives what
// it queues to the reader first); where nobody was left who could write, what is in
// the log is the target's.
func (r *DrainReport) until(output int64) *DrainReport {
	if r == nil || r.Holders+r.Descendants > 0 || output <= r.EndOffset {
		return r
	}
	exact := *r
	exact.EndOffset = output
	return &exact
}

// replay steps through what the owner recorded, in the order in which it happened.
func (s *stepper) replay(o Outcome) {
	if s.d.State == Reserved && o.Launching {
		s.step(Event{Kind: Spawn})
	}
	if o.Failure != nil {
		s.step(Event{Kind: FailLaunch, Failure: o.Failure})
	}
	if o.Running != nil {
		s.step(Event{Kind: Identify, Target: o.Running, At: o.RunningAt})
		s.begin(o)
	}
	if o.Exit == nil && o.Stopped {
		s.step(Event{Kind: Stop})
	} else {
		s.step(Event{Kind: Continue})
	}
	if o.Grace != nil && o.Exit == nil && o.CleanupRequested == "" {
		s.step(Event{Kind: Grace, Until: o.Grace.Until})
	}
	if o.Exit != nil {
		s.step(Event{Kind: Exit, Exit: o.Exit, At: o.Exit.At})
	}
	if o.CleanupRequested != "" {
		s.step(Event{Kind: Account})
	}
	if o.Drain != nil {
		s.step(Event{Kind: Drain, Drain: o.Drain})
	}
	if o.Consumed {
		s.step(Event{Kind: Consume})
	}
}

// begin decides when a target counts as running: a plain program from its
// pid on, a capsule when its runtime has said so, or can no longer.
func (s *stepper) begin(o Outcome) {
	switch r := o.Report; {
	case s.d.Capsule != nil && r != nil && r.Refused != nil:
		s.step(Event{Kind: FailLaunch, Failure: r.Refused})
	case s.d.Capsule == nil, r != nil, o.Exit != nil:
		s.step(Event{Kind: Ready})
	}
}

// loseOwner settles a session that has no owner any more and, as owner.lock is
// free, never will.
func (s *stepper) loseOwner(ev Evidence) {
	// The lock is taken before the fork and is free: no record, no target.
	none := !ev.Outcome.launched() && s.d.Target == nil
	if none && ev.Outcome == nil && s.d.State == Reserved {
		s.step(Event{Kind: FailLaunch, Failure: &Failure{
			Stage: "guardian", Message: "the guardian was lost before an owner existed",
		}})
		return
	}
	if none && (s.d.State == Reserved || s.d.State == Starting) {
		s.step(Event{Kind: FailLaunch, Failure: &Failure{
			Stage: "owner", Message: "the owner was lost before it launched the target",
		}})
		return
	}
	reason := "the owner died"
	if !ev.SameBoot {
		reason = "the machine was restarted"
	}
	s.step(Event{Kind: LoseOwner, Reason: reason, Output: ev.Output})
}
