package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
)

// left is what leave prints.
type left struct {
	brokeradmin.LeaveResult
	// Release is the chart that was uninstalled, DNS what was changed in the cluster's DNS.
	Release chart.Release `json:"release"`
	DNS     *dnsHook      `json:"dns,omitempty"`
	// Removed is what was removed from the broker with --broker-context.
	Removed *brokeradmin.RemoveMemberResult `json:"removed,omitempty"`
	// AdminCommand is what the broker's admin has to run.
	AdminCommand string `json:"adminCommand,omitempty"`
}

func newLeave(s *session) *cobra.Command {
	var (
		brokerContext, brokerNamespace string
		noWait                         bool
		timeout                        time.Duration
		out                            format
	)
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Remove this cluster from its clusterset",
		Long: "leave uninstalls the release, removes the clusterset's names from the cluster's DNS, withdraws this cluster's\n" +
			"exports from the broker, deletes what was imported, and deletes the credential. ServiceExports and CRDs stay.\n" +
			"The broker's admin removes the registration on the broker, or --broker-context does.",
		Example: "  seamark leave --context east\n" +
			"  seamark leave --context east --broker-context broker",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := s.connect()
			if err != nil {
				return err
			}
			if err := migrate.MayLeave(cmd.Context(), local.Client); err != nil {
				return err
			}
			var broker survey.Connection
			if brokerContext != "" { // before anything is changed
				if broker, err = s.connectContext(brokerContext); err != nil {
					return err
				}
			}
			if noWait {
				timeout = 0
			}
			result, err := takeDown(cmd.Context(), local, timeout)
			if err != nil {
				return err
			}
			if result.Member && brokerContext != "" {
				removed, err := brokeradmin.RemoveMember(cmd.Context(), broker.Client, brokerNamespace, result.ClusterID)
				if err != nil {
					return fmt.Errorf("this cluster left, but its registration is still on the broker: %w", err)
				}
				result.Removed = &removed
			} else if result.Member {
				result.AdminCommand = "seamark cluster remove " + result.ClusterID
			}
			return out.print(s.Out, result, func(w io.Writer) { printLeft(w, result) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&brokerContext, "broker-context", "", "context of the broker's admin: remove the registration too")
	flags.StringVar(&brokerNamespace, "broker-namespace", objects.DefaultNamespace, "with --broker-context: namespace of the broker")
	flags.BoolVar(&noWait, "no-wait", false, "do not wait until the workloads' pods are gone; the namespace then stays for a later leave")
	flags.DurationVar(&timeout, "timeout", leaveTimeout, "how long to wait until the workloads' pods are gone")
	addOutput(cmd, &out)
	return cmd
}

// takeDown undoes join in the order that disturbs clients least: first nothing new is imported,
// then the names are no longer resolved, which the agent would undo, then the imports are deleted,
// and with them the rules of the proxies, and at last the workloads and the namespace.
func takeDown(ctx context.Context, local survey.Connection, timeout time.Duration) (result left, err error) {
	if err := chart.StopAgent(ctx, local.Client, timeout); err != nil {
		return result, err
	}
	if result.DNS, err = unhookDNS(ctx, local.Client); err != nil {
		return result, err
	}
	if result.LeaveResult, err = brokeradmin.Leave(ctx, local.Client); err != nil {
		return result, err
	}
	if timeout > 0 {
		if err := chart.RetireProxy(ctx, local.Client, timeout); err != nil {
			return result, err
		}
	}
	if result.Release, err = chart.Uninstall(ctx, local.Config, local.Client, timeout); err != nil {
		return result, err
	}
	return result, brokeradmin.RemoveAgentNamespace(ctx, local.Client)
}

// leaveTimeout is more than the half minute that pods have to terminate.
const leaveTimeout = 2 * time.Minute

func printLeft(w io.Writer, r left) {
	if !r.Member {
		fmt.Fprintln(w, "This cluster is not a member of a clusterset: there is nothing to leave.")
		if r.Release.Action == chart.Uninstalled {
			fmt.Fprintf(w, "Release %s is uninstalled from namespace %s.\n", r.Release.Name, r.Release.Namespace)
		}
		return
	}
	fmt.Fprintf(w, "Cluster %s left clusterset %s.\n", r.ClusterID, r.ClusterSet)
	withdrawn := fmt.Sprintf("%s, %s", text.Plural(r.Records, "export"), text.Plural(r.Slices, "slice"))
	if !r.Withdrawn && r.Removed == nil {
		withdrawn = "NOT from the broker: " + r.Problem
	}
	lines := []field{
		{"withdrawn", withdrawn},
		{"deleted here", fmt.Sprintf("%s, %s", text.Plural(r.Imports, "import"), text.Plural(r.ImportedSlices, "slice"))},
		{"kept here", fmt.Sprintf("%s (idle), the cluster's id, CRDs", text.Plural(r.Exports, "ServiceExport"))},
	}
	stop := "stop its seamark-agent, if it still runs; then, "
	if r.Release.Action == chart.Uninstalled {
		stop = ""
		lines = append(lines, field{"release", fmt.Sprintf("%s in namespace %s uninstalled", r.Release.Name, r.Release.Namespace)})
	}
	if r.DNS != nil {
		lines = append(lines, field{"cluster DNS", r.DNS.summary()})
	}
	details(w, lines...)
	switch {
	case r.Removed != nil && stop == "":
		fmt.Fprintln(w, "Its registration is removed from the broker.")
	case r.Removed != nil:
		fmt.Fprintln(w, "Its registration is removed from the broker. Next: stop its seamark-agent, if it still runs.")
	case r.Withdrawn:
		fmt.Fprintf(w, "Next: %sfor the broker's admin, to revoke its credential and free its id and\n"+
			"addresses: %s\n", stop, r.AdminCommand)
	default:
		fmt.Fprintf(w, "Other clusters still see its services. Next: %sfor the broker's admin:\n%s\n", stop, r.AdminCommand)
	}
}
