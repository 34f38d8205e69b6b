package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-8e62c83d/mur/internal/version"
)

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
					Go      string `json:"go"`
				}{schema, version.String(), runtime.Version()})
			}
			_, err := fmt.Fprintf(d.stdout, "mur %s %s\n", version.String(), runtime.Version())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
