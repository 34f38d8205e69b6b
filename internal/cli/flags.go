package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/capsule"
)

// patience bounds an operation whose --timeout is not given.
const patience = 30 * time.Second

// limits are the flags of every verb that asks a guardian for something.
type limits struct {
	json    bool
	timeout time.Duration
}

func (l *limits) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.json, "json", false, "print JSON")
	cmd.Flags().DurationVar(&l.timeout, "timeout", 0, "give up after this `duration` (exit 124)")
}

func (l *limits) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.timeout > 0 {
		return context.WithTimeout(ctx, l.timeout)
	}
	return context.WithTimeout(ctx, patience)
}

// late tells the end of --timeout from other failures.
func (l *limits) late(err error) error {
	if err != nil && l.timeout > 0 && errors.Is(err, context.DeadlineExceeded) {
		return &failure{cause: causeTimeout, code: "timeout", hint: hintOf(err), err: err}
	}
	return err
}

// mutation are the flags of every verb that changes a session.
type mutation struct {
	limits
	op      string
	verbose bool
	id      client.MutationID
	cmd     *cobra.Command
}

func (m *mutation) register(cmd *cobra.Command) {
	m.cmd = cmd
	m.limits.register(cmd)
	cmd.Flags().StringVar(&m.op, "op", "", "the operation's `UUID`: the same again is the same operation, done once")
	cmd.Flags().BoolVarP(&m.verbose, "verbose", "v", false, "say the operation's id")
}

// settle fixes the id, and says it before anything is done with it.
func (m *mutation) settle(d *deps) error {
	if m.op == "" {
		m.id = client.NewMutationID()
	} else {
		id, err := client.ParseMutationID(m.op)
		if err != nil {
			return usage("%v", err)
		}
		m.id = id
	}
	if m.verbose {
		d.say("operation %s", m.id)
	}
	return nil
}

// interrupted says how to go on with an operation that a signal has cut off.
func (m *mutation) interrupted(ctx context.Context, d *deps) {
	var ended Signal
	if errors.As(context.Cause(ctx), &ended) {
		d.say("%v; whether it was done is not known: the same again with --op %s makes sure", ended, m.id)
	}
}

// repeatable adds to an error that may pass how the same operation is asked for
// again: with its id it is done at most once.
func (m *mutation) repeatable(err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Retry == client.RetryNever || hintOf(err) != "" {
		return err
	}
	if refused.Code == client.CodeNotStarted {
		return err // nor would it be the next time
	}
	return &failure{cause: causeOf(err), code: word(err), hint: m.again(), err: err}
}

// again is the command line with the operation's id.
func (m *mutation) again() string {
	words := []string{"mur", m.cmd.Name(), "--op", m.id.String()}
	m.cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "op" {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+f.Name+"="+v)
		}
	})
	if m.cmd.ArgsLenAtDash() >= 0 {
		words = append(words, "--")
	}
	return quoted(append(words, m.cmd.Flags().Args()...))
}

// parseSize reads COLSxROWS.
func parseSize(text string) (*client.Size, error) {
	if text == "" {
		return nil, nil
	}
	c, r, ok := strings.Cut(text, "x")
	cols, err1 := strconv.Atoi(c)
	rows, err2 := strconv.Atoi(r)
	// The kernel keeps a size in two 16-bit numbers.
	if !ok || err1 != nil || err2 != nil || cols < 1 || rows < 1 || cols > 65535 || rows > 65535 {
		return nil, usage("cannot read size %q: want COLSxROWS, each 1 to 65535, such as 80x24", text)
	}
	return &client.Size{Cols: cols, Rows: rows}, nil
}

// exactly wants n arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("cannot run %s: %s, got %d", cmd.CommandPath(), count(n), len(args))
		}
		return nil
	}
}

func count(n int) string {
	switch n {
	case 0:
		return "it takes no arguments"
	case 1:
		return "it takes one argument"
	default:
		return fmt.Sprintf("it takes %d arguments", n)
	}
}

// nameValue is a flag that takes a session's name.
type nameValue string

func (v *nameValue) String() string { return string(*v) }

// Set refuses the empty name: it is more likely a variable that is not set than
// a session that is to have none.
func (v *nameValue) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; leave --name out for a session without a name")
	}
	*v = nameValue(text)
	return nil
}

// Type names the value in the help.
func (v *nameValue) Type() string { return "name" }

// leastHistory is the size of the smallest piece in which output is kept.
const leastHistory capsule.Size = 64 << 10

// sizeValue is a flag that takes a number of bytes, with a unit or without.
type sizeValue capsule.Size

func (v *sizeValue) String() string {
	if *v == 0 {
		return ""
	}
	return capsule.Size(*v).String()
}

// Set reads the flag's text.
func (v *sizeValue) Set(text string) error {
	size, err := capsule.ParseSize(text)
	if err == nil && size < leastHistory {
		err = fmt.Errorf("it is less than %s, and output is kept and dropped in pieces of at least that", leastHistory)
	}
	*v = sizeValue(size)
	return err
}

// Type names the value in the help.
func (v *sizeValue) Type() string { return "size" }
