package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
	"github.com/seed-8e62c83d/mur/internal/bundled"
	"github.com/seed-8e62c83d/mur/internal/capsule"
)

// shells are those that completion is written for.
func shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

func newCompletionCmd(d *deps) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "print a script with which a shell completes mur's arguments",
		Long: `Prints a script for bash, zsh, fish or powershell. With it the shell completes verbs,
flags, sessions, capsules, signals and operations.`,
		Example: `  source <(mur completion bash)
  mur completion zsh >"${fpath[1]}/_mur"
  mur completion fish >~/.config/fish/completions/mur.fish`,
		ValidArgs: shells(),
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly(1)(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(shells(), args[0]) {
				return usage("cannot complete for %s: want %s", args[0], strings.Join(shells(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(d.stdout, true)
			case "zsh":
				return root.GenZshCompletion(d.stdout)
			case "fish":
				return root.GenFishCompletion(d.stdout, true)
			default:
				return root.GenPowerShellCompletionWithDesc(d.stdout)
			}
		},
	}
}

// complete offers the sessions that fit, which were not named yet.
func (d *deps) complete(cmd *cobra.Command, given []string, fits func(client.Status) bool) ([]string, cobra.ShellCompDirective) {
	c, err := d.existing()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	all, _ := c.List(cmd.Context())
	var out []string
	for _, st := range all {
		text := st.Session
		// The name of a retired session is free, and may be another's.
		if st.Name != "" && st.State != client.StateRetired {
			text = st.Name
		}
		if fits(st) && !slices.Contains(given, text) {
			out = append(out, text)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func anySession(client.Status) bool { return true }

func notRetired(st client.Status) bool { return st.State != client.StateRetired }

// completeSessions offers any session, as the first argument.
func (d *deps) completeSessions(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return d.complete(cmd, nil, anySession)
}

// completeCurrent leaves out what was retired.
func (d *deps) completeCurrent(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return d.complete(cmd, nil, notRetired)
}

// completeMany offers sessions for each argument.
func (d *deps) completeMany(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return d.complete(cmd, given, anySession)
}

// completeSignal offers a session, then a signal.
func (d *deps) completeSignal(cmd *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch len(given) {
	case 0:
		return d.completeCurrent(cmd, given, begun)
	case 1:
		var out []string
		long := strings.HasPrefix(strings.ToUpper(begun), "SIG")
		for n := 1; n < 32; n++ {
			name := unix.SignalName(unix.Signal(n))
			if !long {
				name = strings.TrimPrefix(name, "SIG")
			}
			out = append(out, name)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCapsule offers the bundled capsules and what looks like one here. With
// nothing to offer the shell completes file names, as it does for the arguments.
func completeCapsule(_ *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, name := range bundled.Names() {
		if strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	if strings.ContainsAny(begun, `*?[\`) {
		return out, cobra.ShellCompDirectiveDefault
	}
	modules, _ := filepath.Glob(begun + "*.wasm")
	manifests, _ := filepath.Glob(begun + "*/" + capsule.ManifestFile)
	for i := range manifests {
		manifests[i] = filepath.Dir(manifests[i])
	}
	before := begun[:strings.LastIndexByte(begun, '/')+1] // as it was typed: Glob cleans it
	for _, path := range slices.Concat(modules, manifests) {
		out = append(out, before+filepath.Base(path))
	}
	return out, cobra.ShellCompDirectiveDefault
}

// words completes a flag that takes one of a few words.
func words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}
