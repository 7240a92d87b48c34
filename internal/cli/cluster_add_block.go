package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newClusterAddBlock(s *session) *cobra.Command {
	var (
		namespace string
		blocks    []string
		out       format
	)
	cmd := &cobra.Command{
		Use:   "add-block ID",
		Short: "Give a cluster another block of clusterset IPs",
		Long: "add-block gives a cluster another address block, for when its own is used up. The cluster keeps what it has, and\n" +
			"its agent allocates from the new block when no address of the others is free. Run it with the broker's context.",
		Example: "  seamark cluster add-block east --context broker\n" +
			"  seamark cluster add-block east --context broker --clusterset-ip-cidr 243.200.0.0/16",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseRanges(blocks)
			if err != nil {
				return err
			}
			connection, err := s.connect()
			if err != nil {
				return err
			}
			result, err := brokeradmin.AddBlock(cmd.Context(), connection.Client, namespace, args[0], wanted)
			if err != nil {
				return err
			}
			return out.print(s.Out, result, func(w io.Writer) {
				fmt.Fprintf(w, "Cluster %s has another block of clusterset IPs.\n", result.ClusterID)
				details(w, field{"added", joinCIDRs(result.Added, "none")}, field{"all blocks", joinCIDRs(result.Blocks, "none")})
			})
		},
	}
	addNamespace(cmd, &namespace, objects.DefaultNamespace, "namespace of the broker")
	cmd.Flags().StringSliceVar(&blocks, "clusterset-ip-cidr", nil, "the block to add (default: the next free one of each address family)")
	addOutput(cmd, &out)
	return cmd
}
