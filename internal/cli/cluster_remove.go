package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newClusterRemove(s *session) *cobra.Command {
	var (
		namespace string
		out       format
	)
	cmd := &cobra.Command{
		Use:     "remove ID",
		Aliases: []string{"rm"},
		Short:   "Remove a cluster from the clusterset, even if it no longer runs",
		Long: "remove revokes a cluster's credential at once, removes its endpoints from the clusterset and frees its id and\n" +
			"its address blocks. Services that other clusters export too continue with their clusterset IPs. In the cluster\n" +
			"itself run `seamark leave`.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			connection, err := s.connect()
			if err != nil {
				return err
			}
			removed, err := brokeradmin.RemoveMember(cmd.Context(), connection.Client, namespace, args[0])
			if err != nil {
				return err
			}
			var known []brokeradmin.Member
			if !removed.Found {
				if known, err = brokeradmin.ListClusters(cmd.Context(), connection.Client, namespace); err != nil {
					return err
				}
			}
			return out.print(s.Out, removed, func(w io.Writer) { printRemoved(w, removed, known) })
		},
	}
	addNamespace(cmd, &namespace, objects.DefaultNamespace, "namespace of the broker")
	addOutput(cmd, &out)
	return cmd
}

func printRemoved(w io.Writer, r brokeradmin.RemoveMemberResult, known []brokeradmin.Member) {
	if !r.Found {
		ids := make([]string, len(known))
		for i, m := range known {
			ids[i] = m.ClusterID
		}
		if len(ids) == 0 {
			ids = []string{"none"}
		}
		fmt.Fprintf(w, "There is no cluster %s to remove. Clusters: %s\n", r.ClusterID, strings.Join(ids, ", "))
		return
	}
	fmt.Fprintf(w, "Cluster %s is removed and its credential revoked.\n", r.ClusterID)
	details(w, field{"withdrawn", fmt.Sprintf("%s, %s", text.Plural(r.Records, "export"), text.Plural(r.Slices, "slice"))},
		field{"services that continue", fmt.Sprint(r.ServicesLeft)}, field{"services that ended", fmt.Sprint(r.ServicesEnded)})
}
