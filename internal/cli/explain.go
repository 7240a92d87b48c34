package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/survey"
)

func newExplain(s *session) *cobra.Command {
	var (
		reach     reachFlags
		namespace string
		dns       []string
		out       format
	)
	cmd := &cobra.Command{
		Use:   "explain SERVICE",
		Short: "Tell the story of one service from end to end, and what is wrong with it",
		Long: "explain follows one service from the clusters that export it to those that use it: each exporter's view, what was merged and why,\n" +
			"conflicts and their cure, its address, endpoints by cluster and zone, what DNS answers, what each data plane has, and how long the last\n" +
			"change took at each hop. Where something is broken it says at which hop, and what to do. It changes nothing.\n\n" +
			"It sees most with --contexts of all clusters that matter. Exit code 1 means that the service is broken somewhere.",
		Example: "  seamark explain web -n shop\n" +
			"  seamark explain web -n shop --contexts east,west --dns east=10.96.0.53",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns, err := s.namespace(namespace)
			if err != nil {
				return err
			}
			servers, err := parseServers(dns)
			if err != nil {
				return err
			}
			sites, hub, err := s.survey(cmd.Context(), reach)
			if err != nil {
				return err
			}
			in := survey.ReadService(cmd.Context(), sites, hub, ns, args[0], servers)
			report := explain.Explain(in)
			if err := out.print(s.Out, report, func(w io.Writer) { explain.Write(w, report, time.Now(), s.paint()) }); err != nil {
				return err
			}
			if report.State == explain.Broken {
				return fmt.Errorf("service %s/%s is broken: %s", ns, args[0], report.Findings[0].Title)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addNamespace(cmd, &namespace, "", "namespace of the service (default: that of the context)")
	reach.add(s, cmd)
	flags.StringSliceVar(&dns, "dns", nil, "ask this DNS server, as ADDRESS or CLUSTER=ADDRESS (default: a pod of seamark-dns, through the API server)")
	addOutput(cmd, &out)
	return cmd
}

// parseServers reads ADDRESS and CLUSTER=ADDRESS; the cluster is empty where none is named.
func parseServers(texts []string) (map[string]string, error) {
	servers := map[string]string{}
	for _, text := range texts {
		cluster, address, named := strings.Cut(text, "=")
		if !named {
			cluster, address = "", text
		}
		if address == "" {
			return nil, usagef("--dns %s: give an address, as ADDRESS or CLUSTER=ADDRESS", text)
		}
		servers[cluster] = address
	}
	return servers, nil
}
