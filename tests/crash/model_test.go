package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-8e62c83d/mur/internal/durable"
	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/receipts"
)

// A model of a session: one operation, a start, with the project's own journal and
// receipts and an owner that has its lock from whoever started it. It does in a
// page what guardian and owner do, in the right order or in a wrong one, so that
// the tests can show that they find the wrong ones without a fault in a program
// that anybody runs.

// order is how the model goes about its start.
type order string

const (
	rightOrder    order = "right"
	completeFirst order = "completed before the effect"
	admitLate     order = "admitted after the effect"
	lockLate      order = "owner.lock taken by the owner"

	// modelOwner and modelLateOwner are the model's owners.
	modelOwner     order = "owner"
	modelLateOwner order = "owner that locks"
)

// ownerPause is how long an owner that locks is kept waiting before its first
// statement. It makes a window wide that is there without it.
const ownerPause = 150 * time.Millisecond

type model struct {
	world   world
	order   order
	dir     *os.File
	journal *journal.File
	book    *receipts.Book
}

// model is the model's main.
func (w world) model(o order) int {
	var err error
	switch o {
	case modelOwner, modelLateOwner:
		err = w.modelOwner(o)
	default:
		m := &model{world: w, order: o, book: receipts.NewBook()}
		err = m.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// serve recovers, starts if nobody has, and says the answer.
func (m *model) serve() (err error) {
	if m.dir, err = os.Open(m.world.Root); err != nil {
		return err
	}
	defer m.dir.Close()
	if err := m.load(); err != nil {
		return err
	}
	defer m.journal.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(ack{Verb: create}); err != nil {
		return err
	}
	id := m.world.scenario().op(1)
	verdict, r := m.book.Check(id, "start", receipts.Fingerprint{1})
	answer := ""
	switch verdict {
	case receipts.Replay:
		answer = string(r.Response)
	case receipts.Pending:
		if answer, err = m.evidence(); err == nil {
			err = m.complete(answer)
		}
	default:
		answer, err = m.start()
	}
	if err != nil {
		return err
	}
	return out.Encode(ack{Step: 1, Verb: start, Running: answer == "running", Answer: []byte(answer)})
}

func (m *model) load() error {
	j, records, err := journal.Open(m.dir, "journal")
	if errors.Is(err, fs.ErrNotExist) {
		j, err = journal.Create(m.dir, "journal")
	}
	if err != nil {
		return err
	}
	m.journal = j
	for _, data := range records {
		r, err := receipts.DecodeRecord(data)
		if err == nil {
			err = m.book.Apply(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start is the one thing whose order counts.
func (m *model) start() (string, error) {
	steps := []func() error{m.admit, m.launch, func() error { return m.complete("running") }}
	switch m.order {
	case completeFirst:
		steps[1], steps[2] = steps[2], steps[1]
	case admitLate:
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", err
		}
	}
	return "running", nil
}

func (m *model) admit() error {
	r, err := m.book.Admit(m.world.scenario().op(1), "start", receipts.Fingerprint{1}, time.Now())
	return m.append(r, err)
}

func (m *model) complete(answer string) error {
	r, err := m.book.Complete(m.world.scenario().op(1), "ok", []byte(answer), time.Now())
	return m.append(r, err)
}

func (m *model) append(r receipts.Record, err error) error {
	if err != nil {
		return err
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	return m.journal.Append(data)
}

// launch starts an owner and waits for its end. Its lock is its own before it
// exists, except in the order in which it is not.
func (m *model) launch() error {
	lock, err := os.OpenFile(filepath.Join(m.world.Root, "owner.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	role := modelLateOwner
	if m.order != lockLate {
		role = modelOwner
		if ok, err := procs.Lock(lock); err != nil || !ok {
			return errors.Join(err, errors.New("another owner lives"))
		}
	}
	argv, env, err := errand{World: m.world, Model: role}.command()
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0])
	cmd.Env, cmd.ExtraFiles = env, []*os.File{lock}
	return cmd.Run()
}

// modelOwner records that it launches, and launches.
func (w world) modelOwner(o order) error {
	if o == modelLateOwner {
		<-time.After(ownerPause)
		if ok, err := procs.Lock(os.NewFile(3, "lock")); err != nil || !ok {
			return errors.Join(err, errors.New("another owner lives"))
		}
	}
	dir, err := os.Open(w.Root)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Replaced, not created: the order alone has to keep a second owner away.
	if err := durable.WriteFile(dir, "outcome", []byte("launching")); err != nil {
		return err
	}
	f, err := os.OpenFile(w.Launches, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, os.Getpid())
	return err
}

// evidence settles a start that was admitted and not completed: once the lock is
// free, the outcome tells all.
func (m *model) evidence() (string, error) {
	lock, err := os.Open(filepath.Join(m.world.Root, "owner.lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return "failed", nil
	}
	if err != nil {
		return "", err
	}
	defer lock.Close()
	free := eventually(10*time.Second, func() bool {
		held, lockErr := procs.Locked(lock)
		err = lockErr
		return !held
	})
	if err != nil || !free {
		return "", errors.Join(err, errors.New("the owner does not end"))
	}
	_, err = os.Stat(filepath.Join(m.world.Root, "outcome"))
	if errors.Is(err, fs.ErrNotExist) {
		return "failed", nil
	}
	return "lost", err // launching is recorded, what came of it is not
}
