package cli

import (
	"errors"
	"testing"

	"github.com/seed-8e62c83d/mur/client"
)

func TestNothingIsSaidTwice(t *testing.T) {
	for text, want := range map[string]string{
		"cannot retire: the session is running": "cannot do this: the session is running",
		"cannot tell the outcome: repeat it":    "cannot do this: cannot tell the outcome: repeat it",
		"the target has ended":                  "cannot do this: the target has ended",
	} {
		inner := &client.Error{Code: client.CodeBusy, Message: text}
		err := cannot("do", "this", inner)
		if err.Error() != want || !errors.Is(err, error(inner)) || causeOf(err) != causeBusy {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWordsAreQuotedForAShell(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"plain-1.2_x/y", "plain-1.2_x/y"}, {"", "''"}, {"a b", "'a b'"}, {"it's", `'it'\''s'`}, {"$x", "'$x'"}, {"a;b", "'a;b'"}, {"é", "'é'"},
	} {
		if got := quoted([]string{c.word}); got != c.want {
			t.Errorf("%q: %s, want %s", c.word, got, c.want)
		}
	}
}

func TestNoOtherNameIsAVerbOfOurs(t *testing.T) {
	root := newRootCmd(&deps{})
	for _, cmd := range root.Commands() {
		if hint := otherName(cmd.Name(), "SESSION"); hint != "" {
			t.Errorf("%s is a verb, and %s is offered", cmd.Name(), hint)
		}
	}
}

func TestShortIDsTellSessionsApart(t *testing.T) {
	id := func(n string) client.Status {
		var st client.Status
		st.Session = "ses_" + n
		return st
	}
	a, b, c := id("aaaaaaaaaaaabbbbbbbbbbbbbbbbbb01"), id("aaaaaaaaaaaabbbbbbbbbbbbbbbbbb02"), id("aaaaaaaaaaaacccccccccccccccccccc")
	d := id("ddddddddddddcccccccccccccccccccc")
	short := shortIDs([]client.Status{d, b, c, a})
	for st, want := range map[string]string{
		a.Session: a.Session, b.Session: b.Session, c.Session: "ses_aaaaaaaaaaaac", d.Session: "ses_dddddddddddd",
	} {
		if short[st] != want {
			t.Errorf("%s is %s, want %s", st, short[st], want)
		}
	}
	if len(shortIDs(nil)) != 0 {
		t.Error("ids of nothing")
	}
}

func TestPathsFollowTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		env         []string
		root, cache string
	}{
		{[]string{"HOME=/h"}, "/h/.local/state/mur", "/h/.cache/mur"},
		{[]string{"HOME=/h", "XDG_STATE_HOME=/s", "XDG_CACHE_HOME=c"}, "/s/mur", "/h/.cache/mur"},
		{[]string{"MUR_HOME=/m"}, "/m", "/m/cache"},
		{[]string{"MUR_HOME=/m", "XDG_CACHE_HOME=/c"}, "/m", "/c/mur"},
		{[]string{"MUR_HOME=/m", "MURMUR_STATE=/n", "MURMUR_CACHE=/o"}, "/n", "/o"},
		{[]string{"MUR_HOME=m", "HOME=/h"}, "", "/h/.cache/mur"},
		{nil, "", ""},
	} {
		d := &deps{environ: c.env}
		for what, got := range map[string]func() (string, error){c.root: d.stateRoot, c.cache: d.cacheDir} {
			path, err := got()
			if what == "" && err == nil || what != "" && (path != what || err != nil) {
				t.Errorf("%v: %s, %v, want %s", c.env, path, err, what)
			}
		}
	}
}
