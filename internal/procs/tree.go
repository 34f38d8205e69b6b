package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Children lists the children of a process, zombies too. The list is a glimpse:
// one that is forked or reparented meanwhile may be missing, so an empty answer
// proves nothing (wait4's ECHILD does). ErrGone: there is no such process.
func Children(pid int) ([]int, error) {
	tasks, err := dirNames(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the children of process %d: %w", pid, err)
	}
	var pids []int
	for _, tid := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid))
		if err != nil {
			if noChildrenFiles() {
				return childrenByScan(pid)
			}
			continue // the thread has ended; its children moved to another one
		}
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, nil
}

// noChildrenFiles: the kernel was built without CONFIG_PROC_CHILDREN.
func noChildrenFiles() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return errors.Is(err, fs.ErrNotExist)
}

func childrenByScan(pid int) ([]int, error) {
	return scan(func(st stat) bool { return st.ppid == pid })
}

// Descendants lists the children of a process, their children and so on, each
// before its own. What is said of Children holds here more than there.
func Descendants(pid int) ([]int, error) {
	children, err := Children(pid)
	if err != nil {
		return nil, err
	}
	var all []int
	seen := map[int]bool{pid: true}
	for len(children) > 0 {
		next := children[0]
		children = children[1:]
		if seen[next] {
			continue
		}
		seen[next] = true
		all = append(all, next)
		more, err := Children(next)
		if err != nil && !errors.Is(err, ErrGone) {
			return all, err
		}
		children = append(more, children...)
	}
	return all, nil
}

// Name tells what a process calls itself: at most 15 bytes of its own choice.
func Name(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return "", fmt.Errorf("cannot name process %d: %w", pid, err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

// SetName names the calling process for ps(1) and pgrep(1): a program that was
// executed by descriptor has the descriptor's number for a name (execve(2)).
func SetName(name string) error {
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		return fmt.Errorf("cannot name the process: %w", err)
	}
	return nil
}

// SessionMembers lists the running processes of session sid. It serves reports:
// a process that left the session is missed.
func SessionMembers(sid int) ([]int, error) {
	pids, err := scan(func(st stat) bool { return st.session == sid && !st.dead() })
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes of session %d: %w", sid, err)
	}
	return pids, nil
}

// scan looks at every process once.
func scan(match func(stat) bool) ([]int, error) {
	names, err := dirNames("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil && match(st) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
