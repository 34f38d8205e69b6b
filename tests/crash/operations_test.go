package crash

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// sequences is how many random sequences of operations are tried; each is a
// session with its processes.
const sequences = 12

// TestRandomOperationsAgreeWithTheModel draws operations with few ids, so that many
// are repetitions or conflicts, between them kills of guardian and owner and
// answers that are not waited for, and holds each answer against a model of what
// was promised before.
func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	count := sequences
	if full() {
		count = 20 * sequences
	}
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if err := checks.Value.Set(fmt.Sprint(count)); err != nil {
		t.Fatal(err)
	}
	defer checks.Value.Set(before)
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		m, err := newPromises(dir)
		if err != nil {
			r.Fatal(err)
		}
		defer m.end()
		r.Repeat(map[string]func(*rapid.T){
			"start":  func(r *rapid.T) { m.try(r, "start", rapid.IntRange(0, 1).Draw(r, "content")) },
			"term":   func(r *rapid.T) { m.try(r, "term", 0) },
			"signal": func(r *rapid.T) { m.try(r, "signal", rapid.IntRange(0, 1).Draw(r, "content")) },
			"sweep":  func(r *rapid.T) { m.try(r, "sweep", 0) },
			"retire": func(r *rapid.T) { m.try(r, "retire", 0) },
			"guardian dies": func(r *rapid.T) {
				if err := m.world.kill(syscall.SIGKILL, sessiondir.GuardianLock); err != nil {
					r.Fatal(err)
				}
			},
			"owner dies": func(r *rapid.T) {
				if rapid.IntRange(0, 5).Draw(r, "seldom") > 0 {
					return
				}
				if err := m.world.kill(syscall.SIGKILL, sessiondir.OwnerLock); err != nil {
					r.Fatal(err)
				}
			},
			"": m.look,
		})
		m.repeatAll(r)
	})
}

// asked is one mutation: its id, verb and content.
type asked struct {
	id      client.MutationID
	verb    string
	content int
}

// promises is a session and what was promised about it.
type promises struct {
	world    world
	client   *client.Client
	session  *client.Session
	ids      []client.MutationID
	by       map[client.MutationID]asked  // who an id certainly belongs to
	answers  map[client.MutationID]string // given once, for ever
	revision uint64
	retired  bool
}

func newPromises(dir string) (*promises, error) {
	w, err := newWorld(dir, "term")
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{Root: w.Root, Bin: os.Getenv(binVar)})
	if err != nil {
		return nil, err
	}
	m := &promises{
		world: w, client: c, by: map[client.MutationID]asked{}, answers: map[client.MutationID]string{},
	}
	for range 6 {
		m.ids = append(m.ids, client.NewMutationID())
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	m.session, err = c.Create(ctx, client.CreateOptions{Op: w.scenario().op(0)})
	return m, err
}

func (m *promises) end() {
	m.session.Close()
	m.client.Close()
	m.world.destroy()
}

// answerPatience bounds every operation.
const answerPatience = 30 * time.Second

// try does one operation. Some answers are not waited for: then nothing is
// promised, and a later repetition tells.
func (m *promises) try(r *rapid.T, verb string, content int) {
	a := asked{rapid.SampledFrom(m.ids).Draw(r, "id"), verb, content}
	wait := answerPatience
	if rapid.IntRange(0, 3).Draw(r, "impatient") == 0 {
		wait = time.Duration(rapid.IntRange(0, 5).Draw(r, "ms")) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	answer, err := m.do(ctx, a)
	if err != nil && ctx.Err() != nil {
		if wait == answerPatience {
			r.Fatalf("%+v: no answer within %v: %v", a, answerPatience, err)
		}
		return
	}
	m.judge(r, a, answer, err)
}

// judge holds an answer or a refusal against what was promised.
func (m *promises) judge(r *rapid.T, a asked, answer string, err error) {
	owner, owned := m.by[a.id]
	given, answered := m.answers[a.id]
	switch {
	case err == nil && owned && owner != a:
		r.Fatalf("%+v was answered %s, and the id is that of %+v", a, answer, owner)
	case err == nil && answered && answer != given:
		r.Fatalf("%+v was answered %s, and is now %s", a, given, answer)
	case err != nil && answered && owner == a:
		r.Fatalf("%+v was answered %s, and is now refused: %v", a, given, err)
	case err != nil && owned && owner != a && client.CodeOf(err) != client.CodeConflict:
		r.Fatalf("%+v has the id of %+v and is refused with %v", a, owner, err)
	case err == nil:
		m.by[a.id], m.answers[a.id] = a, answer
		m.retired = m.retired || a.verb == "retire"
	}
	if err != nil {
		switch code := client.CodeOf(err); code {
		case client.CodeConflict, client.CodeNotStarted, client.CodeNotRunning, client.CodeNotEnded:
		default:
			r.Fatalf("%+v is refused with %q: %v", a, code, err)
		}
	}
}

func (m *promises) do(ctx context.Context, a asked) (answer string, err error) {
	switch a.verb {
	case "start":
		spec := m.world.spec()
		spec.Args = append(spec.Args, []byte(fmt.Sprint(a.content)))
		return text(m.session.Start(ctx, a.id, spec))
	case "term":
		return text(m.session.Term(ctx, a.id, 0))
	case "signal":
		sig := []syscall.Signal{syscall.SIGWINCH, syscall.SIGCONT}[a.content]
		return text(m.session.Signal(ctx, a.id, int(sig), "target"))
	case "sweep":
		return text(m.session.Sweep(ctx, a.id))
	default:
		return text(m.session.Retire(ctx, a.id))
	}
}

func text[T any](r client.Reply[T], err error) (string, error) {
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(r.Answer)
	return string(b), err
}

// look checks what must hold at every moment.
func (m *promises) look(r *rapid.T) {
	d, err := sessiondir.Open(m.world.session())
	if err != nil {
		r.Fatal(err)
	}
	defer d.Close()
	v, err := d.Read()
	if err != nil {
		r.Fatal(err)
	}
	if v.Snapshot.Revision < m.revision {
		r.Fatalf("the revision went from %d to %d", m.revision, v.Snapshot.Revision)
	}
	if v.GuardianLive { // else it is only what would be committed
		m.revision = v.Snapshot.Revision
	}
	if m.retired && v.Snapshot.State != client.StateRetired {
		r.Fatalf("it was retired and is %s", v.Snapshot.State)
	}
	pids, err := m.world.launched()
	if err != nil {
		r.Fatal(err)
	}
	if len(pids) > 1 {
		r.Fatalf("launched %d times", len(pids))
	}
	if v.Snapshot.TargetPID == 0 && len(pids) == 1 && v.Snapshot.State == client.StateLaunchFailed {
		r.Fatal("the target ran, and is said not to have been launched")
	}
}

// repeatAll asks for everything once more that was ever answered.
func (m *promises) repeatAll(r *rapid.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*answerPatience)
	defer cancel()
	for id, given := range m.answers {
		answer, err := m.do(ctx, m.by[id])
		if err != nil || answer != given {
			r.Fatalf("%+v was answered %s, and in the end %s, %v", m.by[id], given, answer, err)
		}
	}
	if _, err := os.Stat(filepath.Join(m.world.session(), sessiondir.JournalFile)); err != nil {
		r.Fatal(err)
	}
}
