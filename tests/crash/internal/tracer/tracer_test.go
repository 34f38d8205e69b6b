package tracer

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// script is a shell that writes, renames and has others do the same.
func script(t *testing.T, text string) Program {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip("no calls can be traced here: ", err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	return Program{
		Argv: []string{shell, "-c", "cd " + root + "; " + text}, Env: []string{"PATH=/usr/bin:/bin"}, Root: root,
		Roles: map[string]string{"mv": "mover"},
	}
}

func mustRun(t *testing.T, p Program, f Fault) *Result {
	t.Helper()
	r, err := Run(p, f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Late {
		t.Fatalf("not over in time: %+v", r)
	}
	return r
}

func exists(p Program, name string) bool {
	_, err := os.Stat(filepath.Join(p.Root, name))
	return err == nil
}

func TestCallsOfAllProcessesAreRecorded(t *testing.T) {
	p := script(t, "echo one > a; echo said; mv a b; true")
	r := mustRun(t, p, Fault{})
	var got []string
	for _, c := range r.Calls {
		if c.Name != "fork" {
			got = append(got, c.Site.String())
		}
	}
	want := "client open a#1, client write a#1, client say#1, mover rename b#1"
	if strings.Join(got, ", ") != want {
		t.Errorf("recorded %s, want %s", strings.Join(got, ", "), want)
	}
	if r.Exit != 0 || string(r.Stdout) != "said\n" || len(r.Survivors) > 0 {
		t.Errorf("result %+v", r)
	}
}

func TestKillsHappenOnTheirSideOfTheCall(t *testing.T) {
	rename := Site{"mover", "rename", "b", 1}
	for _, c := range []struct {
		fault    Fault
		a, b, ok bool
	}{
		{Fault{At: rename, Mode: KillBefore}, true, false, false},
		{Fault{At: rename, Mode: KillAfter}, false, true, false},
		{Fault{At: rename, Mode: KillBefore, One: true}, true, false, true},
		{Fault{At: rename, Mode: Fail, Errno: syscall.EIO}, true, false, true},
		{Fault{At: Site{"mover", "rename", "b", 2}, Mode: KillBefore}, false, true, true},
	} {
		p := script(t, "echo one > a; mv a b; echo on > c; true")
		r := mustRun(t, p, c.fault)
		if exists(p, "a") != c.a || exists(p, "b") != c.b || exists(p, "c") != c.ok || (r.Exit == 0) != c.ok {
			t.Errorf("%v: a %v, b %v, c %v, exit %d", c.fault, exists(p, "a"), exists(p, "b"), exists(p, "c"), r.Exit)
		}
		if r.Fired != (c.fault.At.Nth == 1) {
			t.Errorf("%v: reached %v", c.fault, r.Fired)
		}
	}
}

func TestTornWriteKeepsHalf(t *testing.T) {
	p := script(t, "echo twelve bytes > a; echo on > b")
	r := mustRun(t, p, Fault{At: Site{Client, "write", "a", 1}, Mode: Torn})
	got, err := os.ReadFile(filepath.Join(p.Root, "a"))
	if err != nil || string(got) != "twelve" || exists(p, "b") || !r.Killed {
		t.Errorf("%q, %v, killed %v", got, err, r.Killed)
	}
}

func TestStickyFailureStays(t *testing.T) {
	p := script(t, "echo one > a; echo two > b; true")
	mustRun(t, p, Fault{At: Site{Client, "open", "a", 1}, Mode: Fail, Errno: syscall.ENOSPC, Sticky: true})
	if exists(p, "a") || exists(p, "b") {
		t.Error("a file was created on a full disk")
	}
}

func TestFakedCallsReturnAndDoNothing(t *testing.T) {
	p := script(t, "echo one > a; mv a b && echo said")
	p.Fake = func(c Call) bool { return c.Name == "rename" }
	r := mustRun(t, p, Fault{})
	if !exists(p, "a") || exists(p, "b") || string(r.Stdout) != "said\n" {
		t.Errorf("a %v, b %v, said %q", exists(p, "a"), exists(p, "b"), r.Stdout)
	}
}

func TestProgramsReadTheOtherBoot(t *testing.T) {
	p := script(t, "read id < /proc/sys/kernel/random/boot_id; echo $id")
	p.Boot = "00000000-0000-4000-8000-000000000001"
	if r := mustRun(t, p, Fault{}); string(r.Stdout) != p.Boot+"\n" {
		t.Errorf("read %q", r.Stdout)
	}
}
