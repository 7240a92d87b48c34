package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
)

func newGetClusters(s *session) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:     "clusters",
		Aliases: []string{"cluster"},
		Short:   "List the clusters of the clusterset, alive or not",
		Example: "  seamark get clusters -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.watch.run(cmd.Context(), s, func(ctx context.Context, w io.Writer) error {
				clusters, broker, err := s.survey(ctx, f.contexts)
				if err != nil {
					return err
				}
				read := survey.ReadStatus(ctx, clusters, broker)
				report := status.Assess(read)
				if report.Broker.Problem != "" {
					return errors.New(report.Broker.Problem)
				}
				value := struct {
					Clusters []status.Member `json:"clusters"`
				}{report.Clusters}
				return f.out.print(w, value, func(w io.Writer) { status.WriteMembers(w, report.Clusters, read.Now, f.out.wide, s.paint()) })
			})
		},
	}
	f.add(s, cmd, false)
	return cmd
}
