// Command seamark-agent makes its cluster a working member of a clusterset: it publishes exported services, imports those of
// the other members and keeps the membership alive.
package main

import (
	"errors"
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

	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/member"
	"github.com/seamark-dev/seamark/internal/version"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "seamark-agent:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		options             agent.Options
		kubeconfig, context string
		level               slog.Level
	)
	cmd := &cobra.Command{
		Use:   "seamark-agent",
		Short: "Publish this cluster's exported services and import those of the clusterset",
		Long: "seamark-agent runs in each member of a clusterset. It finds its broker and its credential in the Secret that\n" +
			"`seamark join` wrote, so it needs no more than access to its own cluster.",
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			if options.LeaseDuration <= options.RenewEvery {
				return errors.New("--lease-duration must be longer than --renew-every, or every late heartbeat looks like a dead cluster")
			}
			options.Local, options.Log = config, log
			return agent.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of this cluster (default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&context, "context", "", "context of the kubeconfig to use")
	flags.BoolVar(&options.LeaderElection, "leader-elect", false, "run several replicas with one at work")
	flags.BoolVar(&options.CreateNamespaces, "create-namespaces", false, "create missing namespaces for imported services rather than leaving those services out")
	flags.StringVar(&options.MetricsAddress, "metrics-bind-address", ":9441", "where metrics are served; 0 turns them off")
	flags.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":9442", "where /healthz and /readyz are served; 0 turns them off")
	flags.StringVar(&options.PprofAddress, "pprof-bind-address", "", "where profiles of this process can be taken, such as 127.0.0.1:9443 (default: nowhere)")
	flags.DurationVar(&options.RenewEvery, "renew-every", member.RenewEvery, "how often this member renews its lease on the broker")
	flags.DurationVar(&options.LeaseDuration, "lease-duration", member.LeaseDuration, "how long after its last renewal others take this member for alive")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // flags that libraries registered are not ours to offer
	flag.CommandLine = flag.NewFlagSet("", flag.ContinueOnError)
	return cmd
}
