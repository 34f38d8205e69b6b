package script

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftovers tells what a script has left behind. What is about to go has a moment.
func leftovers(bin, home string) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(5 * time.Second)
	for {
		left := ours(bin, home)
		if len(left) == 0 {
			return halfMade(home)
		}
		select {
		case <-tick.C:
		case <-over:
			return fmt.Errorf("processes are left: %v", left)
		}
	}
}

func halfMade(home string) error {
	entries, err := os.ReadDir(filepath.Join(home, "sessions"))
	if err != nil {
		return nil // no session was ever made
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("a half-made directory is left: %s", e.Name())
		}
	}
	return nil
}

// ours lists the guardians and owners, of the programs in bin, that serve a
// session below home.
func ours(bin, home string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		// A guardian re-executes nothing; an owner may run from a deleted file.
		name := filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
		if !strings.HasPrefix(exe, bin+"/") || name == "mur" {
			continue
		}
		if home == "" || serves(e.Name(), home) {
			out = append(out, pid)
		}
	}
	return out
}

// serves looks for the directory among a process's arguments and descriptors.
func serves(pid, home string) bool {
	line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if bytes.Contains(line, []byte(home+"/")) {
		return true
	}
	fds, _ := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	for _, fd := range fds {
		target, _ := os.Readlink(filepath.Join("/proc", pid, "fd", fd.Name()))
		if strings.HasPrefix(target, home+"/") {
			return true
		}
	}
	return false
}

func end(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// hit signals one process. A pid that is not known (yet) is 0, and kill(2) takes that
// for everybody in our own group.
func hit(pid int, sig syscall.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("cannot signal process %d", pid)
	}
	return syscall.Kill(pid, sig)
}
