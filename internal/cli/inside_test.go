package cli

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

func TestTheTerminalOfAProcessIsRead(t *testing.T) {
	for text, want := range map[string]uint32{
		"7 (sh) S 1 7 7 34816 7 4194560": 136 << 8,
		"7 (a) b) (c\n) S 1 7 7 34818 7": 136<<8 | 2,
		"7 (sh) S 1 7 7 0 -1":            0,
		// Minor 256 is in bit 20, and from bit 31 on the number is printed as negative.
		"7 (sh) S 1 7 7 1083392 7":     136<<8 | 1<<20,
		"7 (sh) S 1 7 7 -2147448832 7": 136<<8 | 1<<31,
	} {
		if got, err := terminalOf(text); got != want || err != nil {
			t.Errorf("%q: %#x, %v, want %#x", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7 (sh)", "7 (sh) S 1 7 7", "7 (sh) S 1 7 7 x"} {
		if got, err := terminalOf(text); err == nil {
			t.Errorf("%q gave %#x", text, got)
		}
	}
}

func FuzzTerminalOf(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 34816 7 4194560")
	f.Add(") ) ) ) ) )")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := terminalOf(text); err != nil && n != 0 {
			t.Errorf("%q: %d and %v", text, n, err)
		}
	})
}

func TestASessionKnowsItsOwnTerminal(t *testing.T) {
	_, slave := openPTY(t)
	_, other := openPTY(t)
	cmd := exec.Command("sleep", "100")
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	st := client.Status{Snapshot: client.Snapshot{Durable: lifecycle.Durable{State: client.StateRunning, TargetPID: cmd.Process.Pid}}}
	if !inside(st, other, slave) {
		t.Error("its own terminal was not known")
	}
	if inside(st, other, nil) {
		t.Error("another terminal was taken for its own")
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(slave.Fd()), &info); err != nil {
		t.Fatal(err)
	}
	if got := deviceOf(slave); got != uint32(info.Rdev) {
		t.Errorf("%#x, stat says %#x", got, info.Rdev)
	}
	st.State = client.StateEnded
	if inside(st, slave) {
		t.Error("nothing is shown of an ended session that it did not write before")
	}
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 80, Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	return master, slave
}
