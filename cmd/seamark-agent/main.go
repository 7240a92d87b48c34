// Command seamark-agent makes its cluster a working member of a clusterset: it publishes exported
// services, imports those of the other members and renews the membership.
package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
)

func main() { daemon.Main(command()) }

func command() *cobra.Command {
	var (
		options   agent.Options
		dataPlane string
		use       bool
	)
	cmd := &cobra.Command{
		Use:   "seamark-agent",
		Short: "Publish this cluster's exported services and import those of the clusterset",
		Long: "seamark-agent runs in each member of a clusterset. It reads the broker's address and its credential from the\n" +
			"invitation that was applied or that `seamark join` stored, so it only needs access to its own cluster. Without\n" +
			"one it waits.",
		Args:    cobra.NoArgs,
		Version: version.String(),
	}
	flags := cmd.Flags()
	common := daemon.AddFlags(flags, &options.Options)
	flags.BoolVar(&options.LeaderElection, "leader-elect", false, "run several replicas of which one is active")
	flags.BoolVar(&options.CreateNamespaces, "create-namespaces", false,
		"create missing namespaces for imported services instead of leaving those services out")
	flags.BoolVar(&options.FailoverProxy, "failover-proxy", false,
		"seamark-proxy runs on the nodes with --failover-only: let it act first when a cluster with many services becomes unreachable")
	flags.BoolVar(&options.BesideSubmariner, "beside-submariner", false,
		"restore the version of the MCS API that Submariner's operator removes from its CRDs at each start")
	flags.BoolVar(&options.ConfigureClusterDNS, "configure-cluster-dns", false,
		"make the cluster's DNS forward the clusterset's names to seamark-dns (ConfigMap kube-system/coredns)")
	flags.StringVar(&dataPlane, "dataplane", "",
		fmt.Sprintf("how imported services are reached here: %s (default: as the membership says)", objects.DataPlaneNames()))
	flags.BoolVar(&use, "enable-clusterset-ip", true,
		"give this cluster's exports a clusterset IP unless they say otherwise (default: as the membership says)")
	flags.DurationVar(&options.RenewEvery, "renew-every", objects.RenewEvery, "how often this member renews its lease on the broker")
	flags.DurationVar(&options.LeaseDuration, "lease-duration", objects.LeaseDuration,
		"how long after its last renewal other members take this one for alive")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options.LeaseDuration <= options.RenewEvery {
			return errors.New("--lease-duration must be longer than --renew-every: otherwise every renewal would come too late")
		}
		if _, err := objects.ParseDataPlane(dataPlane); err != nil {
			return err
		}
		options.DataPlane = v1alpha1.DataPlane(dataPlane)
		if cmd.Flags().Changed("enable-clusterset-ip") {
			options.UseClusterSetIP = &use
		}
		if err := common.Begin(); err != nil {
			return err
		}
		return agent.Run(cmd.Context(), options)
	}
	return cmd
}
