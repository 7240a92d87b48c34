package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

func newDeploy(s *session) *cobra.Command {
	var (
		options brokeradmin.DeployOptions
		enable  bool
		ranges  []string
		render  bool
		out     format
	)
	cmd := &cobra.Command{
		Use:   "deploy",
		Short: "Make a namespace of this cluster the broker of a clusterset",
		Long: "deploy makes a namespace the broker of a clusterset: it installs the CRDs, the admission policies, the role of\n" +
			"members and their share of the API server, and writes the settings of the clusterset. No workload runs there.\n" +
			"Running it again changes only what differs. With --render it prints the manifests of a new broker instead, for\n" +
			"kubectl apply --server-side or a GitOps tool.",
		Example: "  seamark broker deploy --context broker\n" +
			"  seamark broker deploy --render >broker.yaml\n" +
			"  seamark broker deploy --context broker --clusterset-ip-cidr-range 243.0.0.0/8",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.EnableClusterSetIP = optional(cmd, "enable-clusterset-ip", enable)
			var err error
			if options.Ranges, err = parseRanges(ranges); err != nil {
				return err
			}
			if render {
				return s.renderBroker(options)
			}
			connection, err := s.connect()
			if err != nil {
				return err
			}
			result, err := brokeradmin.Deploy(cmd.Context(), connection.Client, options)
			if err != nil {
				return err
			}
			if result.FairnessMissing != "" {
				fmt.Fprintf(s.ErrOut, "warning: the members have no share of the API server of their own (%s): a noisy member can delay the "+
					"others' heartbeats and this cluster's workloads. Have an admin of the cluster run the same command\n", result.FairnessMissing)
			}
			return out.print(s.Out, result, func(w io.Writer) { printDeployed(w, result) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addNamespace(cmd, &options.Namespace, objects.DefaultNamespace, "namespace of the broker: one namespace is one clusterset")
	flags.StringVar(&options.ClusterSet, "clusterset", "", fmt.Sprintf("name of the clusterset (default %q)", brokeradmin.DefaultClusterSet))
	flags.BoolVar(&enable, "enable-clusterset-ip", true, "give exported services a clusterset IP unless they say otherwise")
	flags.StringSliceVar(&ranges, "clusterset-ip-cidr-range", nil,
		"ranges of clusterset IPs; further ones can be added later, beside all that there are (default 243.0.0.0/8,fd00:243::/48)")
	flags.BoolVar(&render, "render", false, "print the manifests of a new broker, and contact no cluster")
	addOutput(cmd, &out)
	return cmd
}

func (s *session) renderBroker(options brokeradmin.DeployOptions) error {
	manifests, err := brokeradmin.Render(options)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(manifests)
	return err
}

func printDeployed(w io.Writer, r brokeradmin.DeployResult) {
	mode := "on unless an export says otherwise"
	if !r.EnableClusterSetIP {
		mode = "off unless an export asks for one"
	}
	fmt.Fprintf(w, "Namespace %s is the broker of clusterset %s.\n", r.Namespace, r.ClusterSet)
	details(w, field{"clusterset IPs", mode}, field{"ranges", joinCIDRs(r.Ranges, "none")}, field{"changes", changes(r.Steps)})
	fmt.Fprintln(w, "Next: seamark broker invite ID, for each cluster that is to join.")
}
