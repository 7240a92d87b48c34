// Command seamark-bridge lets clusters that run Submariner Lighthouse only and clusters that run
// Seamark only use each other's services, while a clusterset moves from one to the other.
package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/bridge"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/objects"
)

func main() { daemon.Main(command()) }

func command() *cobra.Command {
	var options bridge.Options
	cmd := &cobra.Command{
		Use:   "seamark-bridge",
		Short: "Exchange services between the brokers of Submariner Lighthouse and Seamark",
		Long: "seamark-bridge runs once for a clusterset, in any cluster that reaches both brokers. Its Secrets are in namespace\n" +
			objects.AgentNamespace + ": " + objects.BridgeLighthouseSecret +
			" has the credential for Lighthouse's broker, and for each cluster of\n" +
			"--lighthouse-clusters there is an invitation of Seamark's broker.",
		Args:    cobra.NoArgs,
		Version: version.String(),
	}
	flags := cmd.Flags()
	common := daemon.AddFlags(flags, &options.Options)
	flags.StringSliceVar(&options.LighthouseClusters, "lighthouse-clusters", nil, "ids of the clusters that run Lighthouse and not Seamark")
	flags.StringSliceVar(&options.SeamarkClusters, "seamark-clusters", nil, "ids of the clusters that run Seamark and not Lighthouse")
	flags.StringSliceVar(&options.TakeOver, "take-over", nil,
		"those of --seamark-clusters in which Lighthouse's agent has ended: what it left on its broker becomes the bridge's")
	flags.BoolVar(&options.LeaderElection, "leader-elect", false, "run several replicas of which one is active")
	flags.DurationVar(&options.RenewEvery, "renew-every", objects.RenewEvery, "how often the leases of Lighthouse's clusters are renewed")
	flags.DurationVar(&options.LeaseDuration, "lease-duration", time.Minute,
		"how long after the last renewal members of Seamark take Lighthouse's clusters for alive")
	flags.DurationVar(&options.WithdrawalHold, "withdrawal-hold", objects.WithdrawalHold,
		"how long services stay when most of a cluster's are gone from a broker and no deletion was seen")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options.LeaseDuration <= options.RenewEvery {
			return errors.New("--lease-duration must be longer than --renew-every: otherwise every renewal would come too late")
		}
		if err := options.Validate(); err != nil {
			return err
		}
		if err := common.Begin(); err != nil {
			return err
		}
		return bridge.Run(cmd.Context(), options)
	}
	return cmd
}
