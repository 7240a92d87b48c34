package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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
		Short:   "List the clusters of a clusterset, as its broker knows them",
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
			return out.print(s.Out, value, func(w io.Writer) { tellMembers(w, members, time.Now()) })
		},
	}
	addNamespace(cmd, &namespace, objects.DefaultNamespace, "namespace of the broker")
	addOutput(cmd, &out)
	return cmd
}

func tellMembers(w io.Writer, members []brokeradmin.Member, now time.Time) {
	if len(members) == 0 {
		fmt.Fprintln(w, "No clusters yet. Next: seamark broker invite ID")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "ID\tBLOCKS\tNAMESPACES\tAGENT\tDATA PLANE\tHEARTBEAT\tEXPORTS")
	for _, m := range members {
		fmt.Fprintln(table, strings.Join([]string{
			m.ClusterID, joinCIDRs(m.Blocks, "-"), text.Namespaces(m.AllowedNamespaces), text.OrDash(m.AgentVersion), text.OrDash(string(m.DataPlane)),
			text.Ago(m.LastHeartbeat, now), fmt.Sprint(m.Exports),
		}, "\t"))
	}
	_ = table.Flush() // an error of w shows in the next write
}
