package cli

import (
	"github.com/spf13/cobra"
)

func newHelpCmd(*deps) *cobra.Command {
	return &cobra.Command{
		Use:   "help [TOPIC]",
		Short: "explain a verb or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil || len(rest) > 0 {
				return fail(causeNotFound, "mur help", "cannot explain %s: there is no such verb or topic", quoted(args))
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var out []string
			within, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				within = cmd // which has none
			}
			for _, c := range within.Commands() {
				if !c.Hidden {
					out = append(out, c.Name())
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// topics are the help texts that belong to no verb.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "what the exit codes mean", Long: exitCodesHelp()},
		{Use: "environment", Short: "which environment variables count", Long: environmentHelp},
		{Use: "sessions", Short: "how sessions are named and where they live", Long: sessionsHelp},
	}
}

const environmentHelp = `mur reads no configuration file. These variables count:

  MUR_HOME        where the sessions are, an absolute path; else
                  $XDG_STATE_HOME/mur, else ~/.local/state/mur
  XDG_CACHE_HOME  compiled capsules are kept in $XDG_CACHE_HOME/mur, else in
                  ~/.cache/mur, without HOME in cache/ beside the sessions
  NO_COLOR        set and not empty: no colour
  TERM            "dumb": no colour; a target gets it as it is
  PATH            where "mur start -- PROGRAM" finds the program

MURMUR_STATE and MURMUR_CACHE go before these. They are for programs that launch
mur, and mur sets them for the capsules that it runs in a session.

A plain program gets the environment of mur without MURMUR_* and MUR_HOME; with
--clean-env none of it. --env NAME=VALUE is added in either case. A capsule gets
only the variables that its manifest names.`

const sessionsHelp = `A session is a terminal with one program in it. It goes on when whatever shows it
goes away, and its final record stays until it is retired.

A SESSION is given by its name, its id (ses_ and 32 digits), or the beginning of
its id: at least four digits, with or without ses_. The name of an ended session
is free again once it was retired.

States: new (no program yet), reserved and starting, running, stopped (^Z),
exited (its output is still being collected), ended, launch-failed (the program
was never started), lost (how it ended is unknown), retired.

A session has an owner, which goes on as long as its program, and a guardian, which
serves whoever connects. The guardian leaves when there is nothing to do and comes
back on demand; one that is killed is replaced at once, and nothing is lost. A
session is never ended for being idle nor for lack of a guardian. After a crash of
more than that, mur recover settles what is left, as does the next change of the
session; mur op show tells what became of an operation.

Each session is a private directory, sessions/ID below the state directory (see
mur help environment): its output, its journal, the guardian's socket and log.
mur retire --purge removes it.`
