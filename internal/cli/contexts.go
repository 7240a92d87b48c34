package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
)

// contextFlags choose the clusters to read, and how to reach their broker.
type contextFlags struct {
	contexts                       []string
	brokerContext, brokerNamespace string
}

func (f *contextFlags) add(s *session, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.contexts, "contexts", nil, "look into the clusters of these contexts (default: that of --context)")
	flags.StringVar(&f.brokerContext, "broker-context", "",
		"context of the broker's admin, to ask the broker with (default: the credential of a member)")
	flags.StringVar(&f.brokerNamespace, "broker-namespace", objects.DefaultNamespace,
		"namespace of the broker, if it is asked with a context of its own")
	for _, flag := range []string{"contexts", "broker-context"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, s.completeContexts); err != nil {
			panic(err) // the flag is defined above
		}
	}
}

// completeContexts completes the contexts of the kubeconfig; after a comma, those not yet named.
func (s *session) completeContexts(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	config, err := s.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	before := typed[:strings.LastIndex(typed, ",")+1]
	named := strings.Split(before, ",")
	var out []string
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if !slices.Contains(named, name) {
			out = append(out, before+name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// survey opens the clusters that the flags name, and their broker. A cluster or broker that cannot
// be reached has a Problem and is no error: the rest is still of use. It fails only if a context
// cannot be used at all.
func (s *session) survey(ctx context.Context, f contextFlags) ([]*survey.Cluster, *survey.Broker, error) {
	clusters, err := s.openClusters(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	if f.brokerContext == "" {
		return clusters, survey.FindBroker(ctx, clusters, f.brokerNamespace), nil
	}
	c, err := s.connectContext(f.brokerContext)
	if err != nil {
		return nil, nil, err
	}
	return clusters, survey.OpenBroker(ctx, c, f.brokerNamespace, "context "+f.brokerContext), nil
}

// openClusters opens the clusters that the flags name.
func (s *session) openClusters(ctx context.Context, f contextFlags) ([]*survey.Cluster, error) {
	var clusters []*survey.Cluster
	if len(f.contexts) == 0 {
		c, err := s.connect()
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, &survey.Cluster{Context: *s.flags.Context, Connection: c})
	}
	for _, name := range f.contexts {
		c, err := s.connectContext(name)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, &survey.Cluster{Context: name, Connection: c})
	}
	survey.Identify(ctx, clusters)
	return clusters, nil
}
