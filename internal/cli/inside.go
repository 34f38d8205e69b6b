package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

// inside tells whether one of the streams is the terminal of the session itself:
// what is shown of the session there would be output of the session, to be shown
// again, without end.
func inside(st client.Status, streams ...any) bool {
	if st.TargetPID == 0 || !st.State.Alive() {
		return false
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(st.TargetPID) + "/stat")
	if err != nil {
		return false
	}
	its, err := terminalOf(string(text))
	if err != nil || its == 0 {
		return false
	}
	for _, stream := range streams {
		if f := terminal(stream); f != nil && deviceOf(f) == its {
			return true
		}
	}
	return false
}

// terminalOf reads the controlling terminal's device number, tty_nr, out of
// proc_pid_stat(5); 0 is none. The name before it may hold anything but its end.
func terminalOf(stat string) (uint32, error) {
	const ttyNr = 4 // after the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= ttyNr {
		return 0, fmt.Errorf("cannot read %q: it is too short", stat)
	}
	n, err := strconv.ParseInt(fields[ttyNr], 10, 32) // it is printed as a signed number
	if err != nil {
		return 0, fmt.Errorf("cannot read %q: %w", stat, err)
	}
	return uint32(n), nil
}

// deviceOf is the device number of the terminal behind f, in the encoding of
// tty_nr: minor number in bits 31 to 20 and 7 to 0, major number in 15 to 8.
func deviceOf(f *os.File) uint32 {
	fd := int(f.Fd())
	// It knows what is behind /dev/tty.
	if n, err := unix.IoctlGetUint32(fd, unix.TIOCGDEV); err == nil {
		return n
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	return minor&0xff | major&0xff<<8 | minor&^0xff<<12
}
