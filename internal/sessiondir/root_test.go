package sessiondir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func mutation(t *testing.T, text string) protocol.MutationID {
	t.Helper()
	id, err := protocol.ParseMutationID(text)
	must(t, err)
	return id
}

func TestResolve(t *testing.T) {
	r := newRoot(t)
	a := create(t, r, mutation(t, "12345678-0000-7000-8000-000000000001"), CreateOptions{Name: "work"}).ID()
	b := create(t, r, mutation(t, "12345678-0000-7000-8000-000000000002"), CreateOptions{Name: "12345678"}).ID()
	c := create(t, r, mutation(t, "abcd0000-0000-7000-8000-000000000003"), CreateOptions{}).ID()
	for text, want := range map[string]protocol.SessionID{
		"work":                                  a,
		string(a):                               a,
		"123456780000700080000000000000" + "01": a,
		"12345678":                              b, // a name goes before the beginning of an id
		"ses_12345678000070008000000000000002":  b,
		"abcd":                                  c,
		"ses_abcd":                              c,
		"abcd00000000":                          c,
	} {
		if got, err := r.Resolve(text); got != want || err != nil {
			t.Errorf("%q is %q, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "abc", "ses_", "ses_abc", "ABCD", "abce", "none", "work/", "../names/work", "ses_" + string(a), string(a) + "0", "wor"} {
		if got, err := r.Resolve(text); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"1234", "ses_1234", "ses_12345678"} {
		var ambiguous *AmbiguousError
		if _, err := r.Resolve(text); !errors.As(err, &ambiguous) || !slices.Equal(ambiguous.Candidates, []protocol.SessionID{a, b}) {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

func TestListShowsSessionsAndNothingElse(t *testing.T) {
	r := newRoot(t)
	var want []protocol.SessionID
	for range 3 {
		want = append(want, create(t, r, newID(), CreateOptions{}).ID())
	}
	slices.Sort(want)
	for _, name := range []string{".new-x.1", "ses_1", "README"} {
		must(t, os.Mkdir(filepath.Join(r.Path(), "sessions", name), 0o700))
	}
	if got, err := r.List(); err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %v, %v, want %v", got, err, want)
	}
	if err := opened1(r.Open(protocol.NewSessionID(newID()))); !errors.Is(err, ErrNotFound) {
		t.Errorf("a session that never was gives %v", err)
	}
	if err := opened1(r.Open("../names")); err == nil {
		t.Error("something else was opened as a session")
	}
	if err := opened1(Open(filepath.Join(r.Path(), "sessions", string(protocol.NewSessionID(newID()))))); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open of one that never was gives %v", err)
	}
}

func TestOpenKeepsToOneDescriptorPerDirectory(t *testing.T) {
	r := newRoot(t)
	d := create(t, r, newID(), CreateOptions{Name: "n"})
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	before := count()
	for range 20 {
		again, err := r.Open(d.ID())
		must(t, err)
		_, err = again.Read()
		must(t, err)
		w, err := again.Watch(t.Context())
		must(t, err)
		must(t, w.Close())
		must(t, again.Close())
		_ = opened1(r.Open(protocol.NewSessionID(newID())))
		_ = created1(r.Create(newID(), CreateOptions{Name: "n"}))
		_, _ = r.Resolve("n")
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
