// Package daemon is what Seamark's long-running processes in a member cluster share: flags, logs,
// access to the cluster's API server, and the addresses of metrics and probes.
package daemon

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seamark-dev/seamark/internal/daemon/logs"
)

// Options are the settings that every daemon has.
type Options struct {
	// Local reaches this cluster's API server.
	Local *rest.Config
	Log   logr.Logger
	// OnClusterID is called with the cluster's id when it is read, and when it changes. It may be nil.
	OnClusterID func(clusterID string)
	// MetricsAddress and ProbeAddress are where metrics and health probes are served; "0" turns one
	// off.
	MetricsAddress string
	ProbeAddress   string
	// PprofAddress is where profiles of the process are served; nowhere if it is empty.
	PprofAddress string
}

// Flags are the command line flags behind Options.
type Flags struct {
	options             *Options
	kubeconfig, context string
	level               slog.Level
}

// Main runs a daemon's command until it ends or the process gets a signal, and exits.
func Main(cmd *cobra.Command) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
}

// AddFlags adds the flags of every daemon to a command's own. Begin turns them into options.
func AddFlags(flags *pflag.FlagSet, options *Options) *Flags {
	f := &Flags{options: options}
	flags.SortFlags = false
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig of this cluster (default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use")
	flags.StringVar(&options.MetricsAddress, "metrics-bind-address", ":9441", "address at which metrics are served; 0 turns them off")
	flags.StringVar(&options.ProbeAddress, "health-probe-bind-address", ":9442",
		"address at which /healthz and /readyz are served; 0 turns them off")
	flags.StringVar(&options.PprofAddress, "pprof-bind-address", "",
		"address at which profiles of this process are served, such as 127.0.0.1:9443 (default: none)")
	flags.TextVar(&f.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // hide flags that libraries registered
	flag.CommandLine = flag.NewFlagSet("", flag.ContinueOnError)
	return f
}

// Begin sets up the process's logs and garbage collection, and fills in the options that are not
// set by a flag alone. It fails if the kubeconfig cannot be used.
func (f *Flags) Begin() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of the heap is caches: spend a little CPU for less memory
	}
	if f.options.PprofAddress == "" {
		runtime.MemProfileRate = 0 // the profile that no client can read needs two megabytes
	}
	lines := logs.New(os.Stderr, f.level)
	f.options.Log, f.options.OnClusterID = logr.FromSlogHandler(lines), lines.SetCluster
	ctrl.SetLogger(f.options.Log)
	klog.SetLogger(f.options.Log.WithName("client"))
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	var err error
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	f.options.Local, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return fmt.Errorf("no access to the cluster: %w; outside a pod, set --kubeconfig", err)
	}
	return nil
}

// ReportClusterID calls OnClusterID, if it is set.
func (o *Options) ReportClusterID(clusterID string) {
	if o.OnClusterID != nil {
		o.OnClusterID(clusterID)
	}
}
