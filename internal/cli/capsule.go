package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/seed-8e62c83d/mur/internal/wasmhost"
)

// defaultCapsule is what start runs when nothing is named.
const defaultCapsule = "shell"

// capsuleOptions are the flags that start and run share.
type capsuleOptions struct {
	workDir  string
	dirs     []string
	env      []string
	deadline time.Duration
	memory   string
}

func (o *capsuleOptions) register(cmd *cobra.Command, workDir string) {
	flags := cmd.Flags()
	flags.StringVar(&o.workDir, "workdir", "", workDir)
	flags.StringArrayVar(&o.dirs, "dir", nil, "give a directory too: `HOST:GUEST[:ro]`")
	flags.StringArrayVar(&o.env, "env", nil, "set a variable: `NAME=VALUE`, or NAME for its value here")
	flags.DurationVar(&o.deadline, "deadline", 0, "end the capsule after this `duration`")
	flags.StringVar(&o.memory, "memory", "", "lower the memory limit to this `size`, such as 256MiB")
}

// given names a flag that was set and that only capsules have.
func (o *capsuleOptions) given() string {
	switch {
	case len(o.dirs) > 0:
		return "--dir"
	case o.deadline != 0:
		return "--deadline"
	case o.memory != "":
		return "--memory"
	default:
		return ""
	}
}

// mounts reads --dir.
func (o *capsuleOptions) mounts() ([]wasmhost.Mount, error) {
	var out []wasmhost.Mount
	for _, text := range o.dirs {
		bare, readOnly := strings.CutSuffix(text, ":ro")
		i := strings.LastIndexByte(bare, ':')
		if i < 1 || !strings.HasPrefix(bare[i+1:], "/") {
			return nil, usage("cannot use --dir %s: want HOST:GUEST or HOST:GUEST:ro, GUEST absolute", text)
		}
		host, err := filepath.Abs(bare[:i])
		if err != nil {
			return nil, cannot("use", "--dir "+text, err)
		}
		out = append(out, wasmhost.Mount{Host: host, Guest: bare[i+1:], ReadOnly: readOnly})
	}
	return out, nil
}

// memoryLimit reads --memory.
func (o *capsuleOptions) memoryLimit() (capsule.Size, error) {
	if o.memory == "" {
		return 0, nil
	}
	size, err := capsule.ParseSize(o.memory)
	if err != nil {
		return 0, usage("cannot use --memory: %v", err)
	}
	return size, nil
}

// checkWorkDir refuses directories that a capsule has no business in.
func (d *deps) checkWorkDir(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", cannot("use", "work folder "+dir, err)
	}
	root, err := d.stateRoot()
	if err != nil {
		return "", err
	}
	home := d.getenv("HOME")
	switch {
	case path == "/":
		err = errors.New("it is the root directory")
	case home != "" && path == filepath.Clean(home):
		err = errors.New("it is a home directory")
	case path == filepath.Clean(root) || strings.HasPrefix(filepath.Clean(root)+"/", path+"/"):
		err = errors.New("mur's own state is in it")
	default:
		return path, nil
	}
	return "", fail(causeDenied, "", "cannot use work folder %s: %v", dir, err)
}

// planCapsule prepares a capsule: it is loaded, and its machine code is in the
// cache, before there is a session.
func (d *deps) planCapsule(ctx context.Context, args []string, o startOptions) (*launch, error) {
	name := defaultCapsule
	if len(args) > 0 {
		name, args = args[0], ownArgs(args[1:])
	}
	c, ref, err := d.loadCapsule(name)
	if err != nil {
		return nil, err
	}
	if _, err := o.capsule.memoryLimit(); err != nil {
		return nil, err
	}
	l := &launch{name: name}
	if o.capsule.workDir != "" {
		if l.workDir, err = d.checkWorkDir(o.capsule.workDir); err != nil {
			return nil, err
		}
	}
	mounts, err := o.capsule.mounts()
	if err != nil {
		return nil, err
	}
	cache, err := d.cacheDir()
	if err != nil {
		return nil, err
	}
	if err := d.fillCache(ctx, c, cache); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, cannot("find", "the mur executable", err)
	}
	l.spec.Program = []byte(self)
	if l.spec.Env, err = d.runtimeEnv(c, cache, o.capsule.env); err != nil {
		return nil, err
	}
	l.spec.Capsule = &client.Capsule{Name: c.Manifest.Name, Version: c.Manifest.Version, SHA256: c.Digest, Path: ref}
	l.runArgs = func(work string) [][]byte {
		line := []string{"run", "--report-fd", "3", "--digest", c.Digest, "--workdir", work}
		for _, m := range mounts {
			dir := m.Host + ":" + m.Guest
			if m.ReadOnly {
				dir += ":ro"
			}
			line = append(line, "--dir", dir)
		}
		for _, pair := range o.capsule.env {
			name, _, _ := strings.Cut(pair, "=") // its value is in the runtime's environment
			line = append(line, "--env", name)
		}
		if o.capsule.deadline > 0 {
			line = append(line, "--deadline", o.capsule.deadline.String())
		}
		if o.capsule.memory != "" {
			line = append(line, "--memory", o.capsule.memory)
		}
		return asBytes(slices.Concat(line, []string{ref, "--"}, args))
	}
	return l, nil
}

// ownArgs are a capsule's own arguments, which may come after "--".
func ownArgs(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

func asBytes(words []string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

// runtimeEnv is the environment of a capsule's runtime, not of its guest: what
// the manifest lets the guest see, and what the runtime itself needs.
func (d *deps) runtimeEnv(c *capsule.Capsule, cache string, pairs []string) (map[client.Bytes]client.Bytes, error) {
	env := make(map[client.Bytes]client.Bytes)
	for _, name := range []string{"PATH", "HOME", "LOGNAME", "USER", "TERM"} {
		if value := d.getenv(name); value != "" {
			env[client.Bytes(name)] = client.Bytes(value)
		}
	}
	given, err := d.givenEnv(pairs)
	if err != nil {
		return nil, err
	}
	addEnv(env, wasmhost.ChooseEnv(c.Manifest, d.environ))
	addEnv(env, given)
	root, err := d.stateRoot()
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	env["MURMUR_STATE"], env["MURMUR_CACHE"] = client.Bytes(root), client.Bytes(cache)
	return env, nil
}

// progress says on a terminal that a capsule is being compiled, and takes it away
// at the end.
func (d *deps) progress(active bool) {
	if terminal(d.stderr) == nil {
		return
	}
	if active {
		fmt.Fprint(d.stderr, "mur: compiling the capsule, once ...")
	} else {
		fmt.Fprint(d.stderr, "\r\x1b[K")
	}
}
