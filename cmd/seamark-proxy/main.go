// Command seamark-proxy load-balances the clusterset IPs of imported services to their endpoints, on the node it runs on, with
// nftables.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/version"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "seamark-proxy:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		options             proxy.Options
		kubeconfig, context string
		cleanup             bool
		level               slog.Level
	)
	cmd := &cobra.Command{
		Use:   "seamark-proxy",
		Short: "Send the clients of clusterset IPs on this node to endpoints in all clusters",
		Long: "seamark-proxy runs on each node of a cluster whose data plane is nftables. It reads the imported services of its\n" +
			"own cluster and keeps one nftables table, inet seamark. When it ends, the table stays and traffic flows on.\n" +
			"It needs CAP_NET_ADMIN in the node's network namespace, and no nft program.",
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cleanup {
				return proxy.Cleanup()
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(50) // most of the heap is caches that stay: a little CPU for less memory
			}
			log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctrl.SetLogger(log)
			klog.SetLogger(log.WithName("client"))
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
			if err != nil {
				return fmt.Errorf("no access to the cluster: %w; in a pod this comes from the ServiceAccount, elsewhere give --kubeconfig", err)
			}
			if options.NodeName == "" {
				log.Info("no --node-name and no $NODE_NAME: locality and internalTrafficPolicy Local will find no endpoint near")
			}
			options.Local, options.Log = config, log
			return proxy.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of this cluster (default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&context, "context", "", "context of the kubeconfig to use")
	flags.StringVar(&options.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of the Node this runs on (default: $NODE_NAME)")
	flags.StringVar(&options.MetricsAddress, "metrics-bind-address", ":9441", "where metrics are served; 0 turns them off")
	flags.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":9442", "where /healthz and /readyz are served; 0 turns them off")
	flags.StringVar(&options.PprofAddress, "pprof-bind-address", "", "where profiles of this process can be taken, such as 127.0.0.1:9443 (default: nowhere)")
	flags.BoolVar(&options.CleanupOnExit, "cleanup-on-exit", false, "remove the nftables table when this ends; clusterset IPs stop working then")
	flags.BoolVar(&cleanup, "cleanup", false, "remove the nftables table and exit")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // flags that libraries registered are not ours to offer
	flag.CommandLine = flag.NewFlagSet("", flag.ContinueOnError)
	return cmd
}
