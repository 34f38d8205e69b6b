package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
)

// A hostile tree is what has escaped from sweeps: kill(-pgid), scans of the session,
// of the terminal, of the environment, of lists of children each miss some of it.
// All its processes have the tree's marker among their arguments.

const (
	immunes = 20
	// lifetime ends what a test has left behind, were it killed itself.
	lifetime = 5 * time.Minute
	// mostLinks does the same for the chains.
	mostLinks = 1_000_000
)

// members are the kinds that stay; each notes its pid in a file of its name.
func members() []string {
	all := []string{"plain", "group", "orphan", "daemon", "nohup", "bare", "reaper", "child", "grandchild", "stopped"}
	for i := range immunes {
		all = append(all, "immune"+strconv.Itoa(i))
	}
	return all
}

// chains are the kinds that fork a successor and exit, again and again; each counts
// its links in a file of its name, eight bytes of memory.
func chains() []string { return []string{"chain", "fast"} }

// playTree starts everything and stays, until there is a file named go.
func playTree(args []string) (int, error) {
	marker, dir := args[0], args[1]
	for _, kind := range append(members(), chains()...) {
		var cmd *exec.Cmd
		var err error
		switch kind {
		case "child", "grandchild": // started by the one before
			continue
		case "orphan", "daemon", "bare", "chain", "fast":
			cmd, err = acting("parent", kind, marker, dir)
		case "nohup":
			if cmd, err = acting("member", kind, marker, dir); err == nil {
				cmd.Args = append([]string{"nohup", cmd.Path}, cmd.Args[1:]...)
				cmd.Path, err = exec.LookPath("nohup")
			}
		default:
			cmd, err = acting("member", kind, marker, dir)
			if kind == "group" {
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			}
			if n, ok := strings.CutPrefix(kind, "immune"); ok {
				i, _ := strconv.Atoi(n)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: i%2 != 0}
			}
		}
		if err != nil {
			return 1, err
		}
		if err := cmd.Start(); err != nil {
			return 1, err
		}
	}
	return 0, await(lifetime, func() bool { _, err := os.Stat(filepath.Join(dir, "go")); return err == nil })
}

// await is eventually for a role.
func await(bound time.Duration, is func() bool) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	over := time.After(bound)
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			return errors.New("it never came")
		}
	}
	return nil
}

// playParent starts a member and exits.
func playParent(args []string) (int, error) {
	kind := args[0]
	cmd, err := acting("member", args...)
	if err != nil {
		return 1, err
	}
	if kind == "daemon" || kind == "bare" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if kind == "bare" {
		cmd.Env = []string{}
	}
	return 0, cmd.Start()
}

// playMember is one process of the tree, or a decoy beside it, which ends with its
// standard input.
func playMember(args []string) (int, error) {
	kind, marker, dir := args[0], args[1], args[2]
	switch {
	case kind == "decoy", len(args) > 3:
		_, err := io.Copy(io.Discard, os.Stdin)
		return 0, err
	case kind == "chain" || kind == "fast":
		return 1, chain(filepath.Join(dir, kind), kind == "fast")
	case kind == "daemon" || kind == "bare":
		if err := unix.CloseRange(0, 1<<31-1, 0); err != nil {
			return 1, err
		}
	case strings.HasPrefix(kind, "immune"):
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	}
	next := map[string]string{"reaper": "child", "child": "grandchild"}[kind]
	if next != "" {
		if kind == "reaper" {
			if err := procs.BecomeSubreaper(); err != nil {
				return 1, err
			}
		}
		cmd, err := acting("member", next, marker, dir)
		if err != nil {
			return 1, err
		}
		if err := cmd.Start(); err != nil {
			return 1, err
		}
	}
	if err := note(filepath.Join(dir, kind), os.Getpid()); err != nil {
		return 1, err
	}
	if kind == "stopped" {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	<-time.After(lifetime)
	return 0, nil
}

// note writes a pid into a file that is whole once it is there.
func note(path string, pid int) error {
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, pid), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// notedPID reads it.
func notedPID(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// chain becomes a chain that counts its links in a file.
func chain(path string, fast bool) error {
	counter, err := counterIn(path)
	if err != nil {
		return err
	}
	var d *unix.Timespec
	if !fast {
		d = &unix.Timespec{Nsec: int64(300 * time.Microsecond)}
	}
	links(counter, d)
	return nil
}

// counterIn maps a file of eight bytes.
func counterIn(path string) (*uint64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*uint64)(unsafe.Pointer(&page[0])), nil
}

// links never returns: each link lets the next go on in its place. Only the last
// one writes.
//
//go:norace
//go:nosplit
func links(counter *uint64, d *unix.Timespec) {
	for *counter < mostLinks {
		*counter++
		if d != nil {
			doze(d)
		}
		if pid, errno := fork(); pid != 0 && errno == 0 {
			break
		}
	}
	leave(0)
}
