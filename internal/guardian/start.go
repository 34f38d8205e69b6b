package guardian

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

const (
	// startPatience is how long a start waits for the target before it is
	// answered "starting".
	startPatience = 10 * time.Second

	defaultCols, defaultRows = 80, 24
	defaultUmask             = 0o022
	// maxCells is the largest size in either direction that the kernel takes.
	maxCells = 65_535
)

// launching is a start between its admission and its answer.
type launching struct {
	id       protocol.MutationID
	spec     protocol.StartSpec
	answered bool
}

// startTarget admits the one launch of the session.
func (s *session) startTarget(m *mutation, r *protocol.StartRequest) {
	if s.state.State != lifecycle.New {
		why := protocol.Refuse(protocol.CodeConflict,
			fmt.Sprintf("cannot start: the session's one launch belongs to operation %s", s.state.StartID))
		if s.state.StartID == "" {
			why = protocol.Refuse(protocol.CodeConflict, "cannot start: the session was retired without a start")
		}
		why.Holder = s.state.StartID
		s.refuse(m, why)
		return
	}
	why := checkSpec(r.StartSpec)
	if why == nil {
		why = s.checkDisk()
	}
	if why != nil {
		s.refuse(m, why)
		return
	}
	if !s.admit(m, func() { s.after(startPatience, startTooLong{}) }) {
		return
	}
	s.launch = &launching{id: m.id, spec: r.StartSpec}
	s.otherwise(func(*protocol.Error) { s.launch = nil })
	s.step(lifecycle.Event{
		Kind: lifecycle.Reserve, ID: m.id.String(), Program: programName(r.StartSpec), Capsule: r.Capsule,
	})
}

// launchSpace is more than what a launch writes before the target runs, in bytes.
const launchSpace = 256 << 10

// checkDisk refuses a start that would fail for want of space: the session has only
// one.
func (s *session) checkDisk() *protocol.Error {
	var st unix.Statfs_t
	err := atDir(s.dir, func(dir int) error { return unix.Fstatfs(dir, &st) })
	if err != nil || st.Blocks == 0 || int64(st.Bavail)*st.Bsize >= launchSpace {
		return nil
	}
	return protocol.Refuse(protocol.CodeNotDurable, fmt.Sprintf(
		"cannot start: the disk is full, less than %d KiB are free: free some space and repeat it", launchSpace>>10))
}

// checkSpec refuses what could never be launched.
func checkSpec(spec protocol.StartSpec) *protocol.Error {
	invalid := func(format string, args ...any) *protocol.Error {
		return protocol.Refuse(protocol.CodeInvalid, "cannot start: "+fmt.Sprintf(format, args...))
	}
	if len(spec.Program) == 0 {
		return invalid("no program is named")
	}
	for _, b := range append([][]byte{spec.Program, spec.Cwd}, spec.Args...) {
		if bytes.IndexByte(b, 0) >= 0 {
			return invalid("a NUL byte is in the program, the directory or an argument")
		}
	}
	for k, v := range spec.Env {
		if k == "" || bytes.ContainsAny([]byte(k), "=\x00") || bytes.IndexByte([]byte(v), 0) >= 0 {
			return invalid("environment variable %q has an impossible name or value", string(k))
		}
	}
	if len(spec.Cwd) > 0 && spec.Cwd[0] != '/' {
		return invalid("the working directory %q is not absolute", spec.Cwd)
	}
	if spec.Size != nil {
		if err := checkSize(*spec.Size); err != nil {
			return invalid("%v", err)
		}
	}
	if spec.Umask != nil && (*spec.Umask < 0 || *spec.Umask > 0o777) {
		return invalid("the umask is not within 0 to 0777")
	}
	if spec.History < 0 {
		return invalid("the history is negative")
	}
	return nil
}

func checkSize(size protocol.Size) error {
	if size.Cols < 1 || size.Rows < 1 || size.Cols > maxCells || size.Rows > maxCells {
		return fmt.Errorf("the size %dx%d is not within 1x1 to %dx%d", size.Cols, size.Rows, maxCells, maxCells)
	}
	return nil
}

// programName is what to show people: never arguments.
func programName(spec protocol.StartSpec) string {
	if spec.Capsule != nil {
		return spec.Capsule.Name
	}
	return filepath.Base(string(spec.Program))
}

// spawn makes the owner, off the session's goroutine.
func (s *session) spawn() {
	l := s.launch
	spec := ownerlink.Launch{
		Version: ownerlink.Version, Session: s.dir.Bootstrap().Session,
		Program: l.spec.Program, Args: l.spec.Args, Cwd: l.spec.Cwd, Env: l.spec.Env,
		Umask: defaultUmask, Report: l.spec.Capsule != nil, History: l.spec.History,
	}
	if l.spec.Umask != nil {
		spec.Umask = *l.spec.Umask
	}
	if len(spec.Cwd) == 0 {
		spec.Cwd = []byte("/")
	}
	if spec.History == 0 {
		spec.History = output.DefaultHistory
	}
	size := s.term.firstSize(l.spec.Size)
	go func() {
		o, failure := s.spawner.spawn(spec, size)
		s.post(spawned{o, failure})
	}()
}

// spawned ends the part of a start that the guardian can fail by itself.
type spawned struct {
	owner   *owner
	failure *lifecycle.Failure
}

func (e spawned) handle(s *session) {
	if e.failure != nil {
		s.step(lifecycle.Event{Kind: lifecycle.FailLaunch, Failure: e.failure})
		s.step(lifecycle.Event{Kind: lifecycle.EndTerminal})
		s.answerStart()
		return
	}
	s.owner = e.owner
	s.step(lifecycle.Event{Kind: lifecycle.Spawn, OwnerPID: e.owner.id.PID})
	s.term.open(e.owner)
	s.owner.watch(s)
}

// startTooLong answers a start whose owner has not reported in time.
type startTooLong struct{}

func (startTooLong) handle(s *session) {
	if s.launch != nil && s.starting() {
		s.answerStart()
	}
}

// answerStart completes the start with the state as it is now, once and for all.
func (s *session) answerStart() {
	if s.launch == nil || s.launch.answered {
		return
	}
	s.launch.answered = true
	if s.departs {
		s.after(0, leave{s.successor})
	}
	answer := protocol.StartAnswer{
		MutationID: s.launch.id, State: answerState(s.state.State),
		TargetPID: s.state.TargetPID, Error: s.state.Error,
	}
	if s.undecided() {
		answer.Error = &lifecycle.Failure{Stage: "owner", Message: "the owner has not reported yet"}
	}
	s.complete(s.launch.id, answer)
}

// answerState is the state in a start's answer: a target that ran is running for
// this purpose, whatever has become of it in the same instant.
func answerState(state lifecycle.State) lifecycle.State {
	switch state {
	case lifecycle.Reserved:
		return lifecycle.Starting
	case lifecycle.LaunchFailed, lifecycle.Lost, lifecycle.Starting:
		return state
	default:
		return lifecycle.Running
	}
}

// openSibling opens an executable beside the guardian's own. The
// descriptor pins the version for the guardian's whole life.
func openSibling(name string) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(filepath.Dir(self), name))
}
