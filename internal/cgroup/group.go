// Package cgroup makes a control group of version 2 for the processes of one
// session, where it may: what is in it can be ended as a whole and be seen to be
// gone, also by somebody who is not its parent (cgroups(7); cgroup.kill is there
// since Linux 5.14).
//
// Nothing rests on it alone. A process that may write to the group above can move
// out of it, as its parent could let it; there are machines without version 2, and
// places where no group may be made.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoPlace is returned where the caller's own group cannot be seen.
var ErrNoPlace = errors.New("no control group of version 2 is visible here")

// Group is a control group that was made for a session.
type Group struct {
	dir *os.File
}

// Make makes a group below the one that the caller is in. It is an error if there is
// one of this name, or if it would not do.
func Make(name string) (*Group, error) {
	place, err := Own()
	if err == nil && place.Dir == "" {
		err = ErrNoPlace
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a control group: %w", err)
	}
	path := filepath.Join(place.Dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a control group: %w", err)
	}
	g, err := Open(path)
	if err == nil {
		err = g.try()
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return g, nil
}

// try finds out whether the group can be killed and whether a child can be born into
// it and live. Since Linux 6.14 a child is born dead if the group above was ever
// killed as a whole, or the new one was: its number of kills is compared with that of
// the wrong group (cgroup_css_set_fork in the kernel). So nothing is killed here.
func (g *Group) try() error {
	f, err := os.OpenFile(filepath.Join(g.Path(), "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot kill a control group: %w", err)
	}
	f.Close()
	return g.onDescriptor(func(fd int) error {
		// It never becomes a program, and its failure is told by itself: if it can.
		pid, err := syscall.ForkExec("/dev/null/nothing", nil, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}})
		if err == syscall.ENOTDIR {
			return nil
		}
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
			err = errors.New("what is born into it does not live")
		}
		return fmt.Errorf("cannot use a new control group: %w", err)
	})
}

// Open opens a group that was made. What is no group of version 2 is refused.
func Open(path string) (*Group, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open a control group: %w", err)
	}
	g := &Group{dir: dir}
	var st unix.Statfs_t
	err = g.onDescriptor(func(fd int) error { return unix.Fstatfs(fd, &st) })
	if err == nil && st.Type != unix.CGROUP2_SUPER_MAGIC {
		err = errors.New("it is none of version 2")
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot open control group %s: %w", path, err)
	}
	return g, nil
}

// Path is where the group was found.
func (g *Group) Path() string { return g.dir.Name() }

// Dir is the group's directory, for clone3(2), CLONE_INTO_CGROUP.
func (g *Group) Dir() *os.File { return g.dir }

// Close lets go of the group, which stays.
func (g *Group) Close() error { return g.dir.Close() }

// Kill sends SIGKILL to everything in the group and in the groups below it; what is
// being forked meanwhile is included.
func (g *Group) Kill() error {
	return g.write(g.Path(), "cgroup.kill", "1")
}

// Populated tells whether a process is in the group or below it; zombies do not
// count.
func (g *Group) Populated() (bool, error) {
	text, err := os.ReadFile(filepath.Join(g.Path(), "cgroup.events"))
	if err != nil {
		return false, fmt.Errorf("cannot look into the control group: %w", err)
	}
	populated, err := parsePopulated(text)
	if err != nil {
		return false, fmt.Errorf("cannot look into control group %s: %w", g.Path(), err)
	}
	return populated, nil
}

func parsePopulated(text []byte) (bool, error) {
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("populated ")); ok {
			return strconv.ParseBool(string(bytes.TrimSpace(value)))
		}
	}
	return false, errors.New("cgroup.events does not say whether it is populated")
}

// Members are the processes in the group and below it, as of some moment of the
// call.
func (g *Group) Members() ([]int, error) {
	var pids []int
	err := g.each(func(path string) error {
		more, err := membersOf(path)
		pids = append(pids, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the control group: %w", err)
	}
	return pids, nil
}

// membersOf are the processes of one group. Those of a threaded one are told by the
// group that is its domain (cgroups(7), EOPNOTSUPP).
func membersOf(path string) (pids []int, err error) {
	text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		// 0 is a process that has no number here (pid_namespaces(7)).
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Dissolve takes the group away with the empty ones below it. Processes that are still
// in it go to the group above, where they would be without it. Groups below it that
// somebody has made and that have processes are not touched: then it stays.
func (g *Group) Dissolve() error {
	const rounds = 3 // one may have forked meanwhile
	var err error
	for range rounds {
		var below bool
		if below, err = g.populatedBelow(); err != nil || below {
			break
		}
		pids, _ := membersOf(g.Path())
		for _, pid := range pids {
			_ = g.write(filepath.Dir(g.Path()), "cgroup.procs", strconv.Itoa(pid)) // it may be gone
		}
		if err = g.remove(); err == nil {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unix.EBUSY
	}
	return fmt.Errorf("cannot remove the control group: %w", err)
}

// populatedBelow tells whether a group below this one has processes.
func (g *Group) populatedBelow() (bool, error) {
	below := false
	err := g.each(func(path string) error {
		if path == g.Path() || below {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
		if err == nil {
			below, err = parsePopulated(text)
		}
		return err
	})
	return below, err
}

func (g *Group) remove() error {
	var groups []string
	if err := g.each(func(path string) error {
		groups = append(groups, path)
		return nil
	}); err != nil {
		return err
	}
	for _, path := range slices.Backward(groups) {
		if err := unix.Rmdir(path); err != nil && err != unix.ENOENT {
			return &fs.PathError{Op: "rmdir", Path: path, Err: err}
		}
	}
	return nil
}

// each visits the group and those below it, each before its own.
func (g *Group) each(visit func(path string) error) error {
	return filepath.WalkDir(g.Path(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != g.Path():
			return nil // removed meanwhile
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		}
		err = visit(path)
		if path != g.Path() && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)) {
			return nil
		}
		return err
	})
}

func (g *Group) write(group, file, text string) error {
	f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot use the control group: %w", err)
	}
	return nil
}

func (g *Group) onDescriptor(fn func(fd int) error) error {
	raw, err := g.dir.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = fn(int(fd)) })
	return errors.Join(err, inner)
}
