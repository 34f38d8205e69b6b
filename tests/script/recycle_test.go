package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// recycler is in a namespace with few pids.
type recycler struct {
	ctx       context.Context
	c         *client.Client
	dir       string
	strangers []procs.Identity
}

// playRecycler has strangers take the pids of what was part of a session, and has
// mur act on it then.
func playRecycler(args []string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longTime)
	defer cancel()
	c, err := client.New(client.Options{Root: filepath.Join(args[0], "s"), Bin: os.Getenv(binDirVar)})
	if err != nil {
		return 1, err
	}
	defer c.Close()
	r := &recycler{ctx: ctx, c: c, dir: args[0]}
	// Pids below this are never given again.
	hint(firstPID)
	for pid := 0; pid < firstPID; {
		if pid, err = r.forkOne(0, false); err != nil {
			return 1, err
		}
		r.end(pid)
	}
	for _, s := range []struct {
		name string
		run  func() error
	}{
		{"ended", func() error { return r.ended(false) }},
		{"ended, and the guardian killed", func() error { return r.ended(true) }},
		{"ended, the terminal held", r.held},
		{"lost", func() error { return r.lost(false) }},
		{"lost, and the guardian killed", func() error { return r.lost(true) }},
		{"running, the foreground group gone", r.stale},
		{"lost, and another session of its number", r.successor},
	} {
		err := s.run()
		fmt.Printf("%s: %s\n", s.name, strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
		for _, id := range r.strangers {
			r.end(id.PID)
		}
		r.strangers = nil
	}
	return 0, nil
}

// forkOne makes a process. One that gets the pid wanted leads a session of its own,
// with a child in it if so asked. All of them stay.
func (r *recycler) forkOne(want int, child bool) (int, error) {
	d := &unix.Timespec{Sec: 1}
	pid, errno := stranger(uintptr(want), child, d)
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

//go:norace
//go:nosplit
func stranger(want uintptr, child bool, d *unix.Timespec) (pid uintptr, errno syscall.Errno) {
	pid, errno = fork()
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	if self, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0); self == want {
		syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
		if child {
			fork()
		}
	}
	for range 600 {
		doze(d)
	}
	leave(0)
	return 0, 0
}

// hint spares most of the forks where the kernel lets itself be told which pid is
// the next (CONFIG_CHECKPOINT_RESTORE).
func hint(pid int) {
	os.WriteFile("/proc/sys/kernel/ns_last_pid", strconv.AppendInt(nil, int64(pid-1), 10), 0)
}

func (r *recycler) end(pid int) {
	syscall.Kill(pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// take forks until a stranger has the pid.
func (r *recycler) take(want int) error { return r.takeOver(want, false) }

func (r *recycler) takeOver(want int, child bool) error {
	if want < firstPID {
		return fmt.Errorf("process %d has a pid that is not given again", want)
	}
	for range 5 * pidMax {
		hint(want)
		pid, err := r.forkOne(want, child)
		if err != nil {
			return err
		}
		if pid == want {
			id, err := procs.Of(pid)
			r.strangers = append(r.strangers, id)
			// It is a session's leader in a moment, which is a group too.
			return errors.Join(err, await(patience, func() bool {
				group, err := unix.Getpgid(pid)
				return err == nil && group == pid
			}))
		}
		r.end(pid)
	}
	return fmt.Errorf("pid %d is not given again", want)
}

// intact tells whether all strangers live.
func (r *recycler) intact(after string) error {
	for _, id := range r.strangers {
		if !id.Alive() {
			return fmt.Errorf("after %s the stranger %d is dead", after, id.PID)
		}
	}
	return nil
}

// begin starts a shell script, and gives the session as it then is.
func (r *recycler) begin(spec client.StartSpec) (*client.Session, client.Status, error) {
	b := &bench{c: r.c}
	s, err := b.begin(r.ctx, spec)
	if err != nil {
		return nil, client.Status{}, err
	}
	st, err := s.Snapshot(r.ctx)
	if err == nil && (st.TargetPID == 0 || st.OwnerPID == 0 || st.GuardianPID == 0) {
		err = fmt.Errorf("it is not known who is who: %+v", st)
	}
	return s, st, err
}

// gone waits for the end of processes, also for that somebody reaps them.
func gone(pids ...int) error {
	return await(patience, func() bool {
		for _, pid := range pids {
			if there(pid) {
				return false
			}
		}
		return true
	})
}

// act does everything that could reach a target, which is no more.
func (r *recycler) act(s *client.Session, delivery client.Delivery, swept func(client.SweepAnswer) error) error {
	term, err := s.Term(r.ctx, client.NewMutationID(), 0)
	if err == nil && term.Answer.Delivery != delivery {
		err = fmt.Errorf("it was %s", term.Answer.Delivery)
	}
	if err != nil {
		return fmt.Errorf("term: %w", err)
	}
	if err := r.intact("term"); err != nil {
		return err
	}
	for _, group := range []client.SignalGroup{client.GroupTarget, client.GroupForeground, client.GroupAll} {
		_, err := s.Signal(r.ctx, client.NewMutationID(), int(syscall.SIGKILL), group)
		if client.CodeOf(err) != client.CodeNotRunning {
			return fmt.Errorf("signal %s: %w", group, err)
		}
		if err := r.intact("signal " + string(group)); err != nil {
			return err
		}
	}
	for range 2 {
		sweep, err := s.Sweep(r.ctx, client.NewMutationID())
		if err == nil {
			err = swept(sweep.Answer)
		}
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		if err := r.intact("sweep"); err != nil {
			return err
		}
		if delivery != client.NotDelivered { // with the owner there, the first left nobody
			swept = proved
		}
	}
	_, err = s.Retire(r.ctx, client.NewMutationID())
	return errors.Join(err, s.Purge(r.ctx), r.intact("retire"))
}

func proved(a client.SweepAnswer) error {
	if !a.Proved || a.Partial != "" || len(a.Processes) > 0 {
		return fmt.Errorf("%+v", a)
	}
	return nil
}

// unproved: with the owner the proof is lost, unless there is a control group.
func unproved(grouped bool) func(a client.SweepAnswer) error {
	return func(a client.SweepAnswer) error {
		if a.Proved != grouped || (a.Partial == "") != grouped || len(a.Processes) > 0 {
			return fmt.Errorf("%+v, and a control group: %v", a, grouped)
		}
		return nil
	}
}

// unsure: somebody has the session's number and may be a stranger, who is named and
// not touched.
func unsure(grouped bool) func(a client.SweepAnswer) error {
	return func(a client.SweepAnswer) error {
		if a.Proved != grouped || len(a.Processes) != 1 || a.Processes[0].Signal != 0 || a.Processes[0].Gone {
			return fmt.Errorf("%+v, and a control group: %v", a, grouped)
		}
		return nil
	}
}

// grouped tells whether a control group was made for the session's processes.
func grouped(s *client.Session) (bool, error) {
	dir, err := sessiondir.Open(s.Dir())
	if err != nil {
		return false, err
	}
	defer dir.Close()
	o, err := dir.Outcome()
	return err == nil && o != nil && o.Cgroup != "", err
}

// ended has strangers take the pids of target and owner after an ordinary end.
func (r *recycler) ended(guardianless bool) error {
	s, st, err := r.begin(shell("read x; exit 3"))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Input(r.ctx, []byte("\n")); err != nil {
		return err
	}
	end, err := s.WaitEnd(r.ctx)
	if err := errors.Join(err, exitedWith(end.Record, 3), gone(st.TargetPID, st.OwnerPID)); err != nil {
		return err
	}
	if guardianless {
		hit(st.GuardianPID, syscall.SIGKILL)
		if err := s.WaitGone(r.ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.take(st.TargetPID), r.take(st.OwnerPID)); err != nil {
		return err
	}
	return r.act(s, client.NotNeeded, proved)
}

// held has one take the target's pid while the owner stays for a descendant, which
// has left the target's group: the group's number would not be given again.
func (r *recycler) held() error {
	path := filepath.Join(r.dir, "holder")
	s, st, err := r.begin(shell(
		`setsid sh -c 'echo $$ >"$0"; exec sleep 300' "$1" &
		 until test -s "$1"; do sleep 0.01; done; read x; exit 3`, path))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Input(r.ctx, []byte("\n")); err != nil {
		return err
	}
	end, err := s.WaitEnd(r.ctx)
	if err := errors.Join(err, exitedWith(end.Record, 3), gone(st.TargetPID)); err != nil {
		return err
	}
	holder, err := notedPID(path)
	if err := errors.Join(err, r.take(st.TargetPID)); err != nil {
		return err
	}
	return r.act(s, client.NotNeeded, func(a client.SweepAnswer) error {
		if !a.Proved || len(a.Processes) != 1 || a.Processes[0].PID != holder {
			return fmt.Errorf("the holder is %d: %+v", holder, a)
		}
		return nil
	})
}

// lost has them do so after the owner was killed.
func (r *recycler) lost(guardianless bool) error {
	s, st, err := r.begin(program("/bin/sleep", "300"))
	if err != nil {
		return err
	}
	defer s.Close()
	pids := []int{st.TargetPID, st.OwnerPID}
	if guardianless { // first: the owner would start another
		hit(st.OwnerPID, syscall.SIGSTOP)
		hit(st.GuardianPID, syscall.SIGKILL)
		pids = append(pids, st.GuardianPID)
	}
	hit(st.OwnerPID, syscall.SIGKILL)
	end, err := s.WaitEnd(r.ctx)
	if err == nil && end.State != client.StateLost {
		err = fmt.Errorf("it is %s", end.State)
	}
	if err := errors.Join(err, gone(pids...)); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := r.take(pid); err != nil {
			return err
		}
	}
	group, err := grouped(s)
	return errors.Join(err, r.act(s, client.NotDelivered, unproved(group)))
}

// successor has a stranger take the owner's pid, make a session of that number with
// a child in it, and end: the child belongs to a session that is called as the
// owner's was.
func (r *recycler) successor() error {
	s, st, err := r.begin(program("/bin/sleep", "300"))
	if err != nil {
		return err
	}
	defer s.Close()
	hit(st.OwnerPID, syscall.SIGKILL)
	end, err := s.WaitEnd(r.ctx)
	if err == nil && end.State != client.StateLost {
		err = fmt.Errorf("it is %s", end.State)
	}
	if err := errors.Join(err, gone(st.TargetPID, st.OwnerPID), r.takeOver(st.OwnerPID, true)); err != nil {
		return err
	}
	leader := r.strangers[0]
	r.strangers = nil
	err = await(patience, func() bool {
		members, err := procs.SessionMembers(leader.PID)
		for _, pid := range members {
			if pid != leader.PID && err == nil {
				id, err := procs.Of(pid)
				r.strangers = append(r.strangers, id)
				return err == nil
			}
		}
		return false
	})
	r.end(leader.PID)
	if err := errors.Join(err, gone(leader.PID)); err != nil {
		return err
	}
	group, err := grouped(s)
	return errors.Join(err, r.act(s, client.NotDelivered, unsure(group)))
}

// playBackground lets its terminal's foreground group die out and stays.
func playBackground(args []string) (int, error) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := cmd.Run(); err != nil {
		return 1, err
	}
	if err := note(args[0], cmd.Process.Pid); err != nil {
		return 1, err
	}
	return 1, await(lifetime, func() bool { return false })
}

// stale has one take the pid that the terminal still remembers as that of its
// foreground group.
func (r *recycler) stale() error {
	path := filepath.Join(r.dir, "group")
	spec, err := actor("background", path)
	if err != nil {
		return err
	}
	s, st, err := r.begin(spec)
	if err != nil {
		return err
	}
	defer s.Close()
	var group int
	if err := await(patience, func() bool { group, err = notedPID(path); return err == nil }); err != nil {
		return err
	}
	if err := errors.Join(gone(group), r.take(group)); err != nil {
		return err
	}
	f, err := fields(st.TargetPID)
	if err != nil || f[5] != strconv.Itoa(group) {
		return fmt.Errorf("the terminal's foreground group is not %d: %s, %w", group, strings.Join(f, " "), err)
	}
	signal, err := s.Signal(r.ctx, client.NewMutationID(), int(syscall.SIGKILL), client.GroupForeground)
	if err != nil || signal.Answer.Delivery != client.NotDelivered {
		return fmt.Errorf("signal: %+v, %w", signal.Answer, err)
	}
	if err := r.intact("signal"); err != nil {
		return err
	}
	sweep, err := s.Sweep(r.ctx, client.NewMutationID())
	if err != nil || !sweep.Answer.Proved || len(sweep.Answer.Processes) != 1 {
		return fmt.Errorf("sweep: %+v, %w", sweep.Answer, err)
	}
	_, waitErr := s.WaitEnd(r.ctx)
	_, err = s.Retire(r.ctx, client.NewMutationID())
	return errors.Join(waitErr, err, s.Purge(r.ctx), r.intact("sweep"))
}
