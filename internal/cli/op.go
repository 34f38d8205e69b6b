package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
)

func newOpCmd(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "op",
		Short: "tell what became of operations",
		Long: `Every change of a session has an id (-v says it, --op chooses it) and leaves a
receipt. These verbs read the receipts from the session's files: no guardian is
started.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fail(causeUsage, "mur help op", "cannot run mur op %s: there is no such verb", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newOpLsCmd(d), newOpShowCmd(d))
	return cmd
}

type opOptions struct {
	json bool
}

func newOpLsCmd(d *deps) *cobra.Command {
	var o opOptions
	cmd := &cobra.Command{
		Use:   "ls SESSION",
		Short: "list the operations on a session",
		Long: `One line an operation, oldest first: done; pending, when a guardian is about it; or
unknown, when it was begun before a crash and is not settled yet.`,
		Example:           "  mur op ls work",
		Args:              exactly(1),
		ValidArgsFunction: d.completeSessions,
		RunE:              func(_ *cobra.Command, args []string) error { return runOpLs(d, args[0], o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func newOpShowCmd(d *deps) *cobra.Command {
	var o opOptions
	cmd := &cobra.Command{
		Use:   "show SESSION ID",
		Short: "tell what became of one operation",
		Long: `Exits with 0 when the operation is done or under way, with 4 when the session has
no such operation, which then had no effect, and with 7 when it was begun before a
crash and nobody has settled it yet: mur recover does.`,
		Example:           "  mur op show work 0192f0c1-2f6d-7a3b-8c11-5e9f0d6a7b42",
		Args:              exactly(2),
		ValidArgsFunction: d.completeOperations,
		RunE:              func(_ *cobra.Command, args []string) error { return runOpShow(d, args[0], args[1], o) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// operationJSON is a receipt.
type operationJSON struct {
	Schema      int            `json:"schema"`
	ID          string         `json:"id"` // of the session
	Op          string         `json:"op"` // the operation's id
	Verb        string         `json:"verb"`
	Outcome     client.Outcome `json:"outcome"`
	Code        string         `json:"code,omitempty"`
	AdmittedAt  int64          `json:"admitted_at,omitempty"` // Unix time in nanoseconds
	CompletedAt int64          `json:"completed_at,omitempty"`
	Answer      any            `json:"answer,omitempty"`
}

func operationAsJSON(s *client.Session, op client.Operation) operationJSON {
	j := operationJSON{
		Schema: schema, ID: s.ID(), Op: op.ID.String(), Verb: op.Op, Outcome: op.Outcome, Code: op.Code, Answer: op.Answer,
	}
	if !op.Admitted.IsZero() {
		j.AdmittedAt = op.Admitted.UnixNano()
	}
	if !op.Completed.IsZero() {
		j.CompletedAt = op.Completed.UnixNano()
	}
	return j
}

func runOpLs(d *deps, name string, o opOptions) error {
	s, err := d.session("list operations of", name)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := s.Operations()
	if err != nil {
		return cannot("list operations of", name, err)
	}
	if len(all) == 0 {
		d.say("no operations")
		return nil
	}
	if o.json {
		for _, op := range all {
			if err := writeJSON(d.stdout, operationAsJSON(s, op)); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{{"OP", "VERB", "OUTCOME", "AGE", "ANSWER"}}
	for _, op := range all {
		since := "-"
		if !op.Admitted.IsZero() {
			since = age(d.now().Sub(op.Admitted))
		}
		rows = append(rows, []string{op.ID.String(), printable(op.Op), string(op.Outcome), since, answerOf(op)})
	}
	return table(d.stdout, rows, func(_ int, _, padded string) string { return padded })
}

func runOpShow(d *deps, name, text string, o opOptions) error {
	id, err := client.ParseMutationID(text)
	if err != nil {
		return usage("%v", err)
	}
	s, err := d.session("show operation of", name)
	if err != nil {
		return err
	}
	defer s.Close()
	op, err := s.Operation(id)
	if err != nil {
		return cannot("show operation of", name, err)
	}
	if o.json {
		err = writeJSON(d.stdout, operationAsJSON(s, op))
	} else {
		err = d.printOperation(s, op)
	}
	if err != nil || op.Outcome != client.OutcomeUnknown {
		return err
	}
	return &failure{
		cause: causeUnknown, hint: "mur recover " + called(s),
		err: fmt.Errorf("cannot tell the outcome of %s: it was begun before a crash and is not settled yet", op.ID),
	}
}

func (d *deps) printOperation(s *client.Session, op client.Operation) error {
	p := pairs{w: d.stdout}
	p.add("op", op.ID.String())
	p.add("verb", printable(op.Op))
	p.add("session", called(s))
	p.add("outcome", string(op.Outcome))
	if !op.Admitted.IsZero() {
		p.add("admitted", op.Admitted.Local().Format(time.DateTime))
	}
	if !op.Completed.IsZero() {
		p.add("completed", op.Completed.Local().Format(time.DateTime))
	}
	if answer := answerOf(op); answer != "-" {
		p.add("answer", answer)
	}
	if a, ok := op.Answer.(*client.StartAnswer); ok {
		p.failure("error", a.Error)
	}
	return p.err
}

// answerOf is the answer in short.
func answerOf(op client.Operation) string {
	switch a := op.Answer.(type) {
	case *client.StartAnswer:
		return string(a.State)
	case *client.ControlAnswer:
		return delivery(*a)
	case *client.SweepAnswer:
		if a.Partial != "" {
			return "partial: " + printable(a.Partial)
		}
		return fmt.Sprintf("processes: %d", len(a.Processes))
	case *client.RetireAnswer:
		return resultOf(a.Record)
	}
	if op.Code != "" {
		return printable(op.Code) + ", the rest is no longer kept"
	}
	return "-"
}

// completeOperations offers a session, then the ids of its operations.
func (d *deps) completeOperations(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return d.completeSessions(cmd, args, begun)
	}
	s, err := d.session("complete", args[0])
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer s.Close()
	all, err := s.Operations()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, op := range all {
		out = append(out, op.ID.String())
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
