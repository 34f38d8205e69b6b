package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/wasmhost"
)

type runOptions struct {
	json     bool
	reportFD int
	digest   string
	capsule  capsuleOptions
}

func newRunCmd(d *deps) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] CAPSULE [ARG...]",
		Short: "run a capsule here, without a session; exit with its status",
		Long: `Runs a capsule in this terminal. Nothing outlives it: without --workdir its work
folder is a temporary one. A limit that ends the capsule is told on stderr and
exits with 1.

Flags come before the capsule; what comes after it belongs to the capsule.`,
		Example:     "  mur run hello\n  mur run --workdir . ./tool.wasm --its-flag",
		Annotations: inTargetsPlace(),

		ValidArgsFunction: completeCapsule,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fail(causeUsage, "mur run hello", "cannot run %s: which capsule?", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRun(cmd.Context(), d, args[0], ownArgs(args[1:]), o)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.BoolVar(&o.json, "json", false, "print errors as JSON")
	flags.IntVar(&o.reportFD, "report-fd", -1, "tell on this `descriptor` how the capsule fares")
	flags.StringVar(&o.digest, "digest", "", "run only the module with this `sha256`")
	for _, name := range []string{"report-fd", "digest"} {
		flags.Lookup(name).Hidden = true // a session's owner gives them
	}
	o.capsule.register(cmd, "the work folder, instead of a temporary `directory`")
	return cmd
}

func runRun(ctx context.Context, d *deps, name string, args []string, o runOptions) error {
	r, err := openReporter(o.reportFD)
	if err != nil {
		return err
	}
	defer r.close()
	config, cleanUp, err := d.runConfig(name, args, o)
	if err != nil {
		r.refused("load", err)
		return err
	}
	defer cleanUp()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(signals)
	config.Signals = signals
	config.Begin = r.running
	// The runtime itself ends the guest in the way that the signal asks for.
	result, err := wasmhost.Run(context.WithoutCancel(ctx), config)
	var refused *wasmhost.Refused
	switch {
	case errors.As(err, &refused):
		r.refused(refused.Stage, err)
		return &failure{cause: causeNotStarted, code: refused.Code, err: fmt.Errorf("cannot run %s: %w (%s)", name, &shortened{refused.Message, err}, refused.Code)}
	case err != nil:
		r.refused("runtime", err)
		return &failure{cause: causeMur, err: fmt.Errorf("cannot run %s: %w", name, err)}
	}
	if result.Reason != wasmhost.Exited {
		r.ended(result)
		d.say("%s ended: %s%s", name, result.Reason, detail(result))
	}
	if result.ExitCode != 0 {
		return targetStatus(result.ExitCode)
	}
	return nil
}

func detail(r wasmhost.Result) string {
	text := ""
	if r.Detail != "" {
		text = ": " + r.Detail
	}
	if r.Trace != "" {
		text += "\n" + r.Trace
	}
	return text
}

// runConfig loads the capsule and gathers what it gets.
func (d *deps) runConfig(name string, args []string, o runOptions) (c wasmhost.Config, cleanUp func(), err error) {
	nothing := func() {}
	loaded, _, err := d.loadCapsule(name)
	if err != nil {
		return c, nothing, err
	}
	if o.digest != "" && o.digest != loaded.Digest {
		return c, nothing, fail(causeNotStarted, "", "cannot run %s: its module has changed, its sha256 is %s", name, loaded.Digest)
	}
	c = wasmhost.Config{Capsule: loaded, Args: args, Term: d.getenv("TERM"), Compiling: d.progress, Deadline: o.capsule.deadline}
	if c.Dirs, err = o.capsule.mounts(); err != nil {
		return c, nothing, err
	}
	if c.Memory, err = o.capsule.memoryLimit(); err != nil {
		return c, nothing, err
	}
	if c.CacheDir, err = d.cacheDir(); err != nil {
		return c, nothing, err
	}
	given, err := d.givenEnv(o.capsule.env)
	if err != nil {
		return c, nothing, err
	}
	c.Env = slices.Concat(wasmhost.ChooseEnv(loaded.Manifest, d.environ), given)
	c.Stdin, _ = d.stdin.(*os.File)
	c.Stdout, _ = d.stdout.(*os.File)
	c.Stderr, _ = d.stderr.(*os.File)
	c.WorkDir, cleanUp, err = d.workFolder(loaded, o)
	return c, cleanUp, err
}

// workFolder is the directory behind /work.
func (d *deps) workFolder(c *capsule.Capsule, o runOptions) (dir string, cleanUp func(), err error) {
	nothing := func() {}
	switch {
	case o.reportFD >= 0: // of a session, chosen and checked by start
		return o.capsule.workDir, nothing, nil
	case o.capsule.workDir != "":
		dir, err = d.checkWorkDir(o.capsule.workDir)
		return dir, nothing, err
	}
	dir, err = os.MkdirTemp("", "mur-work-")
	if err != nil {
		return "", nothing, cannot("make", "a work folder for "+c.Manifest.Name, err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// reporter tells a session's owner how the capsule fares. A report that cannot be
// written is lost: it is a label, the exit status is the truth.
type reporter struct{ f *os.File }

func openReporter(fd int) (*reporter, error) {
	if fd < 0 {
		return &reporter{}, nil
	}
	if fd < 3 {
		return nil, usage("cannot report on descriptor %d: it is a standard stream", fd)
	}
	f := os.NewFile(uintptr(fd), "report")
	if _, err := f.Stat(); err != nil {
		return nil, usage("cannot report on descriptor %d: %v", fd, err)
	}
	return &reporter{f: f}, nil
}

func (r *reporter) write(report lifecycle.Report) {
	if r.f != nil {
		protocol.WriteFrame(r.f, report)
	}
}

func (r *reporter) running() { r.write(lifecycle.Report{Running: true}) }

func (r *reporter) refused(stage string, err error) {
	f := &lifecycle.Failure{Stage: stage, Message: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	r.write(lifecycle.Report{Refused: f})
}

func (r *reporter) ended(result wasmhost.Result) {
	text := string(result.Reason)
	if result.Detail != "" {
		text += ": " + result.Detail
	}
	r.write(lifecycle.Report{Reason: text})
}

func (r *reporter) close() {
	if r.f != nil {
		r.f.Close()
	}
}
