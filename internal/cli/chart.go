package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/install/chart"
)

// packaged is what chart package prints.
type packaged struct {
	Path string `json:"path"`
}

func newChartPackage(s *session) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "package [DIR]",
		Short: "Write the Helm chart that join installs into a folder",
		Long: "package writes the chart of this version, with its CRDs and policies, as helm package does: for installation\n" +
			"with helm or a tool built on it. It needs no cluster.",
		Example: "  seamark chart package\n" +
			"  helm install seamark ./seamark-*.tgz --namespace seamark-system --create-namespace",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			path, err := chart.Package(dir)
			if err != nil {
				return err
			}
			return out.print(s.Out, packaged{path}, func(w io.Writer) { fmt.Fprintln(w, path) })
		},
	}
	addOutput(cmd, &out)
	return cmd
}
