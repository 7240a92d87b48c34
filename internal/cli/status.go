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
		reach reachFlags
		watch watchFlags
		out   look
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clusterset at a glance: its clusters, and the services that need attention",
		Long: "status shows the clusters of a clusterset as their broker knows them (are they alive, what do they export) and the services that are in\n" +
			"conflict, stale or failing. It works in a member's context, with that member's own credential, in the broker's, or over several with\n" +
			"--contexts, which also shows what each imports. It changes nothing. Exit code 1 means that nothing could be learned.",
		Example: "  seamark status\n" +
			"  seamark status --contexts east,west --watch",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return watch.run(cmd.Context(), s, func(ctx context.Context, w io.Writer) error {
				sites, hub, err := s.survey(ctx, reach)
				if err != nil {
					return err
				}
				read := survey.ReadStatus(ctx, sites, hub)
				state := status.Assess(read)
				if err := out.print(w, state, func(w io.Writer) { status.Write(w, state, read.Now, out.wide, s.paint()) }); err != nil {
					return err
				}
				if state.Broker.Problem != "" && len(state.Clusters) == 0 {
					return fmt.Errorf("nothing could be learned: %s", state.Broker.Problem)
				}
				return nil
			})
		},
	}
	cmd.Flags().SortFlags = false
	reach.add(s, cmd)
	watch.add(cmd)
	addLook(cmd, &out)
	return cmd
}
