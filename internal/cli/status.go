package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
)

func newStatus(s *session) *cobra.Command {
	var (
		contexts contextFlags
		watch    watchFlags
		out      wideFormat
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clusterset at a glance: its clusters, and the services that need attention",
		Long: "status shows the clusters of a clusterset by what the broker has of them (whether they are alive, how much they\n" +
			"export) and the services that are in conflict, stale or failing. It works with the context of a member, whose\n" +
			"own credential is used for the broker, with the context of the broker, and with several --contexts, which also\n" +
			"show what each cluster imports. It changes nothing. Exit code 1 means that neither the broker nor a cluster\n" +
			"could be read.",
		Example: "  seamark status\n" +
			"  seamark status --contexts east,west --watch",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return watch.run(cmd.Context(), s, func(ctx context.Context, w io.Writer) error {
				clusters, broker, err := s.survey(ctx, contexts)
				if err != nil {
					return err
				}
				read := survey.ReadStatus(ctx, clusters, broker)
				report := status.Assess(read)
				if err := out.print(w, report, func(w io.Writer) { status.Write(w, report, read.Now, out.wide, s.paint()) }); err != nil {
					return err
				}
				if report.Broker.Problem != "" && len(report.Clusters) == 0 {
					return fmt.Errorf("nothing could be learned: %s", report.Broker.Problem)
				}
				return nil
			})
		},
	}
	cmd.Flags().SortFlags = false
	contexts.add(s, cmd)
	watch.add(cmd)
	addWideOutput(cmd, &out)
	return cmd
}
