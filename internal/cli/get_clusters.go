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
				sites, hub, err := s.survey(ctx, f.reach)
				if err != nil {
					return err
				}
				read := survey.ReadStatus(ctx, sites, hub)
				state := status.Assess(read)
				if state.Broker.Problem != "" {
					return errors.New(state.Broker.Problem)
				}
				value := struct {
					Clusters []status.Member `json:"clusters"`
				}{state.Clusters}
				return f.out.print(w, value, func(w io.Writer) { status.WriteMembers(w, state.Clusters, read.Now, f.out.wide, s.paint()) })
			})
		},
	}
	f.add(s, cmd, false)
	return cmd
}
