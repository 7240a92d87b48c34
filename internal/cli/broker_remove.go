package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newBrokerRemove(s *session) *cobra.Command {
	var (
		namespace string
		force     bool
		out       format
	)
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove the broker of a clusterset",
		Long: "remove undoes deploy: it deletes the clusterset's objects, roles and share of the API server, the namespace if\n" +
			"deploy created it and nothing else is in it, and, with the last broker of the cluster, the admission policies\n" +
			"and Seamark's own CRDs. It fails while there are members.",
		Example: "  seamark broker remove --context broker",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			connection, err := s.connect()
			if err != nil {
				return err
			}
			result, err := brokeradmin.RemoveBroker(cmd.Context(), connection.Client, namespace, force)
			if err != nil {
				return err
			}
			if result.FairnessKept != "" {
				fmt.Fprintf(s.ErrOut, "warning: API priority and fairness objects of the broker may be left (%s): have an admin of the cluster "+
					"run the same command\n", result.FairnessKept)
			}
			return out.print(s.Out, result, func(w io.Writer) { printDismantled(w, result) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addNamespace(cmd, &namespace, objects.DefaultNamespace, "namespace of the broker")
	flags.BoolVar(&force, "force", false, "remove the members too: their services disappear from all clusters")
	addOutput(cmd, &out)
	return cmd
}

func printDismantled(w io.Writer, r brokeradmin.RemoveBrokerResult) {
	if !r.Found && len(r.Steps) == 0 {
		fmt.Fprintf(w, "There is no broker in namespace %s.\n", r.Namespace)
		return
	}
	fmt.Fprintf(w, "The broker in namespace %s is removed.\n", r.Namespace)
	members, crds := "none", "kept for the other brokers of this cluster"
	if len(r.Members) > 0 {
		members = strings.Join(r.Members, ", ")
	}
	if r.Last {
		crds = "removed, except the one of ServiceImport, which other software may use"
	}
	details(w, field{"members removed", members}, field{"policies and CRDs", crds}, field{"changes", changes(r.Steps)})
}
