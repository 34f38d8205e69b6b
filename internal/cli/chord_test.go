package cli

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestTheDetachKey(t *testing.T) {
	const prefix = "\x1c"
	for _, c := range []struct {
		what, typed, sent string
		detach            bool
	}{
		{"text", "ls -l\r", "ls -l\r", false},
		{"the key", prefix + "d", "", true},
		{"text before it", "abc" + prefix + "d", "abc", true},
		{"what follows is dropped", prefix + "dxyz", "", true},
		{"the prefix twice sends it once", prefix + prefix, prefix, false},
		{"and is no beginning of the key", prefix + prefix + "d", prefix + "d", false},
		{"three times, then the key", prefix + prefix + prefix + "d", prefix, true},
		{"half typed, then another key", prefix + "x", prefix + "x", false},
		{"half typed, then an arrow", prefix + "\x1b[A", prefix + "\x1b[A", false},
		{"after half typed it works again", prefix + "x" + prefix + "d", prefix + "x", true},
		{"half typed, nothing more", prefix, "", false},
		{"inside a paste", "\x1b[200~a" + prefix + "db\x1b[201~", "\x1b[200~a" + prefix + "db\x1b[201~", false},
		{"after a paste", "\x1b[200~a\x1b[201~" + prefix + "d", "\x1b[200~a\x1b[201~", true},
		{"a paste that ends with the prefix", "\x1b[200~" + prefix + "\x1b[201~d", "\x1b[200~" + prefix + "\x1b[201~d", false},
		{"an escape inside a paste", "\x1b[200~\x1b[2\x1b[201~" + prefix + "d", "\x1b[200~\x1b[2\x1b[201~", true},
		{"half typed, then a paste", prefix + "\x1b[200~d\x1b[201~", prefix + "\x1b[200~d\x1b[201~", false},
		{"a marker cut by the prefix", "\x1b[20" + prefix + "d", "\x1b[20", true},
	} {
		for cut := range len(c.typed) + 1 {
			k, err := parseChord(defaultDetachKey)
			if err != nil {
				t.Fatal(err)
			}
			first, detach := k.feed([]byte(c.typed[:cut]))
			sent := bytes.Clone(first)
			if !detach {
				var more []byte
				more, detach = k.feed([]byte(c.typed[cut:]))
				sent = append(sent, more...)
			}
			if string(sent) != c.sent || detach != c.detach {
				t.Errorf("%s, cut at %d: sent %q, detach %v; want %q, %v", c.what, cut, sent, detach, c.sent, c.detach)
			}
		}
	}
}

func TestAHeldPrefixIsGivenAtTheEnd(t *testing.T) {
	k, _ := parseChord(defaultDetachKey)
	k.feed([]byte("a\x1c"))
	if rest := k.rest(); string(rest) != "\x1c" {
		t.Errorf("rest is %q", rest)
	}
	if rest := k.rest(); rest != nil {
		t.Errorf("rest came twice: %q", rest)
	}
}

func TestNothingTypedIsLostWithoutTheKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]byte("ab\x1b[20~1\x1c"))
		typed := rapid.SliceOf(alphabet).Draw(t, "typed")
		k, _ := parseChord(defaultDetachKey) // no d among the bytes: never detached
		var sent []byte
		for rest := typed; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			out, detach := k.feed(rest[:n])
			if detach {
				t.Fatal("detached")
			}
			sent = append(sent, out...)
			rest = rest[n:]
		}
		sent = append(sent, k.rest()...)
		// Only prefixes may be fewer: two in a row are one.
		without := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte{0x1c}, nil) }
		if !bytes.Equal(without(sent), without(typed)) {
			t.Fatalf("sent %q of %q", sent, typed)
		}
		if bytes.Contains(typed, []byte{0x1c}) && !bytes.Contains(sent, []byte{0x1c}) {
			t.Fatalf("sent %q of %q", sent, typed)
		}
	})
}

func TestReadingDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		`ctrl-\ d`: "\x1cd", "ctrl-a q": "\x01q", "CTRL-] .": "\x1d.", "ctrl-@ ctrl-b": "\x00\x02", "~ .": "~.",
	} {
		k, err := parseChord(text)
		if err != nil || string([]byte{k.prefix, k.second}) != want || k.off {
			t.Errorf("%q: %q %q, %v", text, k.prefix, k.second, err)
		}
	}
	for _, text := range []string{"", "d", "ctrl-a", "ctrl-a ctrl-a", "ctrl-[ d", "ctrl-aa d", "ä d", "a b c", "ctrl-1 d"} {
		if _, err := parseChord(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	k, err := parseChord("none")
	if sent, detach := k.feed([]byte("\x1cd")); err != nil || detach || string(sent) != "\x1cd" {
		t.Errorf("none: %q, %v, %v", sent, detach, err)
	}
}
