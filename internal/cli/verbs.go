package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// usageTemplate is how help goes on after the text of a verb.
const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Verbs:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of all verbs:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

"mur help VERB" explains a verb, "mur help TOPIC" a topic.{{end}}
`

// firstWord is the index of the first argument that is no flag, or -1.
func firstWord(args []string) int {
	for i, arg := range args {
		if arg == "--" {
			return -1
		}
		if !strings.HasPrefix(arg, "-") {
			return i
		}
	}
	return -1
}

// unknownVerb says what there is instead. args begin with what was taken for one.
func unknownVerb(cmd *cobra.Command, args []string) error {
	hint := otherName(args[0], about(args[1:]))
	if hint == "" {
		hint = "mur help"
		// Of two letters everything is near.
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && len(args[0]) > 2 {
			hint = strings.TrimSpace("mur " + near[0] + " " + quoted(args[1:]))
		}
	}
	return fail(causeUsage, hint, "cannot run %s: there is no such verb", args[0])
}

// about is the session that the words of a command were about.
func about(args []string) string {
	if i := firstWord(args); i >= 0 {
		return quoted(args[i : i+1])
	}
	return "SESSION"
}

// otherName gives the verb that does what people look for under the name that
// another program has for it.
func otherName(name, session string) string {
	switch name {
	case "rm", "remove", "delete", "del", "forget":
		return "mur retire --purge " + session
	case "stop", "end", "quit", "shutdown":
		return "mur term " + session
	case "kill", "terminate":
		return "mur sweep " + session
	case "list", "list-sessions":
		return "mur ls"
	case "log":
		return "mur logs " + session
	case "detach":
		return `mur help attach: the key ctrl-\ d detaches`
	case "new", "new-session", "open", "spawn", "launch", "begin":
		return "mur start"
	case "exec", "sh", "bash":
		return "mur start -- bash"
	case "shell":
		return "mur start shell"
	case "enter", "join", "connect", "resume", "open-session", "attach-session":
		return "mur attach " + session
	case "status", "info", "describe", "stat":
		return "mur show " + session
	case "output", "cat", "tail":
		return "mur logs " + session
	case "type", "write", "send-keys":
		return "mur send " + session
	default:
		return ""
	}
}

// quoted gives words as a shell reads them.
func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		plain := strings.IndexFunc(w, func(c rune) bool {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			return !letter && !strings.ContainsRune("-_./=:,+@%", c)
		}) < 0
		if out[i] = w; w == "" || !plain {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
