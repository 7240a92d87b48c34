package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/gather"
	"github.com/seamark-dev/seamark/internal/cli/text"
)

func newGather(s *session) *cobra.Command {
	var (
		contexts contextFlags
		path     string
		since    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Collect diagnostics for support, without secrets",
		Long: "gather writes a .tar.gz with the logs and objects of Seamark's own workloads, ServiceExports, ServiceImports and\n" +
			"Seamark's EndpointSlices, the objects on the broker, versions, and the output of status and doctor. The only\n" +
			"Secret it reads is the member's credential, to ask the broker; tokens, certificates and keys are removed from\n" +
			"everything. Names and addresses of your services stay: look at the archive before you send it.",
		Example: "  seamark gather --contexts east,west --file incident.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, broker, err := s.survey(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			now := time.Now()
			if path == "" {
				path = "seamark-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			result, err := gather.WriteArchive(cmd.Context(), path, now, clusters, broker, since)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.Out, "Packed %s into %s (%d KiB), without secrets. "+
				"Look at it before you send it: it has the names and addresses of your services.\n",
				text.Plural(result.Files, "file"), result.File, (result.Bytes+1023)/1024)
			for _, p := range result.Problems {
				fmt.Fprintf(s.Out, "  missing: %s\n", p)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	contexts.add(s, cmd)
	flags.StringVarP(&path, "file", "o", "", "file to write (default: seamark-TIME.tar.gz here)")
	flags.DurationVar(&since, "since", 24*time.Hour, "how far back logs go")
	return cmd
}
