package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
)

// bridged is what bridge prints.
type bridged struct {
	Steps   []brokeradmin.Step `json:"steps"`
	Removed bool               `json:"removed"`
	Next    string             `json:"next"`
	Back    string             `json:"back,omitempty"`
}

// bridgeFlags are the flags of bridge.
type bridgeFlags struct {
	options                                      migrate.BridgeOptions
	brokerContext, brokerNamespace, brokerServer string
	remove                                       bool
	timeout                                      time.Duration
	out                                          format
}

func newMigrateBridge(s *session) *cobra.Command {
	var f bridgeFlags
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Let clusters with Lighthouse only and clusters with Seamark only use each other's services",
		Long: "bridge installs seamark-bridge in a cluster that runs Submariner and reaches both brokers. It makes each Lighthouse\n" +
			"cluster a member of Seamark's clusterset, and writes the services of the Seamark clusters on Lighthouse's broker.\n" +
			"A cluster that runs both is in neither list. Run it again with other lists when a cluster has moved; --remove\n" +
			"withdraws what the bridge wrote, and deletes it.",
		Example: "  seamark migrate lighthouse bridge --context east --lighthouse-clusters east,north --seamark-clusters west \\\n" +
			"    --broker-context broker --image registry.example/seamark:v1\n" +
			"  seamark migrate lighthouse bridge --context east --broker-context broker --remove",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.options.LighthouseClusters, "lighthouse-clusters", nil, "ids of the clusters that run Lighthouse and not Seamark")
	flags.StringSliceVar(&f.options.SeamarkClusters, "seamark-clusters", nil, "ids of the clusters that run Seamark and not Lighthouse")
	flags.StringSliceVar(&f.options.TakeOver, "take-over", nil,
		"those of --seamark-clusters in which Lighthouse's agent has ended: what it left on its broker becomes the bridge's")
	flags.StringVar(&f.brokerContext, "broker-context", "", "context of the admin of Seamark's broker")
	flags.StringVar(&f.brokerNamespace, "broker-namespace", objects.DefaultNamespace, "namespace of Seamark's broker")
	flags.StringVar(&f.brokerServer, "broker-server", "", "address at which the bridge reaches Seamark's broker (default: that of the context)")
	flags.StringVar(&f.options.Secret, "lighthouse-broker-secret", "",
		"Submariner's Secret with the credential for its broker, in its namespace (default: as its Submariner resource says)")
	flags.StringVar(&f.options.Image, "image", "", "image of Seamark's daemons, as REPOSITORY:TAG")
	flags.BoolVar(&f.remove, "remove", false, "withdraw what the bridge wrote on both brokers, and delete it")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "with --remove: how long to wait until the bridge's pods have ended")
	if err := cmd.RegisterFlagCompletionFunc("broker-context", s.completeContexts); err != nil {
		panic(err) // the flag is defined above
	}
	addOutput(cmd, &f.out)
	return cmd
}

// check returns an error that says which flag is missing.
func (f *bridgeFlags) check() error {
	if f.brokerContext == "" {
		return usagef("give --broker-context: Lighthouse's clusters become members of that broker's clusterset")
	}
	if f.remove {
		return nil
	}
	for _, list := range []struct {
		flag string
		ids  []string
	}{{"lighthouse-clusters", f.options.LighthouseClusters}, {"seamark-clusters", f.options.SeamarkClusters}} {
		if len(list.ids) == 0 {
			return usagef("give --%s: the bridge is between those and the others", list.flag)
		}
		for _, id := range list.ids {
			if err := brokeradmin.CheckClusterID(id); err != nil {
				return usageError{err}
			}
		}
	}
	for _, id := range f.options.LighthouseClusters {
		for _, other := range f.options.SeamarkClusters {
			if id == other {
				return usagef("cluster %s is in both lists: a cluster that runs both needs no bridge, name it in neither", id)
			}
		}
	}
	if f.options.Image == "" {
		return usagef("give --image: the bridge runs from the image of Seamark's daemons, as REPOSITORY:TAG")
	}
	return nil
}

func (f *bridgeFlags) run(cmd *cobra.Command, s *session) error {
	if err := f.check(); err != nil {
		return err
	}
	local, err := s.connect()
	if err != nil {
		return err
	}
	broker, err := s.connectContext(f.brokerContext)
	if err != nil {
		return err
	}
	f.options.Broker, f.options.Invite.Namespace = broker.Client, f.brokerNamespace
	result := bridged{Removed: f.remove}
	if f.remove {
		result.Steps, err = migrate.RemoveBridge(cmd.Context(), local.Client, f.options, f.timeout)
		result.Next = "nothing: Lighthouse's clusters and Seamark's no longer see each other, unless they run both"
	} else {
		if f.options.Invite.Server, f.options.Invite.CAData, err = serverOf(broker, f.brokerServer); err != nil {
			return err
		}
		s.warnLoopback(f.options.Invite.Server)
		result.Steps, err = migrate.InstallBridge(cmd.Context(), local.Client, f.options)
		result.Next = fmt.Sprintf("kubectl -n %s rollout status deployment/%s; then seamark status --context %s",
			objects.AgentNamespace, objects.BridgeName, f.brokerContext)
		result.Back = "seamark migrate lighthouse bridge --remove, in the same context"
	}
	if err != nil {
		return err
	}
	return f.out.print(s.Out, result, func(w io.Writer) { printBridged(w, result, f.options) })
}

func printBridged(w io.Writer, r bridged, o migrate.BridgeOptions) {
	if r.Removed {
		fmt.Fprintln(w, "The bridge is removed.")
	} else {
		fmt.Fprintf(w, "The bridge exchanges services between %s (Lighthouse) and %s (Seamark).\n",
			strings.Join(o.LighthouseClusters, ", "), strings.Join(o.SeamarkClusters, ", "))
	}
	changed := changes(r.Steps)
	if r.Removed && len(r.Steps) == 0 {
		changed = "none, there was no bridge"
	}
	lines := []field{{"changes", changed}, {"next", r.Next}}
	if r.Back != "" {
		lines = append(lines, field{"to go back", r.Back})
	}
	details(w, lines...)
}
