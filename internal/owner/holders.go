package owner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
)

// kin is what /proc/PID/stat says of a process's relations.
type kin struct {
	ppid, pgrp int
	tty        uint64 // device number of the controlling terminal
	zombie     bool
}

// kinOf reads them; false: there is no such process.
func kinOf(pid int) (kin, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return kin{}, false
	}
	return parseKin(b)
}

// parseKin counts from the last ')': the name before it is the process's choice.
func parseKin(b []byte) (kin, bool) {
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // f[0] is field 3
	if len(f) < 5 {
		return kin{}, false
	}
	ppid, err1 := strconv.Atoi(f[1])
	pgrp, err2 := strconv.Atoi(f[2])
	tty, err3 := strconv.ParseInt(f[4], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return kin{}, false
	}
	return kin{ppid: ppid, pgrp: pgrp, tty: uint64(uint32(tty)), zombie: f[0] == "Z" || f[0] == "X"}, true
}

// ours tells whether pid descends from this process. Asked after a pidfd was
// opened, a no also covers a stranger who has the pid by now.
func ours(pid int) bool {
	self := os.Getpid()
	for range 4096 { // a chain that changes while it is followed could have no end
		k, ok := kinOf(pid)
		if !ok || k.ppid <= 1 && self != k.ppid {
			return false
		}
		if k.ppid == self {
			return true
		}
		pid = k.ppid
	}
	return false
}

// census counts the living descendants and gives those among them that hold the
// terminal whose slave has the device number rdev.
func census(rdev uint64) (descendants int, holders []int) {
	pids, _ := procs.Descendants(os.Getpid())
	for _, pid := range pids {
		k, ok := kinOf(pid)
		if !ok || k.zombie {
			continue
		}
		descendants++
		if holds(pid, k, rdev) {
			holders = append(holders, pid)
		}
	}
	return descendants, holders
}

// holds looks at the descriptors; where that is not allowed (a program that is
// not dumpable) the controlling terminal has to do.
func holds(pid int, k kin, rdev uint64) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return k.tty == rdev
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return k.tty == rdev
	}
	controlling := unix.Mkdev(5, 0) // /dev/tty stands for the controlling terminal
	for _, name := range names {
		var st unix.Stat_t
		// Through the link of /proc: the file itself, and no device is opened.
		if unix.Stat(dir+"/"+name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		if st.Rdev == rdev || st.Rdev == controlling && k.tty == rdev {
			return true
		}
	}
	return false
}
