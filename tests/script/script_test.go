package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/bundled"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

const (
	// patience bounds each wait of a script.
	patience = 40 * time.Second
	pause    = 20 * time.Millisecond
)

// binDirVar tells where the programs are that TestMain has built.
const binDirVar = "MUR_SCRIPT_BIN"

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	if role, args := roleOf(os.Args); role != "" {
		return play(role, args)
	}
	// What this process ignores, as under nohup, is ignored by what it starts.
	if err := procs.ResetSignals(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "mur-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for name, pkg := range map[string]string{"mur": "mur", "mur-guardian": "guardian", "mur-owner": "owner"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/seed-8e62c83d/mur/cmd/"+pkg)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	os.Setenv(binDirVar, dir)
	code := m.Run()
	if left := ours(dir, ""); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes are left: %v\n", left)
		end(left)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup:               setup,
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"pty": ptyCmd, "until": untilCmd, "status": statusCmd, "uuid": uuidCmd, "finish": finishCmd,
		},
	})
}

// helloModule is the bundled capsule that the build has put beside its package.
const helloModule = "../../internal/bundled/files/hello/capsule.wasm"

// condition knows [bundled]: mur was built with its capsules.
func condition(name string) (bool, error) {
	if name != "bundled" {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	_, hello := bundled.Open("hello")
	_, shell := bundled.Open("shell")
	return hello && shell, nil
}

// setup gives the script its own state directory, short because sockets live in it.
func setup(env *testscript.Env) error {
	home, err := os.MkdirTemp("", "mur-s-")
	if err != nil {
		return err
	}
	bin := os.Getenv(binDirVar)
	env.Setenv("MUR_HOME", home)
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	env.Setenv("TERM", "xterm-256color")
	env.Setenv("XDG_CACHE_HOME", filepath.Join(bin, "cache"))
	hello, err := filepath.Abs(helloModule)
	if err != nil {
		return err
	}
	env.Setenv("HELLO", hello)
	t := env.T()
	env.Defer(func() {
		defer os.RemoveAll(home)
		if left := leftovers(bin, home); left != nil {
			end(ours(bin, home))
			t.Log(left.Error())
			t.FailNow()
		}
	})
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
}

func uuidCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: uuid NAME")
	}
	ts.Setenv(args[0], client.NewMutationID().String())
}

func untilCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: until 'SHELL LINE'")
	}
	if err := until(environment(ts), ts.MkAbs("."), args[0]); err != nil {
		ts.Fatalf("%v", err)
	}
}

// until repeats a shell line until it succeeds.
func until(env []string, dir, line string) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(patience)
	for {
		cmd := exec.Command("sh", "-c", line)
		cmd.Env, cmd.Dir = env, dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-over:
			return fmt.Errorf("%s: still %v after %v\n%s", line, err, patience, out)
		}
	}
}

func statusCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N CMD [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// finishCmd ends everything of the script through mur itself.
func finishCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: finish")
	}
	c, err := client.New(client.Options{Root: ts.Getenv("MUR_HOME"), Bin: os.Getenv(binDirVar)})
	ts.Check(err)
	defer c.Close()
	ids, err := c.IDs()
	ts.Check(err)
	for _, id := range ids {
		s, err := c.Open(id)
		ts.Check(err)
		st, err := s.Snapshot(context.Background())
		s.Close()
		ts.Check(err)
		if st.State != client.StateNew && st.State != client.StateLost {
			ts.Check(ts.Exec("mur", "sweep", id))
		}
		ts.Check(until(environment(ts), "/", "mur retire --purge "+id))
	}
}

// environment is what a script's commands get; testscript does not give its own.
func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{
		"HOME", "PATH", "MUR_HOME", "TERM", "WORK", "TMPDIR", "NO_COLOR", "XDG_CACHE_HOME", "MURMUR_STATE", "op", "id",
	} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
