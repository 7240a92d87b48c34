package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
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
				sites, hub, err := s.reach(ctx, f.reach)
				if err != nil {
					return err
				}
				read := readStatus(ctx, sites, hub)
				state := assess(read)
				if state.Broker.Problem != "" {
					return errors.New(state.Broker.Problem)
				}
				value := struct {
					Clusters []memberStatus `json:"clusters"`
				}{state.Clusters}
				return f.out.print(w, value, func(w io.Writer) { tellClusters(w, state.Clusters, read.now, f.out.wide, s.paint()) })
			})
		},
	}
	f.add(s, cmd, false)
	return cmd
}
