package cli

import (
	"context"
	"fmt"

	"github.com/seed-8e62c83d/mur/client"
)

// change makes one change to the session called name.
func (d *deps) change(ctx context.Context, verb, name string, m *mutation, do func(context.Context, *client.Session) error) error {
	if err := m.settle(d); err != nil {
		return err
	}
	s, err := d.session(verb, name)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := m.context(ctx)
	defer cancel()
	err = do(ctx, s)
	m.interrupted(ctx, d)
	return m.late(m.repeatable(cannot(verb, name, err)))
}

// replyJSON is what every answer to a change has.
type replyJSON struct {
	Schema     int          `json:"schema"`
	ID         string       `json:"id"`
	Op         string       `json:"op"`
	Replayed   bool         `json:"replayed"`
	NotDurable bool         `json:"not_durable,omitempty"`
	State      client.State `json:"state,omitempty"`
	Revision   uint64       `json:"revision,omitempty"`
}

func replyHead[T any](s *client.Session, m mutation, r client.Reply[T]) replyJSON {
	j := replyJSON{Schema: schema, ID: s.ID(), Op: m.id.String(), Replayed: r.Replayed, NotDurable: r.NotDurable}
	if r.Snapshot != nil {
		j.State, j.Revision = r.Snapshot.State, r.Snapshot.Revision
	}
	return j
}

// warn says what is unusual about an answer.
func warn[T any](d *deps, r client.Reply[T]) {
	if r.NotDurable {
		d.say("done, and not on the disk yet: the journal cannot be written")
	}
}

func (d *deps) printControl(s *client.Session, m mutation, r client.Reply[client.ControlAnswer], text string) error {
	warn(d, r)
	if m.json {
		return writeJSON(d.stdout, struct {
			replyJSON
			Delivery client.Delivery `json:"delivery"`
			Errno    int             `json:"errno,omitempty"`
		}{replyHead(s, m, r), r.Answer.Delivery, r.Answer.Errno})
	}
	_, err := fmt.Fprintln(d.stdout, text)
	return err
}
