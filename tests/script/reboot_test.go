package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/procs"
)

// afterRestart runs mur where the kernel tells another boot id, as after a restart
// of the machine: in a mount namespace of its own.
func (b *bench) afterRestart(id string, args ...string) (out string, err error) {
	const there = `mount --make-rprivate / && mount --bind "$BOOT_ID" /proc/sys/kernel/random/boot_id && exec mur "$@"`
	cmd := exec.Command("sh", append([]string{"-c", there, "mur"}, args...)...)
	cmd.Env = append(os.Environ(), "MUR_HOME="+b.home, "BOOT_ID="+id, "PATH="+os.Getenv(binDirVar)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	err = cmd.Run()
	return text.String(), err
}

func TestAfterARestartOfTheMachineNoProcessIsTouched(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another boot id needs a mount namespace, and that needs root")
	}
	b := newBench(t)
	boot := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(boot, []byte("11111111-2222-4333-8444-555555555555\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if out, err := b.afterRestart(boot, "version"); err != nil {
		t.Skipf("cannot pretend another boot: %v\n%s", err, out)
	}
	note := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf(`(trap '' HUP; exec sh -c 'echo $$ >%s; exec sleep 300') & read x`, note)
	op := client.NewMutationID()
	if _, status, err := b.mur("start", "-d", "--op", op.String(), "--", "sh", "-c", script); err != nil || status != 0 {
		t.Fatalf("start: %d, %v", status, err)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var left procs.Identity // stays in the owner's kernel session
	eventually(t, "the child", func() bool {
		text, _ := os.ReadFile(note)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			left, err = procs.Of(pid)
		}
		return err == nil
	})
	defer hit(left.PID, syscall.SIGKILL)
	st, err := s.Snapshot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	// The guardian first, which would record the end, and the owner stopped, which
	// would start another.
	for _, one := range []struct {
		pid int
		sig syscall.Signal
	}{
		{st.OwnerPID, syscall.SIGSTOP}, {st.GuardianPID, syscall.SIGKILL}, {st.OwnerPID, syscall.SIGKILL},
	} {
		if err := hit(one.pid, one.sig); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "their end", func() bool {
		now, err := s.Snapshot(within(t))
		return err == nil && !now.OwnerAlive && !now.GuardianAlive
	})
	for _, try := range []struct {
		args []string
		want string
		ok   bool
	}{
		{[]string{"show", s.ID()}, "the machine was restarted", true},
		{[]string{"recover", s.ID()}, "", true},
		{[]string{"term", s.ID()}, "", true},
		// The state directory may be another machine's: that proves nothing.
		{[]string{"sweep", "--json", s.ID()}, `"proved":false,"processes":[]`, false},
		{[]string{"show", "--json", s.ID()}, `"state":"lost"`, true},
	} {
		if out, err := b.afterRestart(boot, try.args...); (err == nil) != try.ok || !strings.Contains(out, try.want) {
			t.Errorf("mur %v: %v\n%s", try.args, err, out)
		}
	}
	if !left.Alive() {
		t.Error("a process of before the restart was killed")
	}
	if out, err := b.afterRestart(boot, "retire", "--purge", s.ID()); err != nil {
		t.Errorf("retire: %v\n%s", err, out)
	}
}
