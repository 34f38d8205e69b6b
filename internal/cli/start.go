package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

type startOptions struct {
	mutation
	name      nameValue
	detach    bool
	size      string
	history   sizeValue
	cleanEnv  bool
	detachKey string
	capsule   capsuleOptions
}

func newStartCmd(d *deps) *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start [flags] [CAPSULE [ARG...] | -- PROGRAM [ARG...]]",
		Short: "start a session and attach to it; exit with its status",
		Long: `Makes a session, starts a program in it and shows it until it ends or the detach
key is pressed. With -d only prints the session's id.

Input that is no terminal is typed in as it is. Its end types nothing: a program
that reads to the end of its input goes on waiting. To end it send the byte ^D:
printf 'text\n\004' | mur start -- cat

CAPSULE is a .wasm file, a directory with a murmur.yaml, or the name of a bundled
capsule; nothing at all is the bundled shell. After -- comes a plain program,
which gets the environment, the working directory and the PATH of the caller.

Flags come before the capsule; what comes after it belongs to the capsule.`,
		Example:     "  mur start\n  mur start --name work -- bash -i\n  mur start -d ./tool.wasm --its-flag",
		Annotations: inTargetsPlace(),

		ValidArgsFunction: completeCapsule,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runStart(cmd.Context(), d, args, cmd.ArgsLenAtDash() == 0, o)
		},
	}
	o.register(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.Var(&o.name, "name", "call the session by this `name`")
	flags.BoolVarP(&o.detach, "detach", "d", false, "print the session's id and return")
	flags.StringVar(&o.size, "size", "", "the terminal's `size`, such as 80x24; it stays so")
	flags.Var(&o.history, "history", "how much output is kept, a `size` of 64KiB or more (default 16MiB)")
	flags.BoolVar(&o.cleanEnv, "clean-env", false, "a plain program gets only what --env gives")
	registerDetachKey(cmd, &o.detachKey)
	o.capsule.register(cmd, "the work folder, instead of a fresh private `directory`; of a program: where it runs")
	return cmd
}

// launch is what a session is to run, but for what depends on its directory.
type launch struct {
	name    string // for messages
	spec    client.StartSpec
	workDir string // of a capsule; empty: the session's own
	runArgs func(workDir string) [][]byte
}

func runStart(ctx context.Context, d *deps, args []string, plain bool, o startOptions) error {
	size, err := parseSize(o.size)
	if err != nil {
		return err
	}
	keys, err := parseChord(o.detachKey)
	if err != nil {
		return usage("cannot use the detach key: %v", err)
	}
	if err := o.settle(d); err != nil {
		return err
	}
	var l *launch
	if plain {
		l, err = d.planProgram(args, o)
	} else {
		l, err = d.planCapsule(ctx, args, o)
	}
	if err != nil {
		return err
	}
	l.spec.History = int64(o.history)
	if l.spec.Size = size; size == nil && !o.detach {
		l.spec.Size = (&console{in: terminal(d.stdin), out: terminal(d.stdout)}).size()
	}
	s, replayed, err := d.launch(ctx, l, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.detach {
		return d.printCreated(ctx, s, o.mutation, &replayed)
	}
	record, err := d.view(ctx, s, viewOptions{keys: keys, keyName: o.detachKey, since: sensible, keepSize: size != nil, begin: true})
	if err != nil || record == nil {
		return err
	}
	return statusOf(l.name, called(s), record)
}

// launch makes the session and starts it, both as the same operation. replayed: that
// was done before.
func (d *deps) launch(ctx context.Context, l *launch, o startOptions) (s *client.Session, replayed bool, err error) {
	c, err := d.client()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := o.context(ctx)
	defer cancel()
	s, err = c.Create(ctx, client.CreateOptions{Op: o.id, Name: string(o.name)})
	if err != nil {
		o.interrupted(ctx, d)
		return nil, false, o.late(cannot("create a session for", l.name, d.nameInUse(ctx, c, err)))
	}
	if err := l.finish(s); err != nil {
		s.Close()
		return nil, false, err
	}
	r, err := s.Start(ctx, o.id, l.spec)
	if err != nil {
		o.interrupted(ctx, d)
		s.Close()
		return nil, false, o.late(o.repeatable(cannot("start", l.name, err)))
	}
	warn(d, r)
	if f := r.Answer.Error; r.Answer.State == client.StateLaunchFailed && f != nil {
		defer s.Close()
		failed := launchFailed(l.name, f).(*failure)
		failed.hint = "mur show " + called(s)
		return nil, false, failed
	}
	return s, r.Replayed, nil
}

// finish completes a capsule's launch with what depends on the session.
func (l *launch) finish(s *client.Session) error {
	if l.runArgs == nil {
		return nil
	}
	work := l.workDir
	if work == "" {
		work = filepath.Join(s.Dir(), "work")
		// The same operation again finds it.
		if err := os.Mkdir(work, 0o700); err != nil && !os.IsExist(err) {
			return cannot("make", "the work folder", err)
		}
	}
	l.spec.Args = l.runArgs(work)
	return nil
}

// umask is the caller's, which what it starts gets too. The kernel tells it only
// by setting another.
func umask() *int {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return &mask
}

// planProgram prepares a plain program: environment, directory and PATH are the
// caller's.
func (d *deps) planProgram(args []string, o startOptions) (*launch, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, usage("cannot start: no program after --")
	}
	if set := o.capsule.given(); set != "" {
		return nil, usage("cannot use %s with a plain program: it is for capsules", set)
	}
	env := make(map[client.Bytes]client.Bytes)
	if !o.cleanEnv {
		for _, entry := range d.environ {
			name, value, ok := strings.Cut(entry, "=")
			if ok && name != "" && name != "MUR_HOME" && !strings.HasPrefix(name, "MURMUR_") {
				env[client.Bytes(name)] = client.Bytes(value)
			}
		}
	}
	given, err := d.givenEnv(o.capsule.env)
	if err != nil {
		return nil, err
	}
	addEnv(env, given)
	cwd, err := os.Getwd()
	if err != nil {
		return nil, cannot("start", args[0], err)
	}
	if o.capsule.workDir != "" {
		if cwd, err = filepath.Abs(o.capsule.workDir); err != nil {
			return nil, cannot("start", args[0], err)
		}
	}
	l := &launch{name: args[0], spec: client.StartSpec{Program: []byte(d.inPath(args[0])), Cwd: []byte(cwd), Env: env, Umask: umask()}}
	for _, arg := range args[1:] {
		l.spec.Args = append(l.spec.Args, []byte(arg))
	}
	return l, nil
}

// inPath finds a program in the caller's PATH, which the target may not have. One
// that is not there is left to the launch, which fails with its stage and errno.
func (d *deps) inPath(program string) string {
	if strings.Contains(program, "/") {
		return program
	}
	for _, dir := range filepath.SplitList(d.getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		path := filepath.Join(dir, program)
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			continue
		}
		if abs, err := filepath.Abs(path); err == nil {
			return abs
		}
	}
	return program
}

// givenEnv resolves what --env gives: NAME=VALUE, or NAME for the caller's value,
// which keeps it out of sight of whoever lists processes.
func (d *deps) givenEnv(pairs []string) ([]string, error) {
	var out []string
	for _, pair := range pairs {
		name, _, whole := strings.Cut(pair, "=")
		if name == "" || strings.ContainsRune(pair, 0) {
			return nil, usage("cannot use --env %s: want NAME=VALUE, or NAME", pair)
		}
		if !whole {
			value, ok := d.lookupEnv(name)
			if !ok {
				return nil, usage("cannot use --env %s: it is not set here", name)
			}
			pair = name + "=" + value
		}
		out = append(out, pair)
	}
	return out, nil
}

// addEnv adds NAME=VALUE pairs to a launch's environment.
func addEnv(env map[client.Bytes]client.Bytes, pairs []string) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		env[client.Bytes(name)] = client.Bytes(value)
	}
}
