package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

const (
	// longVar asks for the long form of every test that repeats something.
	longVar = "MUR_LONG"
	// workers is how many sessions such a test has at once.
	workers = 4
	// enough failures tell what is wrong.
	enough = 5
)

// often is how often something is done, in the short and in the long form.
func often(short, long int) int {
	if os.Getenv(longVar) != "" {
		return long
	}
	return short
}

// each does something for every number below n, several at a time.
func (b *bench) each(n int, what func(ctx context.Context, i int) error) {
	b.t.Helper()
	var next, failures atomic.Int64
	one := func(i int) error {
		ctx, cancel := context.WithTimeout(b.t.Context(), 3*patience)
		defer cancel()
		return what(ctx, i)
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failures.Load() < enough; i = int(next.Add(1)) - 1 {
				if err := one(i); err != nil {
					failures.Add(1)
					b.t.Errorf("%d of %d: %v", i, n, err)
				}
			}
		})
	}
	all.Wait()
}

// during is within for what takes longer.
func during(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// program is a launch with next to no environment.
func program(path string, args ...string) client.StartSpec {
	spec := client.StartSpec{Program: []byte(path), Cwd: []byte("/"), Env: map[client.Bytes]client.Bytes{"PATH": "/usr/bin:/bin"}}
	for _, arg := range args {
		spec.Args = append(spec.Args, []byte(arg))
	}
	return spec
}

// shell is a launch of a shell script with arguments of its own.
func shell(script string, args ...string) client.StartSpec {
	return program("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
}

// begin makes a session and starts a program in it, both as the same operation.
func (b *bench) begin(ctx context.Context, spec client.StartSpec) (*client.Session, error) {
	op := client.NewMutationID()
	s, err := b.c.Create(ctx, client.CreateOptions{Op: op})
	if err != nil {
		return nil, err
	}
	if err := launched(s.Start(ctx, op, spec)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// launched tells why the program of a start does not run.
func launched(r client.Reply[client.StartAnswer], err error) error {
	if err == nil && r.Answer.State != client.StateRunning {
		err = fmt.Errorf("the start ends in %s: %+v", r.Answer.State, r.Answer.Error)
	}
	return err
}

// look shows a session from its first byte to its end.
func look(ctx context.Context, s *client.Session) (*shown, error) {
	var zero int64
	a, err := s.Attach(ctx, client.AttachOptions{Since: &zero})
	if err != nil {
		return nil, err
	}
	return seen(a)
}

// seen is what an attachment shows until it ends.
func seen(a *client.Attachment) (*shown, error) {
	got := &shown{}
	for f, err := range a.Frames() {
		switch {
		case err != nil:
			return got, err
		case f.Output != nil:
			got.output.Write(f.Output.Bytes)
		case f.Gap != nil:
			got.gap = true
		case f.End != nil:
			got.end = f.End
		}
	}
	if got.gap || got.end == nil || got.end.Record == nil {
		return got, fmt.Errorf("it ends with %+v after %d bytes (gap: %v)", got.end, got.output.Len(), got.gap)
	}
	return got, nil
}

// logged is what a session has written and still keeps, which has to be all.
func logged(s *client.Session) ([]byte, error) {
	var all []byte
	err := s.ReadLog(0, func(p client.Piece) error {
		if p.GapTo > 0 {
			return fmt.Errorf("output %d to %d is gone", p.Offset, p.GapTo)
		}
		all = append(all, p.Bytes...)
		return nil
	})
	return all, err
}

// exitedWith checks how a session has ended, by its record.
func exitedWith(r *client.Record, code int) error {
	if r == nil {
		return errors.New("there is no record")
	}
	if r.ExitCode == nil || *r.ExitCode != code || r.ExitSignal != 0 {
		return fmt.Errorf("it did not exit with %d: %+v", code, *r)
	}
	return nil
}
