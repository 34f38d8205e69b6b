package main

import (
	"bytes"
	"testing"
)

func TestHelloShowsItsArgumentsAndEndsAsAsked(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{nil, 0, "hello from a capsule\n", ""},
		{[]string{"a", "b c"}, 0, "hello from a capsule\narguments: a b c\n", ""},
		{[]string{"--exit", "7"}, 7, "hello from a capsule\n", ""},
		{[]string{"x", "--exit=3", "y"}, 3, "hello from a capsule\narguments: x y\n", ""},
		{[]string{"--exit", "x"}, 2, "", "hello: cannot exit with \"x\": a number from 0 to 255 is needed\n"},
		{[]string{"--exit=256"}, 2, "", "hello: cannot exit with \"256\": a number from 0 to 255 is needed\n"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(append([]string(nil), tc.args...), &stdout, &stderr)
		if status != tc.status || stdout.String() != tc.stdout || stderr.String() != tc.stderr {
			t.Errorf("%q: got %d %q %q", tc.args, status, stdout.String(), stderr.String())
		}
	}
}
