package crash

import (
	"github.com/seed-8e62c83d/mur/client"
)

// verb is one thing that the driver does.
type verb string

const (
	create verb = "create"
	start  verb = "start"
	signal verb = "signal"
	term   verb = "term"
	sweep  verb = "sweep"
	end    verb = "end" // wait for the final record
	retire verb = "retire"

	killGuardian verb = "kill the guardian"
	killBoth     verb = "kill guardian and owner"
)

// scenario is a session's life.
type scenario struct {
	name  string
	steps []verb
	// target is a line of the shell; $1 is the file that each execution appends a
	// line to.
	target string
	// from is the step whose calls are the first of interest: those before are
	// another scenario's.
	from int
	// prepare changes the directory before the driver comes.
	prepare func(w world) error
}

const (
	brief   = `echo $$ >> "$1"; echo some output; exit 7`
	patient = `echo $$ >> "$1"; exec sleep 300`
	several = `echo $$ >> "$1"; sleep 300 & sleep 300`
)

func scenarios() []scenario {
	return []scenario{
		{name: "exit", target: brief, steps: []verb{create, start, end, retire}},
		{name: "term", target: patient, steps: []verb{create, start, signal, term, end, retire}, from: 2},
		{name: "sweep", target: several, steps: []verb{create, start, sweep, end, retire}, from: 2},
		{name: "recover", target: patient, steps: []verb{create, start, killBoth, start, sweep, end, retire}, from: 3},
		{name: "adopt", target: patient, steps: []verb{create, start, killGuardian, term, end, retire}, from: 2},
		{name: "kills", target: patient, steps: []verb{create, start, sweep, end, retire}, from: 5},
		{name: "compact", target: brief, steps: []verb{create, start, end, retire}, prepare: longJournal},
	}
}

func scenarioOf(name string) scenario {
	for _, s := range scenarios() {
		if s.name == name {
			return s
		}
	}
	return scenario{}
}

// op is the id of a step, always the same. A start that is repeated has the id of
// the first.
func (s scenario) op(step int) client.MutationID {
	for i, v := range s.steps[:step] {
		if v == s.steps[step] {
			step = i
			break
		}
	}
	id := client.MutationID{6: 0x40, 8: 0x80, 15: byte(step + 1)}
	copy(id[:4], s.name)
	return id
}

// mutation tells whether a step leaves a receipt.
func (v verb) mutation() bool {
	switch v {
	case start, signal, term, sweep, retire:
		return true
	}
	return false
}
