// Package daemon is what Seamark's processes in a member cluster have in common: how they are started and ended, how they reach their
// cluster's API server, where they can be watched, and how they log.
package daemon

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
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

// Options are what every daemon works with.
type Options struct {
	// Local reaches this cluster's API server.
	Local *rest.Config
	Log   logr.Logger
	// Identified is told the cluster's id as soon as it is known, and when it changes. It may be nil.
	OnClusterID func(clusterID string)
	// MetricsAddress and ProbeAddress are where metrics and health are served; "0" turns one off.
	MetricsAddress string
	ProbeAddress   string
	// PprofAddress is where profiles of the process can be taken; nowhere when empty.
	PprofAddress string
}

// Flags set the options.
type Flags struct {
	options             *Options
	kubeconfig, context string
	level               slog.Level
}

// Main runs a daemon's command until it ends or the process is told to, and exits.
func Main(cmd *cobra.Command) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
}

// AddFlags adds the flags that every daemon has to a command's own.
func AddFlags(flags *pflag.FlagSet, to *Options) *Flags {
	f := &Flags{options: to}
	flags.SortFlags = false
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of this cluster (default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use")
	flags.StringVar(&to.MetricsAddress, "metrics-bind-address", ":9441", "where metrics are served; 0 turns them off")
	flags.StringVar(&to.ProbeAddress, "health-probe-bind-address", ":9442", "where /healthz and /readyz are served; 0 turns them off")
	flags.StringVar(&to.PprofAddress, "pprof-bind-address", "", "where profiles of this process can be taken, such as 127.0.0.1:9443 (default: nowhere)")
	flags.TextVar(&f.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // flags that libraries registered are not ours to offer
	flag.CommandLine = flag.NewFlagSet("", flag.ContinueOnError)
	return f
}

// Begin sets the process up as the flags say, and the rest of the options.
func (f *Flags) Begin() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of the heap is caches that stay: a little CPU for less memory
	}
	lines := logs.New(os.Stderr, f.level)
	f.options.Log, f.options.OnClusterID = logr.FromSlogHandler(lines), lines.SetCluster
	ctrl.SetLogger(f.options.Log)
	klog.SetLogger(f.options.Log.WithName("client"))
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	var err error
	f.options.Local, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return fmt.Errorf("no access to the cluster: %w; in a pod this comes from the ServiceAccount, elsewhere give --kubeconfig", err)
	}
	return nil
}

// Known passes the cluster's id on to whoever wants it.
func (o *Options) ReportClusterID(clusterID string) {
	if o.OnClusterID != nil {
		o.OnClusterID(clusterID)
	}
}
