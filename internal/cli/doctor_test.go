package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/machine"
)

// policy is what logind does by this main file.
func policy(t *testing.T, settings string) machine.KillPolicy {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "etc/systemd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "logind.conf"), []byte("[Login]\n"+settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := machine.ReadKillPolicy(root)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhetherSessionsOutliveTheLogoutIsToldRight(t *testing.T) {
	const kills, leaves = "KillUserProcesses=yes\n", "KillUserProcesses=no\n"
	scope := machine.Login{Scope: "session-3.scope", UID: "1000"}
	manager := machine.Login{Manager: "user@1000.service", UID: "1000"}
	for _, c := range []struct {
		login    machine.Login
		user     string
		lingers  bool
		settings string
		state    fitness
		found    string
		fix      string
	}{
		{scope, "u", false, leaves, fit, "session-3.scope, no lingering, processes are left alone at logout (/etc/systemd/logind.conf)", ""},
		{scope, "u", true, leaves, fit, "session-3.scope, lingering, processes are left alone at logout (/etc/systemd/logind.conf)", ""},
		{scope, "u", false, kills, degraded, "session-3.scope, no lingering, processes are killed at logout (/etc/systemd/logind.conf)", "loginctl enable-linger u, and then: " + throughManager},
		{scope, "u", true, kills, degraded, "session-3.scope, lingering, processes are killed at logout (/etc/systemd/logind.conf)", throughManager},
		{scope, "", false, "", degraded, "session-3.scope, no lingering, KillUserProcesses is set nowhere", "loginctl enable-linger, and then: " + throughManager},
		{scope, "root", false, kills, fit, "session-3.scope, no lingering, processes are left alone at logout (KillExcludeUsers)", ""},
		{manager, "u", false, leaves, degraded, "user@1000.service, no lingering", "loginctl enable-linger u"},
		{manager, "u", true, kills, fit, "user@1000.service, lingering", ""},
	} {
		f := ofLogin(c.login, c.user, c.lingers, policy(t, c.settings))
		if f.State != c.state || f.Found != c.found || f.Fix != c.fix || (f.Effect == "") != (c.state == fit) {
			t.Errorf("%+v, want %s, %s, %s", f, c.state, c.found, c.fix)
		}
	}
}

func TestWhatIsNotOkSaysWhatItMeansAndAWayOut(t *testing.T) {
	denied := errors.New("denied")
	own := cgroup.Place{Mount: "/m", Path: "/g", Dir: "/m/g"}
	for _, c := range []struct {
		f     finding
		state fitness
	}{
		{ofPidFDs(true, nil), fit},
		{ofPidFDs(false, denied), lacking},
		{ofInotify(128, nil), fit},
		{ofInotify(128, unix.EMFILE), degraded},
		{ofInotify(0, denied), degraded},
		{ofTerminals(3, 4096, nil), fit},
		{ofTerminals(4090, 4096, nil), degraded},
		{ofTerminals(5000, 4096, nil), degraded},
		{ofTerminals(0, 0, nil), fit},
		{ofTerminals(4096, 4096, unix.ENOSPC), lacking},
		{ofDescriptors(1024, nil), fit},
		{ofDescriptors(unix.RLIM_INFINITY, nil), fit},
		{ofDescriptors(64, nil), degraded},
		{ofCgroup(machine.Cgroup{Place: own}, nil), fit},
		{ofCgroup(machine.Cgroup{Place: own, Denied: fs.ErrPermission}, nil), degraded},
		{ofCgroup(machine.Cgroup{Place: cgroup.Place{Mount: "/m", Path: "/../g"}}, nil), degraded},
		{ofCgroup(machine.Cgroup{}, nil), degraded},
		{ofCgroup(machine.Cgroup{}, denied), degraded},
		{ofLandlock(7, nil), fit},
		{ofLandlock(0, unix.ENOSYS), degraded},
		{ofSplice(false, nil), fit},
		{ofSplice(true, nil), degraded},
		{ofSplice(false, denied), lacking},
		{ofSplice(false, machine.ErrNoTerminal), lacking},
		{ofFileSystem(machine.FileSystem{Kind: "ext4", Free: 1 << 40, FreeFiles: -1}, nil)[0], fit},
		{ofFileSystem(machine.FileSystem{Kind: "ext4", Free: 1 << 40, FreeFiles: -1}, nil)[1], fit},
		{ofFileSystem(machine.FileSystem{Kind: "tmpfs", Volatile: true}, nil)[0], degraded},
		{ofFileSystem(machine.FileSystem{Kind: "nfs", Remote: true}, nil)[0], degraded},
		{ofFileSystem(machine.FileSystem{Kind: "ext4", Free: 1 << 20, FreeFiles: -1}, nil)[1], degraded},
		{ofFileSystem(machine.FileSystem{Kind: "ext4", Free: 1 << 40, FreeFiles: 9}, nil)[1], degraded},
		{ofFileSystem(machine.FileSystem{}, denied)[0], degraded},
	} {
		switch f := c.f; {
		case f.State != c.state:
			t.Errorf("%+v, want %s", f, c.state)
		case f.What == "" || f.Found == "":
			t.Errorf("%+v: what was found?", f)
		case (f.State == fit) != (f.Effect == "" && f.Fix == ""):
			t.Errorf("%+v: what does it mean, and what is to be done?", f)
		}
	}
	plain := unused(ofLandlock(0, unix.ENOSYS))
	if plain.State != fit || plain.Effect != "" || plain.Fix != "" {
		t.Errorf("%+v: mur does not use it", plain)
	}
}

func TestOnlyWhatIsMissingIsAnError(t *testing.T) {
	works := judged("a", nil, lacking, "effect", "fix")
	less := judged("b", errors.New("reason"), degraded, "effect", "fix")
	none := judged("c", errors.New("reason"), lacking, "effect", "the way out")
	if err := verdict([]finding{works, less}); err != nil {
		t.Error(err)
	}
	err := verdict([]finding{works, less, none, none})
	if err == nil || err.Error() != "cannot run sessions here: c: reason" || hintOf(err) != "the way out" || causeOf(err) != causeFailed {
		t.Errorf("%v, hint %q", err, hintOf(err))
	}
}

func TestADirectoryThatMurRefusesIsTold(t *testing.T) {
	dir := t.TempDir()
	private, open, file, link := filepath.Join(dir, "private"), filepath.Join(dir, "o pen"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	err := errors.Join(
		os.Mkdir(private, 0o700), os.Mkdir(open, 0o700), os.Chmod(open, 0o750),
		os.WriteFile(file, nil, 0o600), os.Symlink(private, link),
	)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		private: "", filepath.Join(dir, "nothing"): "",
		open: "is open to others: its mode is 0750", file: "is not a directory", link: "is not a directory",
		filepath.Join(file, "below"): "not a directory",
	} {
		found, effect, fix := foreign(path)
		if want == "" && found != "" || !strings.Contains(found, want) || (found == "") != (effect == "" && fix == "") {
			t.Errorf("%s: %q, %q, %q, want %q", path, found, effect, fix, want)
		}
	}
	if _, _, fix := foreign(open); fix != "chmod 700 '"+open+"'" {
		t.Error(fix)
	}
	at, f := examineRoot(filepath.Join(private, "a/b"))
	if at != private || f.State != fit {
		t.Errorf("%s, %+v", at, f)
	}
	if _, f := examineRoot(open); f.State != lacking {
		t.Errorf("%+v", f)
	}
}
