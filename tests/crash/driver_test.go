package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	sessionName = "crashed"
	// patience bounds one operation, whatever has just died; brokenPatience where
	// the disk stays broken, so that waiting is in vain.
	patience       = 12 * time.Second
	brokenPatience = 1500 * time.Millisecond
	// spawnTries is how often a guardian may die while it is started.
	spawnTries = 3
)

// ack is one line of the driver: an operation was answered.
type ack struct {
	Step       int
	Verb       verb
	Answer     []byte `json:",omitempty"` // of a mutation, encoded as on the wire
	Running    bool   `json:",omitempty"` // a start said so
	NotDurable bool   `json:",omitempty"`
	Replayed   bool   `json:",omitempty"`
	Generation uint64 `json:",omitempty"`
	Revision   uint64 `json:",omitempty"`
	State      client.State
	Ahead      bool   `json:",omitempty"` // of what can be made durable, as the snapshot says
	Result     string `json:",omitempty"` // what the final record says of the target
	// Refused is why the operation was not carried out.
	Refused string `json:",omitempty"`
	Late    bool   `json:",omitempty"` // because time was over
	Code    string `json:",omitempty"`
}

// promised tells whether the answer must never be taken back.
func (a ack) promised() bool { return a.Refused == "" && !a.NotDurable }

func (a *ack) of(s *client.Snapshot) {
	if s == nil {
		return
	}
	a.Ahead = s.NotDurable != ""
	a.Generation, a.Revision, a.State = s.Generation, s.Revision, s.State
	if s.Record != nil {
		code := -1
		if s.Record.ExitCode != nil {
			code = *s.Record.ExitCode
		}
		a.Result = fmt.Sprintf("%s %d %d", s.Record.Result, code, s.Record.ExitSignal)
	}
}

func acks(said []byte) ([]ack, error) {
	var out []ack
	for line := range bytes.Lines(said) {
		var a ack
		if !bytes.HasSuffix(line, []byte("\n")) {
			return out, nil // torn: not said
		}
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("cannot read what the driver said: %w: %q", err, line)
		}
		out = append(out, a)
	}
	return out, nil
}

// errand is what a driver is to do.
type errand struct {
	World world
	// Patience is how long one step may take.
	Patience time.Duration
	// Only, when not empty, are the steps to do.
	Only []int
	// Model is the way in which a model of a session works, see model_test.go.
	Model order
}

// command is the driver as a program.
func (e errand) command() (argv, env []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, nil, err
	}
	// With the race detector a process otherwise stays a second longer.
	return []string{self}, []string{
		"GORACE=atexit_sleep_ms=0",
		driverVar + "=" + string(text), binVar + "=" + os.Getenv(binVar), "PATH=/usr/bin:/bin", "GOMAXPROCS=2",
	}, nil
}

// drive is the driver's main: each line goes out whole, after the answer.
func (e errand) drive() int {
	if e.Model != "" {
		return e.World.model(e.Model)
	}
	out := bufio.NewWriter(os.Stdout)
	p, err := newPlayer(e.World, e.Patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer p.close()
	steps := e.Only
	if steps == nil {
		for i := range e.World.scenario().steps {
			steps = append(steps, i)
		}
	}
	for _, i := range steps {
		a := p.play(i)
		if err := json.NewEncoder(out).Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if err := out.Flush(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if a.Refused != "" {
			return 3
		}
	}
	return 0
}

// player carries out the steps of a scenario as a client.
type player struct {
	world    world
	patience time.Duration
	client   *client.Client
	session  *client.Session
	runs     bool // the step before has started the target
}

func newPlayer(w world, patience time.Duration) (*player, error) {
	c, err := client.New(client.Options{Root: w.Root, Bin: os.Getenv(binVar)})
	if err != nil {
		return nil, err
	}
	return &player{world: w, patience: patience, client: c}, nil
}

func (p *player) close() {
	if p.session != nil {
		p.session.Close()
	}
	p.client.Close()
}

// play does one step; what went wrong is in the ack.
func (p *player) play(step int) ack {
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	a := ack{Step: step, Verb: p.world.scenario().steps[step]}
	p.witness()
	err := p.do(ctx, step, &a)
	// A guardian that dies while it is started is reported, with the advice to do
	// the same again.
	for try := 1; try < spawnTries && client.CodeOf(err) == client.CodeUnreachable; try++ {
		err = p.do(ctx, step, &a)
	}
	p.runs = a.Running && a.State == client.StateRunning
	if err != nil {
		a.Refused, a.Code, a.Late = err.Error(), string(client.CodeOf(err)), ctx.Err() != nil
	}
	return a
}

// witness gives a target that runs the time for its first line: ended before it,
// nobody could tell that it was executed. The start was answered already.
func (p *player) witness() {
	if p.runs {
		eventually(time.Second, func() bool {
			pids, err := p.world.launched()
			return err != nil || len(pids) > 0
		})
	}
}

func (p *player) do(ctx context.Context, step int, a *ack) error {
	op := p.world.scenario().op(step)
	if p.session == nil {
		s, err := p.client.Create(ctx, client.CreateOptions{Op: p.world.scenario().op(0), Name: sessionName})
		if err != nil {
			return err
		}
		p.session = s
	}
	s := p.session
	switch a.Verb {
	case create:
		return a.status(s.Snapshot(ctx))
	case start:
		r, err := s.Start(ctx, op, p.world.spec())
		a.Running = r.Answer.State == client.StateRunning
		return answered(a, r, err)
	case signal:
		r, err := s.Signal(ctx, op, int(syscall.SIGWINCH), client.GroupTarget)
		return answered(a, r, err)
	case term:
		r, err := s.Term(ctx, op, 0)
		return answered(a, r, err)
	case sweep:
		r, err := s.Sweep(ctx, op)
		return answered(a, r, err)
	case retire:
		r, err := s.Retire(ctx, op)
		return answered(a, r, err)
	case end:
		return a.status(s.WaitEnd(ctx))
	case killBoth:
		return p.world.kill(syscall.SIGKILL, sessiondir.OwnerLock, sessiondir.GuardianLock)
	case killGuardian:
		return p.world.kill(syscall.SIGKILL, sessiondir.GuardianLock)
	}
	return errors.New("no such step: " + string(a.Verb))
}

func (a *ack) status(st client.Status, err error) error {
	a.of(&st.Snapshot)
	return err
}

func answered[T any](a *ack, r client.Reply[T], err error) error {
	if err != nil {
		return err
	}
	a.of(r.Snapshot)
	a.NotDurable, a.Replayed = r.NotDurable, r.Replayed
	a.Answer, err = protocol.Marshal(r.Answer)
	return err
}
