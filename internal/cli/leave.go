package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/broker"
)

// left is what is told of leaving.
type left struct {
	broker.Left
	// Removed is what was removed on the broker with --broker-context.
	Removed *broker.Removed `json:"removed,omitempty"`
	// AdminCommand is what the broker's admin should run, if anything.
	AdminCommand string `json:"adminCommand,omitempty"`
}

func newLeave(s *session) *cobra.Command {
	var (
		brokerContext, brokerNamespace string
		out                            format
	)
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take this cluster out of its clusterset",
		Long: "leave withdraws this cluster's exports from the broker, deletes what was imported, and forgets the credential. ServiceExports and\n" +
			"CustomResourceDefinitions stay. The registration on the broker is removed by its admin, or with --broker-context here.",
		Example: "  seamark leave --context east\n" +
			"  seamark leave --context east --broker-context hub",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := s.connect()
			if err != nil {
				return err
			}
			var hub connection
			if brokerContext != "" { // before anything is changed
				if hub, err = s.connectContext(brokerContext); err != nil {
					return err
				}
			}
			result, err := broker.Leave(cmd.Context(), local.client)
			if err != nil {
				return err
			}
			told := left{Left: result}
			if result.Member && brokerContext != "" {
				removed, err := broker.Remove(cmd.Context(), hub.client, brokerNamespace, result.ClusterID)
				if err != nil {
					return fmt.Errorf("this cluster left, but its registration is still on the broker: %w", err)
				}
				told.Removed = &removed
			} else if result.Member {
				told.AdminCommand = "seamark cluster remove " + result.ClusterID
			}
			return out.print(s.Out, told, func(w io.Writer) { tellLeft(w, told) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&brokerContext, "broker-context", "", "context of the broker's admin: remove the registration too")
	flags.StringVar(&brokerNamespace, "broker-namespace", broker.DefaultNamespace, "with --broker-context: namespace of the broker")
	addOutput(cmd, &out)
	return cmd
}

func tellLeft(w io.Writer, r left) {
	if !r.Member {
		fmt.Fprintln(w, "This cluster is not a member of a clusterset: there is nothing to leave.")
		return
	}
	fmt.Fprintf(w, "Cluster %s left clusterset %s.\n", r.ClusterID, r.ClusterSet)
	withdrawn := fmt.Sprintf("%s, %s", plural(r.Records, "export"), plural(r.Slices, "slice"))
	if !r.Withdrawn && r.Removed == nil {
		withdrawn = "NOT from the broker: " + r.Problem
	}
	details(w, field{"withdrawn", withdrawn},
		field{"deleted here", fmt.Sprintf("%s, %s", plural(r.Imports, "import"), plural(r.ImportedSlices, "slice"))},
		field{"kept here", fmt.Sprintf("%s (idle), the cluster's id, CustomResourceDefinitions", plural(r.Exports, "ServiceExport"))})
	switch {
	case r.Removed != nil:
		fmt.Fprintln(w, "Its registration is removed from the broker. Next: stop its seamark-agent, if it still runs.")
	case r.Withdrawn:
		fmt.Fprintf(w, "Next: stop its seamark-agent, if it still runs; then, for the broker's admin, to end its credential and free its id and\n"+
			"addresses: %s\n", r.AdminCommand)
	default:
		fmt.Fprintf(w, "Other clusters still see its services. Next: stop its seamark-agent, if it still runs; then, for the broker's admin:\n%s\n",
			r.AdminCommand)
	}
}
