package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/survey"
)

func newExplain(s *session) *cobra.Command {
	var (
		contexts  contextFlags
		namespace string
		dns       []string
		out       format
	)
	cmd := &cobra.Command{
		Use:   "explain SERVICE",
		Short: "Follow one service from end to end, and find what is wrong with it",
		Long: "explain follows one service from the clusters that export it to those that import it: each export, what was\n" +
			"merged and why, conflicts and how to end them, its clusterset IP, endpoints by cluster and zone, what DNS\n" +
			"answers, what each data plane has programmed, and how long the last change took at each hop. Where something is\n" +
			"broken it names the hop and says what to do. It changes nothing.\n\n" +
			"Name all clusters that export or import the service with --contexts: it sees only those. Exit code 1 means that\n" +
			"the service is broken.",
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
			clusters, broker, err := s.survey(cmd.Context(), contexts)
			if err != nil {
				return err
			}
			in := survey.ReadService(cmd.Context(), clusters, broker, types.NamespacedName{Namespace: ns, Name: args[0]}, servers)
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
	contexts.add(s, cmd)
	addServers(cmd, &dns)
	addOutput(cmd, &out)
	return cmd
}

// addServers adds --dns.
func addServers(cmd *cobra.Command, target *[]string) {
	cmd.Flags().StringSliceVar(target, "dns", nil,
		"ask this DNS server, as ADDRESS or CLUSTER=ADDRESS (default: a pod of seamark-dns, through the API server)")
}

// parseServers parses the values of --dns, each ADDRESS or CLUSTER=ADDRESS.
func parseServers(texts []string) (survey.Servers, error) {
	servers := survey.Servers{}
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
