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
		reach reachFlags
		path  string
		since time.Duration
	)
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Pack logs and objects for somebody who is to help, without secrets",
		Long: "gather writes a .tar.gz with the logs and objects of Seamark's own parts, the ServiceExports and ServiceImports with our EndpointSlices, what\n" +
			"the broker holds, versions, and what status and doctor say. Secrets are not read, but for the member's credential to ask the broker\n" +
			"with; tokens, certificates and keys are blacked out of everything. Names and addresses of your services stay: look before you send it.",
		Example: "  seamark gather --contexts east,west --file incident.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sites, hub, err := s.survey(cmd.Context(), reach)
			if err != nil {
				return err
			}
			now := time.Now()
			if path == "" {
				path = "seamark-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			result, err := gather.WriteArchive(cmd.Context(), path, now, sites, hub, since)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.Out, "Packed %s into %s (%d KiB), without secrets. Look at it before you send it: it names your services and addresses.\n",
				text.Plural(result.Files, "file"), result.File, (result.Bytes+1023)/1024)
			for _, p := range result.Problems {
				fmt.Fprintf(s.Out, "  not in it: %s\n", p)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	reach.add(s, cmd)
	flags.StringVarP(&path, "file", "o", "", "file to write (default: seamark-TIME.tar.gz here)")
	flags.DurationVar(&since, "since", 24*time.Hour, "how far back logs go")
	return cmd
}
