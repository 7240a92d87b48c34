// Command seamark-proxy load-balances the clusterset IPs of imported services to their endpoints,
// on the node it runs on, with nftables.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
)

func main() { daemon.Main(command()) }

func command() *cobra.Command {
	var (
		options proxy.Options
		cleanup bool
	)
	cmd := &cobra.Command{
		Use:   "seamark-proxy",
		Short: "Send the clients of clusterset IPs on this node to endpoints in all clusters",
		Long: "seamark-proxy runs on each node of a cluster whose data plane is nftables. It reads the imported services of its\n" +
			"own cluster and keeps one nftables table, inet seamark. When it ends, the table stays and connections go on.\n" +
			"With --failover-only it runs beside kube-proxy, where the data plane is service: it takes over the services of\n" +
			"which a cluster is unreachable, until kube-proxy has followed. When it ends, it removes the table.\n" +
			"It needs CAP_NET_ADMIN in the node's network namespace, and no nft program.",
		Args:    cobra.NoArgs,
		Version: version.String(),
	}
	flags := cmd.Flags()
	common := daemon.AddFlags(flags, &options.Options)
	flags.StringVar(&options.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the Node this runs on (default: $NODE_NAME)")
	flags.StringVar((*string)(&options.Masquerade), "masquerade", string(kernel.MasqueradeHost),
		"clients of clusterset IPs whose source becomes the node's address on the outgoing interface: none, host (processes and pods "+
			"in the node's network) or all")
	flags.BoolVar(&options.FailoverOnly, "failover-only", false,
		"leave services to the cluster's own data plane, but for those of which a cluster is unreachable")
	flags.BoolVar(&options.CleanupOnExit, "cleanup-on-exit", false,
		"remove the nftables table when this process ends; clusterset IPs stop working then")
	flags.BoolVar(&cleanup, "cleanup", false, "remove the nftables table and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cleanup {
			return proxy.Cleanup()
		}
		if err := options.Masquerade.Validate(); err != nil {
			return err
		}
		if err := common.Begin(); err != nil {
			return err
		}
		if options.NodeName == "" {
			options.Log.Info("no --node-name and no $NODE_NAME: no endpoint is near for locality and internalTrafficPolicy Local")
		} else {
			options.Log = options.Log.WithValues("node", options.NodeName)
		}
		return proxy.Run(cmd.Context(), options)
	}
	return cmd
}
