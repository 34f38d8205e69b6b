package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-8e62c83d/mur/internal/machine"
	"github.com/seed-8e62c83d/mur/internal/version"
)

const (
	guardianProgram = "mur-guardian"
	ownerProgram    = "mur-owner"
	// versionTime bounds a program that is only to say its version.
	versionTime = 10 * time.Second
	installAll  = "install mur, mur-guardian and mur-owner of one version into one directory, as make install does"
)

// examinePrograms looks for the programs that mur starts where mur, and then the
// guardian, look for them.
func (d *deps) examinePrograms(ctx context.Context) []finding {
	guardian, err := findGuardian()
	if err != nil {
		return []finding{worse(guardianProgram, lacking, err.Error(), "no session can be made", installAll)}
	}
	found := []finding{examineProgram(ctx, guardianProgram, guardian, "no session can be made")}
	// The guardian knows its own path with all links followed.
	if real, err := filepath.EvalSymlinks(guardian); err == nil {
		guardian = real
	}
	owner := filepath.Join(filepath.Dir(guardian), ownerProgram)
	return append(found, examineProgram(ctx, ownerProgram, owner, "no program can be started in a session"))
}

func findGuardian() (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), guardianProgram)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(guardianProgram)
	if err != nil {
		return "", errors.New("it is neither beside mur nor in PATH")
	}
	return filepath.Abs(path)
}

// examineProgram runs a program for its version.
func examineProgram(ctx context.Context, name, path, effect string) finding {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Dir, cmd.Env = "/", []string{} // as it is started for a session
	cmd.WaitDelay = versionTime
	out, err := cmd.Output()
	if err != nil {
		return worse(name, lacking, reasonOf(path, err), effect, installAll)
	}
	said := strings.TrimSpace(string(out))
	if said == name+" "+version.String() {
		return finding{What: name, State: fit, Found: path}
	}
	return worse(name, degraded, fmt.Sprintf("%s says %s, mur is %s", path, said, version.String()),
		"new sessions are served by another version than the one that asks for them", installAll)
}

// reasonOf says which file an error is about.
func reasonOf(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return path + " does not exist"
	}
	if text := err.Error(); strings.Contains(text, path) {
		return text
	}
	return path + ": " + err.Error()
}

// elsewhere is the way out of a place that cannot hold sessions.
const elsewhere = "export MUR_HOME=/a/private/directory/on/a/local/disk"

// examinePlace looks at the state directory, and tries on its file system what
// sessions do there.
func (d *deps) examinePlace(ctx context.Context) []finding {
	root, err := d.stateRoot()
	if err != nil {
		return []finding{worse("state-dir", lacking, err.Error(), "there is no place for sessions", hintOf(err))}
	}
	at, f := examineRoot(root)
	if f.State == lacking {
		return []finding{f}
	}
	trial, err := machine.NewTrial(at)
	if err != nil {
		return []finding{worse("state-dir", lacking, err.Error(), "no session can be made there", elsewhere)}
	}
	defer trial.Remove()
	if err := trial.Names(ctx); err != nil {
		f = worse("state-dir", lacking, root+": "+err.Error(), "no session can be made there", elsewhere)
	}
	copying, spliceErr := trial.Splice(ctx)
	return append([]finding{f}, append(ofFileSystem(machine.FileSystemOf(at)),
		judged("file-locks", trial.Locks(), lacking, "mur cannot tell whether a guardian lives", elsewhere),
		ofSplice(copying, spliceErr),
		judged("dir-notify", trial.Notices(ctx), degraded, "a guardian looks once a second whether its directory was removed",
			"use a kernel with CONFIG_DNOTIFY, and sudo sysctl fs.dir-notify-enable=1"),
	)...)
}

// examineRoot judges the state directory as mur does when it opens it. at is where
// to try things: itself, or what there is above it.
func examineRoot(root string) (at string, f finding) {
	for _, path := range []string{root, filepath.Join(root, "sessions"), filepath.Join(root, "names")} {
		if found, effect, fix := foreign(path); found != "" {
			return "", worse("state-dir", lacking, found, effect, fix)
		}
	}
	f = finding{What: "state-dir", State: fit, Found: root}
	for at = root; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == "/" {
			break
		}
	}
	if at != root {
		f.Found += ", which the first session will make"
	}
	return at, f
}

// foreign says why mur refuses a directory; nothing if it does not, or there is none.
func foreign(path string) (found, effect, fix string) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", ""
	}
	effect = "mur keeps secrets there and refuses to"
	if err != nil {
		return reasonOf(path, err), effect, elsewhere
	}
	owner := os.Geteuid()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(st.Uid)
	}
	switch mode := info.Mode(); {
	case !mode.IsDir():
		return path + " is not a directory", effect, elsewhere
	case owner != os.Geteuid():
		return fmt.Sprintf("%s belongs to user %d", path, owner), effect, elsewhere
	case mode.Perm()&0o077 != 0:
		return fmt.Sprintf("%s is open to others: its mode is %#o", path, mode.Perm()), effect, "chmod 700 " + quoted([]string{path})
	}
	return "", "", ""
}

func ofSplice(copying bool, err error) finding {
	f := judged("splice", err, lacking, "the output of a session cannot be captured", elsewhere)
	switch {
	case errors.Is(err, machine.ErrNoTerminal):
		f.Fix = mountTerminals
	case err == nil && copying:
		return worse("splice", degraded, "output is captured, but by copying",
			"a guardian that is killed can lose or double output", elsewhere)
	}
	return f
}

const (
	// littleSpace is less than a few sessions keep: each has 16 MiB of output by
	// default.
	littleSpace = 64 << 20
	fewFiles    = 1000
)

func ofFileSystem(is machine.FileSystem, err error) []finding {
	if err != nil {
		return []finding{worse("file-system", degraded, err.Error(), "it is not known how durable it is", elsewhere)}
	}
	kind := finding{What: "file-system", State: fit, Found: is.Kind}
	switch {
	case is.Volatile:
		kind = worse("file-system", degraded, is.Kind, "a restart of the machine loses records and output: nothing there is durable", elsewhere)
	case is.Remote:
		kind = worse("file-system", degraded, is.Kind, "what is committed is as durable as the server makes it, and each commit waits for it", elsewhere)
	}
	space := finding{What: "free-space", State: fit, Found: fmt.Sprintf("%d MiB", is.Free>>20)}
	if is.FreeFiles >= 0 {
		space.Found += fmt.Sprintf(", %d files", is.FreeFiles)
	}
	if is.Free < littleSpace || is.FreeFiles >= 0 && is.FreeFiles < fewFiles {
		space = worse("free-space", degraded, space.Found,
			"on a full disk programs wait in their next write, and only term, sweep and retire work",
			"mur ls -q --ended | xargs -r mur retire --purge")
	}
	return []finding{kind, space}
}
