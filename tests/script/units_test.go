package script

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

// unitDir has the units for systemd's user manager.
const unitDir = "../../dist/systemd/user"

func readUnit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnitsPassSystemdsVerification is all that systemd itself has to say here: it
// runs on no machine of these tests.
func TestUnitsPassSystemdsVerification(t *testing.T) {
	verifier, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here to verify the units with")
	}
	home := t.TempDir()
	bin := filepath.Join(home, ".local/bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(os.Getenv(binDirVar), "mur"), filepath.Join(bin, "mur")); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"mur@.service", "mur-recover.service"} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
		cmd := exec.CommandContext(ctx, verifier, "verify", "--user", "--man=no", filepath.Join(unitDir, unit))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		// It warns, about other units too, and succeeds all the same.
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "mur") {
				t.Errorf("%s: %s", unit, line)
			}
		}
	}
}

func TestUnitsKillNothingButTheWaiter(t *testing.T) {
	for _, unit := range []string{"mur@.service", "mur-recover.service"} {
		if !strings.Contains(readUnit(t, unit), "\nKillMode=process\n") {
			t.Errorf("%s: without KillMode=process systemd kills owner and guardian too", unit)
		}
	}
}

// unitCommand gives the words of a setting such as ExecStart as systemd.service(5)
// makes them, as far as ours go: lines that end with a backslash go on, quotes keep
// a word together, %h and %i, $$ for a dollar, $NAME for its words.
func unitCommand(t *testing.T, unit, setting string, specifiers, variables map[string]string) []string {
	t.Helper()
	text := strings.ReplaceAll(readUnit(t, unit), "\\\n", " ")
	_, line, ok := strings.Cut(text, "\n"+setting+"=")
	if !ok {
		t.Fatalf("%s has no %s", unit, setting)
	}
	line, _, _ = strings.Cut(line, "\n")
	line = strings.TrimPrefix(line, "-") // its failure would be ignored
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 { // inside quotes
			words = append(words, strings.ReplaceAll(part, "$$", "$"))
			continue
		}
		for _, word := range strings.Fields(part) {
			if name, ok := strings.CutPrefix(word, "$"); ok {
				words = append(words, strings.Fields(variables[name])...)
				continue
			}
			for name, value := range specifiers {
				word = strings.ReplaceAll(word, name, value)
			}
			words = append(words, word)
		}
	}
	return words
}

// unit stands for the manager: it runs the commands of mur@work.service.
type unit struct {
	*bench
	specifiers, variables map[string]string
}

func newUnit(t *testing.T) *unit {
	t.Helper()
	u := &unit{bench: newBench(t), variables: map[string]string{}}
	bin := filepath.Join(u.home, ".local/bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(os.Getenv(binDirVar), "mur"), filepath.Join(bin, "mur")); err != nil {
		t.Fatal(err)
	}
	u.specifiers = map[string]string{"%h": u.home, "%i": "work"}
	t.Cleanup(func() {
		for _, id := range u.sessions() {
			u.mur("sweep", id)
			if _, code, err := u.mur("retire", "--purge", id); code != 0 || err != nil {
				t.Errorf("retire %s: %d, %v", id, code, err)
			}
		}
	})
	return u
}

func (u *unit) sessions() []string {
	ids, err := u.c.IDs()
	if err != nil {
		u.t.Error(err)
	}
	return ids
}

// command prepares what the unit runs, with more in the environment.
func (u *unit) command(setting string, env ...string) *exec.Cmd {
	u.t.Helper()
	words := unitCommand(u.t, "mur@.service", setting, u.specifiers, u.variables)
	ctx, cancel := context.WithTimeout(u.t.Context(), 3*patience)
	u.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "MUR_HOME=" + u.home, "SHELL=/bin/cat"}, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// start begins the unit and returns when its main process waits for the session.
func (u *unit) start() *exec.Cmd {
	u.t.Helper()
	cmd := u.command("ExecStart")
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	u.until("waiting", func() bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		return err == nil && bytes.HasSuffix(line, []byte("\x00wait\x00work\x00"))
	})
	return cmd
}

func (u *unit) until(what string, is func() bool) {
	u.t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			u.t.Fatalf("not %s after %v", what, patience)
		}
	}
}

func (u *unit) state(id string) client.State {
	s, err := u.c.Open(id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer s.Close()
	st, err := s.Snapshot(context.Background())
	if err != nil {
		u.t.Fatal(err)
	}
	return st.State
}

// stop runs ExecStop as it is run while the main process lives, or, with 0, after
// it has ended.
func (u *unit) stop(mainPID int) {
	u.t.Helper()
	var env []string
	if mainPID != 0 {
		env = []string{"MAINPID=" + strconv.Itoa(mainPID)}
	}
	if err := u.command("ExecStop", env...).Run(); err != nil && mainPID == 0 {
		u.t.Errorf("ExecStop: %v", err)
	}
}

func TestAUnitLivesAsLongAsItsSession(t *testing.T) {
	u := newUnit(t)
	script := filepath.Join(u.home, "program")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntrap 'exit 3' TERM\necho up\nsleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	u.variables["MUR_START"] = "--size 90x20 -- " + script

	waiter := u.start()
	ids := u.sessions()
	if len(ids) != 1 {
		t.Fatalf("sessions: %v", ids)
	}
	u.until("up", func() bool {
		out, _, err := u.mur("logs", "work")
		return err == nil && strings.Contains(out, "up")
	})

	// Only the waiter dies: nothing is asked of the session, and the next one waits
	// for it again.
	waiter.Process.Kill()
	waiter.Wait()
	u.stop(0)
	if st := u.state(ids[0]); st != client.StateRunning {
		t.Fatalf("after the waiter's death the session is %s", st)
	}
	waiter = u.start()
	if now := u.sessions(); len(now) != 1 || now[0] != ids[0] {
		t.Fatalf("the unit has started another session: %v", now)
	}

	// A stop ends the program, and the unit has its status.
	u.stop(waiter.Process.Pid)
	waiter.Wait()
	if code := waiter.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the unit ends with %d, want the program's 3", code)
	}

	// The next start frees the name. Without MUR_START it is the user's shell.
	u.variables["MUR_START"] = ""
	waiter = u.start()
	now := u.sessions()
	if len(now) != 2 || u.state(ids[0]) != client.StateRetired || u.state(now[1]) != client.StateRunning {
		t.Errorf("sessions: %v", now)
	}
	if out, _, err := u.mur("show", "work"); err != nil || !regexp.MustCompile(`(?m)^target +cat$`).MatchString(out) {
		t.Errorf("it runs\n%s%v", out, err)
	}
	u.stop(waiter.Process.Pid)
	if waiter.Wait(); waiter.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the unit ends with %v", waiter.ProcessState)
	}
}

func TestAUnitThatCannotStartFails(t *testing.T) {
	u := newUnit(t)
	u.variables["MUR_START"] = "-- /nothing/there"
	cmd := u.command("ExecStart")
	cmd.Stderr = nil
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == 0 {
		t.Error("it ends with 0")
	}
}
