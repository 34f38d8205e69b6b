package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// schema is the version of all JSON output, which only grows.
const schema = 1

// Signal is the cause with which main cancels the context of Run.
type Signal syscall.Signal

func (s Signal) Error() string { return "ended by " + signalName(int(s)) }

// Run is mur: args as after the program's name, environ as os.Environ. It
// returns the exit code, or -n where the process is to die of signal n, which was
// the cause of ctx's end.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	d := &deps{args: args, stdin: stdin, stdout: stdout, stderr: stderr, environ: environ, now: time.Now}
	root := newRootCmd(d)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return d.finish(ctx, cmd, args, err)
}

func newRootCmd(d *deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "mur VERB [ARG...]",
		Short: "terminal sessions that outlive whatever shows them",
		Long: `mur runs capsules - sandboxed WebAssembly programs - and plain programs in
terminal sessions that outlive whatever shows them.`,
		Example: `  mur start                        a shell in a sandbox
  mur start --name work -- bash    a session with a plain program
  mur attach work                  come back to it
  mur ls                           what there is`,
		Version:                    versionLine(),
		SilenceErrors:              true,
		SilenceUsage:               true,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&d.color, "color", "auto", "mark states with colour, `when`: auto, always or never")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"auto", "always", "never"}, d.color) {
			return usage("cannot use --color %s: want auto, always or never", d.color)
		}
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name := firstWord(d.args); cmd == root && name >= 0 {
			return unknownVerb(cmd, d.args[name:]) // with flags that mur itself does not have
		}
		return usage("cannot run %s: %w", cmd.CommandPath(), err)
	})
	root.SetUsageTemplate(usageTemplate)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		newStartCmd(d), newAttachCmd(d), newRunCmd(d),
		newLsCmd(d), newShowCmd(d), newWatchCmd(d), newWaitCmd(d), newLogsCmd(d),
		newSendCmd(d), newResizeCmd(d), newSignalCmd(d),
		newTermCmd(d), newSweepCmd(d), newRetireCmd(d), newRecoverCmd(d), newOpCmd(d),
		newCreateCmd(d), newDoctorCmd(d), newVersionCmd(d), newCompletionCmd(d),
	)
	root.AddCommand(topics()...)
	root.SetHelpCommand(newHelpCmd(d))
	return root
}

// targetsPlace marks the verbs that exit with a target's status.
const targetsPlace = "targets-place"

func inTargetsPlace() map[string]string { return map[string]string{targetsPlace: "yes"} }

// finish says what went wrong and finds the exit code.
func (d *deps) finish(ctx context.Context, cmd *cobra.Command, args []string, err error) int {
	if err == nil {
		return 0
	}
	var status targetStatus
	if errors.As(err, &status) {
		return int(status)
	}
	var ended Signal
	if errors.As(context.Cause(ctx), &ended) {
		return -int(ended)
	}
	c := causeOf(err)
	cut := c == causeUsage // then flags after the wrong one were not read
	if cut {
		err = withUsage(cmd, err)
	}
	if !isReported(err) {
		d.report(err, asked(cmd, args, cut, "json", ""))
	}
	if cmd.Annotations[targetsPlace] != "" && !asked(cmd, args, cut, "detach", "d") {
		c = c.inTargetsPlace()
	}
	code, _ := c.exit()
	return code
}

// asked tells whether a flag is on, with cut also when the flags could not be
// read to their end.
func asked(cmd *cobra.Command, args []string, cut bool, name, short string) bool {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return false
	}
	if f.Changed {
		return f.Value.String() == "true"
	}
	if !cut {
		return false
	}
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == "--"+name || short != "" && arg == "-"+short {
			return true
		}
	}
	return false
}

// report says an error, in words or as JSON.
func (d *deps) report(err error, asJSON bool) {
	if asJSON {
		var line struct {
			Schema int `json:"schema"`
			Error  struct {
				Code    string `json:"code"`
				Message string `json:"message"`
				Usage   string `json:"usage,omitempty"`
				Hint    string `json:"hint,omitempty"`
			} `json:"error"`
		}
		line.Schema = schema
		line.Error.Code, line.Error.Message, line.Error.Hint = word(err), err.Error(), hintOf(err)
		line.Error.Usage = usageOf(err)
		writeJSON(d.stderr, line)
		return
	}
	fmt.Fprintf(d.stderr, "mur: error: %s\n", err)
	for _, id := range candidates(err) {
		fmt.Fprintf(d.stderr, "mur:   %s\n", id)
	}
	if line := usageOf(err); line != "" {
		fmt.Fprintf(d.stderr, "mur: usage: %s\n", line)
	}
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(d.stderr, "mur: hint: %s\n", hint)
	}
}

// writeJSON writes one value as one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
