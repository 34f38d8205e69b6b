package lifecycle

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/lifecycle.md instead of comparing it")

const docsPath = "../../docs/lifecycle.md"

// seen says what a client sees of a session in each state.
func seen() map[State]string {
	return map[State]string{
		New:          "`started` false, no pid. `start` and `retire` are possible; `term`, `sweep`, `signal` are refused `not_started`",
		Reserved:     "`started` true, `start_id` names the launch. Another start is a `conflict`",
		Starting:     "`owner_pid`; for a capsule also `target_pid` before it runs",
		Running:      "`target_pid`, `times.started`",
		Stopped:      "as running; `signal CONT` resumes it",
		Exited:       "`exit_code` or `exit_signal`, `times.exited`; output may still grow, `record` is not final yet",
		Ended:        "the final `record` with `end_offset`; descendants may still live until `terminal_session_ended`",
		Retired:      "the same `record`, `times.retired`; the guardian leaves",
		LaunchFailed: "`error` and `record` with stage and errno, never an exit code",
		Lost:         "`error` and `record` with the reason, never an exit code",
	}
}

func TestDocsShowTheTableAsItIs(t *testing.T) {
	want := render(t)
	if *update {
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says; run: go test -run TestDocs ./internal/lifecycle -update", docsPath)
	}
}

func render(t *testing.T) string {
	t.Helper()
	notes := constantComments(t, "state.go")
	var b strings.Builder
	b.WriteString("# The lifecycle of a session\n\n" +
		"Written by a test of `internal/lifecycle` from its table; do not edit it by hand.\n" +
		"`go test -run TestDocs ./internal/lifecycle -update` writes it anew.\n\n" +
		"A session is moved by events only, one at a time. Each change is committed, counted by\n" +
		"`revision` and then published; an event that says nothing new does none of the three.\n" +
		"An event that is not in these tables for a state is refused and changes nothing.\n\n" +
		"## States\n\n| state | meaning | final | what a client sees |\n|---|---|---|---|\n")
	for _, s := range States() {
		final := ""
		if s.Final() {
			final = "yes"
		}
		row(&b, code(s), notes[string(s)], final, seen()[s])
	}
	b.WriteString("\nA subscription ends with the first snapshot whose state is final.\n\n" +
		"## Steps\n\n| from | event | to | effects |\n|---|---|---|---|\n")
	steps(&b)
	b.WriteString("\n## Facts\n\nThese events leave the state as it is and add a fact to the session.\n\n" +
		"| event | meaning | possible in |\n|---|---|---|\n")
	for _, k := range Kinds() {
		if states := factIn(k); len(states) > 0 {
			row(&b, code(k), notes[string(k)], stateList(states))
		}
	}
	b.WriteString("\n## Events that move the state\n\n| event | meaning |\n|---|---|\n")
	for _, k := range Kinds() {
		if len(factIn(k)) == 0 {
			row(&b, code(k), notes[string(k)])
		}
	}
	b.WriteString("\n## Effects\n\nWhat the guardian does once the step is committed.\n\n| effect | meaning |\n|---|---|\n")
	for _, e := range []Effect{Launch, Conclude, Release} {
		row(&b, code(e), notes[string(e)])
	}
	return b.String()
}

func steps(b *strings.Builder) {
	for _, s := range States() {
		for _, k := range Kinds() {
			m, err := next(s, k)
			if err != nil || m.to == s {
				continue
			}
			var effects []string
			for _, e := range m.effects {
				effects = append(effects, code(e))
			}
			row(b, code(s), code(k), code(m.to), strings.Join(effects, ", "))
		}
	}
}

// factIn lists where the event is possible and stays.
func factIn(k Kind) []State {
	var states []State
	for _, s := range States() {
		if m, err := next(s, k); err == nil && m.to == s {
			states = append(states, s)
		}
	}
	return states
}

func stateList(states []State) string {
	if slices.Equal(states, States()) {
		return "every state"
	}
	var names []string
	for _, s := range states {
		names = append(names, code(s))
	}
	return strings.Join(names, ", ")
}

func row(b *strings.Builder, cells ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func code[T ~string](v T) string { return "`" + string(v) + "`" }

// constantComments maps the value of each string constant to its line comment,
// so that the words in the documentation are those in the code.
func constantComments(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	notes := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || spec.Comment == nil {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			notes[value] = strings.TrimSpace(spec.Comment.Text())
		}
		return true
	})
	for _, s := range States() {
		if notes[string(s)] == "" {
			t.Fatalf("the state %s has no comment that says what it means", s)
		}
	}
	return notes
}
