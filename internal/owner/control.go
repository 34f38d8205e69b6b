package owner

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

// control carries out one message of the guardian, each mutation once.
//
// The order is: do it, answer, record. The record says that it was done, so it
// cannot come first; and no second owner could do it again after a crash in between,
// as the target ends with this one. It is for a guardian that was lost before it had
// made the answer durable, and this process remembers the same for as long as it
// lives: so nobody waits for it.
func (o *owner) control(c ownerlink.Control) {
	switch c.Kind {
	case ownerlink.ControlRelease:
		o.released = true
		return
	case ownerlink.ControlBye:
		o.next.bye, o.next.successor = true, c.Successor
		return
	}
	a, known := o.answers[c.Mutation]
	if known && c.Mutation != "" {
		o.tell(c, a)
		return
	}
	o.watch() // a target that has just ended gets no more signals
	record := lifecycle.OutcomeRecord{Applied: c.Mutation}
	a = o.carryOut(c, &record)
	if c.Mutation != "" {
		a.Mutation = c.Mutation
		o.answers[c.Mutation] = a
	}
	o.tell(c, a)
	record.Delivered = a.Delivery == protocol.Delivered
	_ = o.ledger.commit(record)
	if record.Consumed || record.Grace != nil || !o.ledger.settled() {
		o.publish() // else the guardian knows all of it
	}
}

// tell answers a control.
func (o *owner) tell(c ownerlink.Control, a ownerlink.Answer) {
	a.Seq = c.Seq
	o.answer = &a
	o.publish()
}

// carryOut does what c asks for and adds to the record what comes of it.
func (o *owner) carryOut(c ownerlink.Control, record *lifecycle.OutcomeRecord) ownerlink.Answer {
	switch c.Kind {
	case ownerlink.ControlSweep:
		o.taken = c.Mutation
		o.publish()
		o.asked.note(c.Mutation, syscall.SIGKILL)
		report := o.sweep()
		record.Consumed = report.Proved
		return ownerlink.Answer{Sweep: &report}
	case ownerlink.ControlTerm:
		if o.target == nil {
			return ownerlink.Answer{Delivery: protocol.NotNeeded}
		}
		err := o.term()
		if err == nil {
			o.asked.term = c.Mutation
			o.asked.note(c.Mutation, syscall.SIGTERM)
			record.Grace = o.beginGrace(c.Mutation, c.Grace)
		}
		return delivery(err)
	case ownerlink.ControlSignal:
		if o.target == nil {
			return ownerlink.Answer{Delivery: protocol.NotDelivered}
		}
		sig := syscall.Signal(c.Signal)
		reaches := o.reaches(c.Group)
		err := o.signal(sig, c.Group)
		if err == nil && reaches {
			o.asked.note(c.Mutation, sig)
		}
		return delivery(err)
	}
	return delivery(unix.EOPNOTSUPP)
}

func delivery(err error) ownerlink.Answer {
	if err == nil {
		return ownerlink.Answer{Delivery: protocol.Delivered}
	}
	a := ownerlink.Answer{Delivery: protocol.NotDelivered}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		a.Errno = int(errno)
	}
	return a
}

// term asks the target's process group to end; a pipeline has no single process
// to ask. A stopped target is continued, as it could not do what it is asked.
func (o *owner) term() error {
	group, err := unix.Getpgid(o.target.pid)
	if err == nil {
		err = signalGroup(group, syscall.SIGTERM)
	}
	if err == unix.ESRCH {
		err = o.target.signal(syscall.SIGTERM)
	}
	if err == nil && o.target.stopped {
		if signalGroup(group, syscall.SIGCONT) != nil {
			_ = o.target.signal(syscall.SIGCONT)
		}
	}
	return err
}

func (o *owner) signal(sig syscall.Signal, group protocol.SignalGroup) error {
	switch group {
	case protocol.GroupTarget:
		return o.target.signal(sig)
	case protocol.GroupAll:
		return signalEach(sig, living)
	case protocol.GroupForeground, "":
		pgrp, err := ptmx.ForegroundGroup(o.in.master)
		if err != nil {
			return err
		}
		return signalGroup(pgrp, sig)
	}
	return unix.EINVAL
}

// signalGroup signals a process group of the tree; ESRCH: it has no member
// there. The terminal remembers the number of a group that has no member any more,
// which may be a stranger's by now, and a target may even move into the group of
// this process: then its members are signalled one by one.
func signalGroup(pgrp int, sig syscall.Signal) error {
	if pgrp <= 1 {
		return unix.ESRCH
	}
	member := func(k kin) bool { return k.pgrp == pgrp && !k.zombie }
	if pgrp == unix.Getpgrp() {
		return signalEach(sig, member)
	}
	pids, err := procs.Descendants(os.Getpid())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if k, ok := kinOf(pid); ok && member(k) {
			return unix.Kill(-pgrp, sig)
		}
	}
	return unix.ESRCH
}

func living(k kin) bool { return !k.zombie }

// signalEach signals the descendants that match, each before its own. It is nil
// when at least one took the signal.
func signalEach(sig syscall.Signal, match func(kin) bool) error {
	pids, err := procs.Descendants(os.Getpid())
	if err != nil {
		return err
	}
	taken, failure := false, error(unix.ESRCH)
	for _, pid := range pids {
		switch err := signalOne(pid, sig, match); err {
		case nil:
			taken = true
		case unix.ESRCH:
		default:
			failure = err
		}
	}
	if taken {
		return nil
	}
	return failure
}

// signalOne signals pid if it is a descendant that matches. Only a child of this
// process keeps its pid until it is reaped here; any other's may be a stranger's
// by now, so a pidfd holds on to the process before its descent is looked at.
func signalOne(pid int, sig syscall.Signal, match func(kin) bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if k, ok := kinOf(pid); !ok || !match(k) || !ours(pid) {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}
