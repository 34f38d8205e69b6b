package cli

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/machine"
)

// otherKernel is the way out where the kernel, or a filter, refuses a call.
const otherKernel = "use Linux 5.11 or later; in a container, let its filter of system calls allow this one"

// examineKernel tries the calls that mur makes and looks at the limits.
func examineKernel() []finding {
	return []finding{
		ofPidFDs(machine.PidFDs()),
		judged("sealed-memfd", machine.SealedMemory(), lacking, "no program can be started: what to launch is handed over in sealed memory", otherKernel),
		judged("subreaper", machine.Subreaper(), lacking, "no program can be started: its owner must get its orphans", otherKernel),
		judged("close-range", machine.CloseRange(), degraded, "inherited descriptors are found one by one in /proc/self/fd", otherKernel),
		judged("proc-children", machine.ChildrenFiles(), degraded,
			"the processes of a session are found by looking at all processes: mur sweep is slower",
			"use a kernel with CONFIG_PROC_CHILDREN, and a /proc that shows all of your processes"),
		ofInotify(machine.Inotify()),
		ofTerminals(machine.Terminals()),
		ofDescriptors(machine.Descriptors()),
		ofCgroup(machine.OwnCgroup()),
		unused(ofLandlock(machine.Landlock())),
	}
}

func ofPidFDs(info bool, err error) finding {
	f := judged("pidfd", err, lacking, "mur cannot tell whether the processes of a session live", otherKernel)
	if info {
		f.Found += ", with PIDFD_GET_INFO"
	}
	return f
}

func ofInotify(limit int, err error) finding {
	f := judged("inotify", err, degraded, "mur wait, mur watch and mur logs -f cannot follow a session", otherKernel)
	if errors.Is(err, unix.EMFILE) {
		f.Found = "all in use"
		f.Fix = fmt.Sprintf("sudo sysctl fs.inotify.max_user_instances=%d", max(2*limit, 1024))
	}
	if limit > 0 {
		f.Found += fmt.Sprintf(", %d for all programs of a user", limit)
	}
	return f
}

// mountTerminals is the way to terminals where there are none at all.
const mountTerminals = "sudo mount -t devpts devpts /dev/pts"

// fewTerminals is how many are to be left: each session has one.
const fewTerminals = 32

func ofTerminals(used, limit int, err error) finding {
	f := judged("ptys", err, lacking, "no session can have a terminal", mountTerminals)
	more := fmt.Sprintf("sudo sysctl kernel.pty.max=%d", max(2*limit, 4096))
	switch {
	case errors.Is(err, unix.ENOSPC):
		f.Fix = more
	case err == nil && limit > 0 && limit-used < fewTerminals:
		f = worse("ptys", degraded, f.Found, fmt.Sprintf("only %d more sessions can have a terminal", max(limit-used, 0)), more)
	}
	if limit > 0 {
		f.Found += fmt.Sprintf(", %d of %d in use", used, limit)
	}
	return f
}

// enoughDescriptors is what a guardian may need: its connections are limited to
// 296 by themselves.
const enoughDescriptors = 512

func ofDescriptors(limit uint64, err error) finding {
	f := finding{What: "nofile", State: fit, Found: fmt.Sprintf("%d descriptors", limit)}
	switch {
	case err != nil:
		f.Found = err.Error() // nobody refuses this
	case limit == unix.RLIM_INFINITY:
		f.Found = "no limit"
	case limit < enoughDescriptors:
		f = worse("nofile", degraded, f.Found, "a guardian with many clients turns some of them away as busy",
			"raise the hard limit where the login or the unit is made, for example LimitNOFILE=4096")
	}
	return f
}

func ofCgroup(c machine.Cgroup, err error) finding {
	const effect = "processes are ended one after the other, and what is left after an owner was killed cannot be proved gone"
	const fix = "start mur from a unit of your user manager (systemd-run --user --scope --quiet mur start), on Linux 5.14 or later"
	f := finding{What: "cgroup", State: fit, Found: c.String()}
	switch {
	case err != nil:
		return worse("cgroup", degraded, err.Error(), effect, fix)
	case c.Dir == "":
		return worse("cgroup", degraded, f.Found, effect, fix)
	case c.Denied != nil:
		return worse("cgroup", degraded, f.Found+" is not ours: "+c.Denied.Error(), effect, fix)
	}
	f.Found += " is ours"
	return f
}

func ofLandlock(version int, err error) finding {
	f := judged("landlock", err, degraded, "there is no second wall around capsules, only their sandbox",
		"use a kernel with CONFIG_SECURITY_LANDLOCK, with landlock in its lsm= parameter")
	if err == nil {
		f.Found = fmt.Sprintf("version %d", version)
	}
	return f
}
