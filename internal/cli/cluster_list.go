package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newClusterList(s *session) *cobra.Command {
	var (
		namespace string
		out       format
	)
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters of a clusterset that are registered with its broker",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			connection, err := s.connect()
			if err != nil {
				return err
			}
			members, err := brokeradmin.ListClusters(cmd.Context(), connection.Client, namespace)
			if err != nil {
				return err
			}
			value := struct {
				Clusters []brokeradmin.Member `json:"clusters"`
			}{members}
			return out.print(s.Out, value, func(w io.Writer) { printMembers(w, members, time.Now()) })
		},
	}
	addNamespace(cmd, &namespace, objects.DefaultNamespace, "namespace of the broker")
	addOutput(cmd, &out)
	return cmd
}

func printMembers(w io.Writer, members []brokeradmin.Member, now time.Time) {
	if len(members) == 0 {
		fmt.Fprintln(w, "No clusters yet. Next: seamark broker invite ID")
		return
	}
	rows := make([][]string, len(members))
	for i, m := range members {
		rows[i] = []string{
			m.ClusterID, joinCIDRs(m.Blocks, "-"), text.Namespaces(m.AllowedNamespaces), text.OrDash(m.AgentVersion),
			text.OrDash(string(m.DataPlane)), text.Ago(m.LastHeartbeat, now), fmt.Sprint(m.Exports),
		}
	}
	text.Table(w, []string{"ID", "BLOCKS", "NAMESPACES", "AGENT", "DATA PLANE", "HEARTBEAT", "EXPORTS"}, rows)
}
