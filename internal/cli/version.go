package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/internal/version"
)

func versionLine() string { return fmt.Sprintf("mur %s %s", version.String(), runtime.Version()) }

func newVersionCmd(d *deps) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  exactly(0),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(d.stdout, struct {
					Schema  int    `json:"schema"`
					Version string `json:"version"`
					Commit  string `json:"commit,omitempty"`
					Go      string `json:"go"`
				}{schema, version.Number, version.Commit(), runtime.Version()})
			}
			_, err := fmt.Fprintln(d.stdout, versionLine())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
