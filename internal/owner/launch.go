package owner

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/ownerlink"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// maxLaunch bounds what is read of the sealed memory; a start request fits many
// times.
const maxLaunch = 4 * protocol.MaxFrame

// defaultPath is searched when the environment of the target has no PATH.
const defaultPath = "/usr/bin:/bin"

// readLaunch takes what to start from the sealed memory.
func readLaunch(f *os.File) (ownerlink.Launch, error) {
	var l ownerlink.Launch
	defer f.Close() // nobody needs the environment any longer
	data, err := procs.ReadSealed(f, maxLaunch)
	if err == nil {
		err = protocol.Unmarshal(data, &l)
	}
	if err == nil && l.Version != ownerlink.Version {
		err = fmt.Errorf("its version is %d, not %d", l.Version, ownerlink.Version)
	}
	if err != nil {
		return l, fmt.Errorf("cannot read what to launch: %w", err)
	}
	return l, nil
}

// spawn starts the target: in its own process group, which is the terminal's
// foreground group before its first instruction, with every signal at its
// default, nothing blocked, and no descriptors but the terminal and report (-1:
// none). It runs on the main thread, which never ends before the process does:
// the parent-death signal fires when the thread ends that forked.
func spawn(l ownerlink.Launch, report int, group *cgroup.Group) (pid, pidfd int, failure *lifecycle.Failure) {
	// The owner itself changes directory and back: it tells the one failure from
	// the others, and relative names are looked up from there.
	cwd := string(l.Cwd)
	if cwd == "" {
		cwd = "/"
	}
	if err := unix.Chdir(cwd); err != nil {
		return 0, -1, failed("cwd", fmt.Errorf("cannot change to directory %q: %w", cwd, err))
	}
	defer unix.Chdir("/")
	path, err := lookUp(string(l.Program), l.Env)
	if err != nil {
		return 0, -1, failed("lookup", err)
	}
	argv := []string{string(l.Program)}
	for _, a := range l.Args {
		argv = append(argv, string(a))
	}
	files := []uintptr{0, 1, 2}
	if report >= 0 {
		files = append(files, uintptr(report))
	}
	// For the target only: it would make the session's own files unreadable.
	ours := unix.Umask(l.Umask & 0o777)
	defer unix.Umask(ours)
	attr := &syscall.SysProcAttr{Foreground: true, Ctty: 0, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
	if group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(group.Dir().Fd())
	}
	proc := &syscall.ProcAttr{Env: environment(l.Env), Files: files, Sys: attr}
	pid, err = syscall.ForkExec(path, argv, proc)
	if err != nil {
		return 0, -1, failed("exec", fmt.Errorf("cannot execute %q: %w%s", path, err, explain(path, err)))
	}
	return pid, pidfd, nil
}

// lookUp finds the program as execvp(3) does. A file that may not be executed is
// remembered: it is a better reason than that there is none.
func lookUp(program string, env map[protocol.Bytes]protocol.Bytes) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	list, ok := env["PATH"]
	if !ok {
		list = defaultPath
	}
	missing := error(unix.ENOENT)
	for dir := range strings.SplitSeq(string(list), ":") {
		if program == "" {
			break
		}
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + program
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			if err == unix.EACCES {
				missing = err
			}
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil {
			return path, nil
		}
		missing = unix.EACCES
	}
	return "", fmt.Errorf("cannot find %q in PATH %q: %w", program, list, missing)
}

// environment is sorted, so that the same request always makes the same target.
func environment(env map[protocol.Bytes]protocol.Bytes) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, string(k)+"="+string(v))
	}
	slices.Sort(list)
	return list
}

// explain adds what the errno alone does not say.
func explain(path string, err error) string {
	switch {
	case errors.Is(err, unix.ENOENT) && unix.Access(path, unix.F_OK) == nil:
		return " (the file exists: the interpreter that it names does not)"
	case errors.Is(err, unix.ENOEXEC):
		return " (neither a program of this machine nor a script that begins with #!)"
	case errors.Is(err, unix.EINVAL):
		return " (no argument may hold a NUL byte)"
	}
	return ""
}

func failed(stage string, err error) *lifecycle.Failure {
	f := &lifecycle.Failure{Stage: stage, Message: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}
