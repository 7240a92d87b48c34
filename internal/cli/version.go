package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/daemon/version"
)

func newVersion(s *session) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			value := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
			}{version.String(), runtime.Version()}
			return out.print(s.Out, value, func(w io.Writer) { fmt.Fprintf(w, "seamark %s (%s)\n", value.Version, value.Go) })
		},
	}
	addOutput(cmd, &out)
	return cmd
}
