package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/seed-8e62c83d/mur/client"
)

// anywhere is a place that mur is started from. start runs the command given,
// which is absolute, and returns when the place itself is no more.
type anywhere struct {
	name string
	skip string
	// nofile and umask are what the target gets from there; empty: as everywhere.
	nofile, umask string
	start         func(ctx context.Context, b *bench, command []string) error
}

// as runs mur as a shell would, but for what change does to the command.
func as(change func(cmd *exec.Cmd) error) func(context.Context, *bench, []string) error {
	return func(ctx context.Context, b *bench, command []string) error {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "MUR_HOME="+b.home)
		said, err := os.Create(filepath.Join(b.t.TempDir(), "said"))
		if err != nil {
			return err
		}
		defer said.Close()
		cmd.Stdout, cmd.Stderr = said, said
		if err := change(cmd); err != nil {
			return err
		}
		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(said.Name())
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
		}
		return nil
	}
}

// after has a shell do something first.
func after(line string) func(context.Context, *bench, []string) error {
	return as(func(cmd *exec.Cmd) error {
		cmd.Args = append([]string{"sh", "-c", line + `; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		return nil
	})
}

// cron gives hardly anything.
func cron(cmd *exec.Cmd) {
	env := []string{"HOME=/", "PATH=/usr/bin:/bin"}
	for _, entry := range cmd.Env {
		if strings.HasPrefix(entry, "MUR_HOME=") {
			env = append(env, entry)
		}
	}
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setsid: true}
}

// given hands a pipe to mur, which has its end although the session goes on: like
// cron, whoever reads it waits for that.
func given(hand func(cmd *exec.Cmd, w *os.File)) func(context.Context, *bench, []string) error {
	return func(ctx context.Context, b *bench, command []string) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer r.Close()
		err = as(func(cmd *exec.Cmd) error {
			hand(cmd, w)
			return nil
		})(ctx, b, command)
		w.Close()
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { r.Close() })
		defer stop()
		if _, err := io.Copy(io.Discard, r); err != nil {
			return fmt.Errorf("the pipe has no end: %w", err)
		}
		return nil
	}
}

func places() []anywhere {
	all := []anywhere{
		{name: "a shell", start: as(func(*exec.Cmd) error { return nil })},
		{name: "few descriptors", nofile: "64", start: after("ulimit -n 64")},
		{name: "an open umask", umask: "0000", start: after("umask 000")},
		{name: "all signals ignored and blocked", start: as(func(cmd *exec.Cmd) error {
			deaf, err := acting("deaf", append([]string{cmd.Path}, cmd.Args[1:]...)...)
			cmd.Path, cmd.Args = deaf.Path, deaf.Args
			return err
		})},
		{name: "leaked descriptors", start: given(func(cmd *exec.Cmd, w *os.File) {
			cmd.ExtraFiles = make([]*os.File, 51-2) // the first is 3 in the child
			cmd.ExtraFiles[9-3], cmd.ExtraFiles[51-3] = w, w
		})},
		{name: "cron, to nowhere", start: as(func(cmd *exec.Cmd) error {
			cron(cmd)
			cmd.Stdout, cmd.Stderr = nil, nil
			return nil
		})},
		{name: "cron, to a pipe", start: given(func(cmd *exec.Cmd, w *os.File) {
			cron(cmd)
			cmd.Stdout, cmd.Stderr = w, w
		})},
		{name: "a pipe to read", start: as(func(cmd *exec.Cmd) error {
			cmd.Stdin = strings.NewReader("nobody reads this\n")
			return nil
		})},
		{name: "a login on a terminal", start: login},
		{name: "tmux", start: inTmux},
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		all[len(all)-1].skip = err.Error()
	}
	return all
}

// login has a terminal of its own, which is hung up when mur has returned.
func login(ctx context.Context, b *bench, command []string) error {
	cmd := exec.CommandContext(ctx, "/bin/bash", append([]string{"--noprofile", "-l", "-c", `"$@"; exit $?`, "bash"}, command...)...)
	cmd.Env = append(os.Environ(), "MUR_HOME="+b.home)
	master, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	defer master.Close()
	// What it writes is less than a terminal holds.
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return nil
}

// inTmux has a terminal of a server that is gone when mur has returned.
func inTmux(ctx context.Context, b *bench, command []string) error {
	dir, err := os.MkdirTemp("", "mur-t-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmux := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", dir + "/own", "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "MUR_HOME="+b.home, "TERM=xterm")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		return nil
	}
	status := dir + "/status"
	line := append([]string{"sh", "-c", `"$@"; echo $? >"$0.new"; mv "$0.new" "$0"; exec sleep 300`, status}, command...)
	if err := tmux(append([]string{"new-session", "-d", "-x", "80", "-y", "24"}, line...)...); err != nil {
		return err
	}
	err = until(os.Environ(), "/", "test -e "+status)
	err = errors.Join(err, tmux("kill-server"))
	if text, _ := os.ReadFile(status); string(text) != "0\n" {
		err = errors.Join(err, fmt.Errorf("mur exits with %q", text))
	}
	return err
}

// wide lists what of the state others may use.
func wide(root string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			paths = append(paths, fmt.Sprintf("%s %v", path, info.Mode()))
		}
		return nil
	})
	return paths, err
}

// surroundings has the target say what is around it, and go on.
const surroundings = `grep '^Sig[IB]' /proc/self/status; echo fds $(ls /proc/self/fd); echo umask $(umask); echo nofile $(ulimit -n)
echo tty $(stty size); test "$(tty)" = "$(readlink /proc/self/fd/0)" && echo done; exec sleep 300`

func TestMurMayBeStartedFromAnywhere(t *testing.T) {
	usual, err := exec.Command("sh", "-c", "echo umask $(umask); echo nofile $(ulimit -n)").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range places() {
		t.Run(place.name, func(t *testing.T) {
			if place.skip != "" {
				t.Skip(place.skip)
			}
			place.try(t, string(usual))
		})
	}
}

func (p anywhere) try(t *testing.T, usual string) {
	b := newBench(t)
	op := client.NewMutationID()
	command := []string{
		filepath.Join(os.Getenv(binDirVar), "mur"),
		"start", "-d", "--op", op.String(), "--name", "here", "--", "/bin/sh", "-c", surroundings,
	}
	if err := p.start(within(t), b, command); err != nil {
		t.Fatal(err)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var said string
	eventually(t, "what the target says", func() bool {
		log, err := logged(s)
		if err != nil {
			t.Fatal(err)
		}
		said = strings.ReplaceAll(string(log), "\r", "")
		return strings.HasSuffix(said, "done\n")
	})
	lines := strings.SplitAfter(usual, "\n")
	if p.umask != "" {
		lines[0] = "umask " + p.umask + "\n"
	}
	if p.nofile != "" {
		lines[1] = "nofile " + p.nofile + "\n"
	}
	want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nfds 0 1 2 3\n" + lines[0] + lines[1] + "tty 24 80\ndone\n"
	if said != want {
		t.Errorf("the target says\n%swant\n%s", said, want)
	}
	narrow := func(when string) {
		if paths, err := wide(b.home); err != nil || len(paths) > 0 {
			t.Errorf("%s others may use %q, %v", when, paths, err)
		}
	}
	narrow("while it runs")
	if _, status, err := b.mur("term", "here"); err != nil || status != 0 {
		t.Errorf("term: %d, %v", status, err)
	}
	if _, status, err := b.mur("wait", "here"); err != nil || status != 128+int(syscall.SIGTERM) {
		t.Errorf("wait: %d, %v", status, err)
	}
	if out, status, err := b.mur("sweep", "here"); err != nil || status != 0 {
		t.Errorf("sweep: %d, %v\n%s", status, err, out)
	}
	narrow("after its end")
	if _, status, err := b.mur("retire", "here"); err != nil || status != 0 {
		t.Errorf("retire: %d, %v", status, err)
	}
	if err := s.WaitGone(within(t)); err != nil {
		t.Error(err)
	}
	narrow("after its retirement")
}
