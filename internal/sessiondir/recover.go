package sessiondir

import "github.com/seed-8e62c83d/mur/internal/lifecycle"

// Recover is Read for the holder of guardian.lock: nobody else writes the
// journal, so the state is what it and the rest of the evidence say.
func (d *Dir) Recover() (*View, error) {
	v := &View{}
	book, err := d.readJournal(v)
	if err != nil {
		return nil, err
	}
	v.Receipts = book.List()
	outcome, err := d.readEvidence(v)
	if err != nil {
		return nil, err
	}
	return v, d.fold(v, outcome)
}

// Outcome is what the owner has made durable: nil if it recorded nothing.
func (d *Dir) Outcome() (*lifecycle.Outcome, error) { return d.readOutcome() }
