package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrGone is returned when the process has ended and was reaped, or the pid
	// belongs to another process by now.
	ErrGone = errors.New("the process is gone")
	// ErrNotSealed is returned when memory handed over as sealed could still be
	// changed by somebody.
	ErrNotSealed = errors.New("the memory is not sealed")
)

// Identity names one process for ever: no two processes of a machine share all
// three.
type Identity struct {
	PID   int
	Start uint64 // clock ticks since boot, field 22 of /proc/PID/stat
	Boot  string // boot id; another one means that no process of then exists
}

// BootID tells which boot of the machine this is.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Self identifies the calling process.
func Self() (Identity, error) { return Of(os.Getpid()) }

// Of identifies the process that has this pid now, which may be a zombie.
// ErrGone: there is none.
func Of(pid int) (Identity, error) {
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	boot, err := BootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: st.start, Boot: boot}, nil
}

// Alive tells whether the process still runs. A zombie does not.
func (id Identity) Alive() bool {
	if boot, err := BootID(); err != nil || boot != id.Boot {
		return false
	}
	st, err := readStat(id.PID)
	return err == nil && st.start == id.Start && !st.dead()
}

// Stopped tells whether the process is stopped, by a signal or a tracer.
func (id Identity) Stopped() bool {
	st, err := readStat(id.PID)
	return err == nil && st.start == id.Start && (st.state == 'T' || st.state == 't')
}

// stat is what this package needs of /proc/PID/stat.
type stat struct {
	state   byte
	ppid    int
	session int
	start   uint64
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	if pid <= 0 {
		return stat{}, ErrGone
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, ErrGone
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat counts fields from the last ')': the name before it is the process's
// own choice and may hold blanks and parentheses.
func parseStat(b []byte) (stat, error) {
	bad := errors.New("its stat file is malformed")
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, bad
	}
	f := strings.Fields(string(b[end+1:])) // f[0] is field 3
	if len(f) < 20 || len(f[0]) != 1 || f[0][0] < 'A' || f[0][0] > 'z' {
		return stat{}, bad
	}
	ppid, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return stat{}, bad
	}
	return stat{state: f[0][0], ppid: ppid, session: session, start: start}, nil
}

// BornWithin is how exact Born is: the kernel counts in USER_HZ (proc_pid_stat(5),
// starttime).
const BornWithin = time.Second / 100

// Born is when the process was made, since the machine's boot, or up to BornWithin
// before.
func (id Identity) Born() time.Duration { return time.Duration(id.Start) * BornWithin }

// Uptime is the time since the machine's boot, on the clock of Born.
func Uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("cannot read the uptime: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Forks is how many processes and threads the machine has made since its boot: no
// fewer than pids were given out (proc_stat(5), processes).
func Forks() (uint64, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("cannot count processes: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "processes "); ok {
			return strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		}
	}
	return 0, errors.New("cannot count processes: /proc/stat has no count")
}

// OutOfMemoryKills is how many processes the kernel has killed for want of memory, on
// the machine or in a group of it, since its boot (proc_vmstat(5), oom_kill; since
// Linux 4.13).
func OutOfMemoryKills() (uint64, error) {
	data, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0, fmt.Errorf("cannot count what was killed for want of memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		}
	}
	return 0, errors.New("cannot count what was killed for want of memory: /proc/vmstat has no count")
}

// MaxPID is the number after which the kernel begins anew with pids
// (proc_sys_kernel(5), pid_max).
func MaxPID() (uint64, error) {
	data, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0, fmt.Errorf("cannot read the largest pid: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}
