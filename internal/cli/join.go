package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/migrate"
	"github.com/seamark-dev/seamark/internal/objects"
)

// joined is what join prints.
type joined struct {
	brokeradmin.JoinResult
	// Release is the installed chart, DNS what was changed in the cluster's DNS; nil with --no-install
	// and --no-dns.
	Release *chart.Release `json:"release,omitempty"`
	DNS     *dnsHook       `json:"dns,omitempty"`
	// AgentCommand runs the agent for this cluster if it was not installed.
	AgentCommand string `json:"agentCommand,omitempty"`
}

// joinFlags are the flags of join.
type joinFlags struct {
	brokeradmin.JoinOptions
	dataPlane string
	enable    bool

	brokerContext, brokerNamespace, brokerServer string

	blocks  []string
	install installFlags
	out     format
}

func newJoin(s *session) *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join (FILE | --broker-context CONTEXT)",
		Short: "Make this cluster a member of a clusterset",
		Long: "join makes the cluster of --context a member of a clusterset, with the invitation that the broker's admin wrote\n" +
			"for it, or, with access to the broker in the same kubeconfig, in one step. It installs the Helm chart of this\n" +
			"version as release seamark, and makes the cluster's DNS forward the clusterset's names to seamark-dns. Joining\n" +
			"again stores the new credential of a renewed invitation and upgrades the release; settings without a flag stay\n" +
			"as they were.",
		Example: "  seamark join east.invitation.yaml --context east\n" +
			"  seamark join --broker-context broker --context east --clusterid east",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			blocks, err := parseRanges(f.blocks)
			if err != nil {
				return err
			}
			f.DataPlane = v1alpha1.DataPlane(f.dataPlane)
			if err := f.install.check(cmd, f.DataPlane); err != nil {
				return err
			}
			f.UseClusterSetIP = optional(cmd, "enable-clusterset-ip", f.enable)
			local, err := s.connect()
			if err != nil {
				return err
			}
			if err := migrate.MayJoin(cmd.Context(), local.Client); err != nil {
				return err
			}
			var membership objects.Membership
			if len(args) == 1 {
				membership, err = s.readInvitation(args[0])
			} else {
				membership, err = f.invite(cmd.Context(), s, local, blocks)
			}
			if err != nil {
				return err
			}
			result, err := brokeradmin.Join(cmd.Context(), local.Client, membership, f.JoinOptions)
			if err != nil {
				return err
			}
			summary := joined{JoinResult: result}
			if f.install.noInstall {
				summary.AgentCommand = s.agentCommand()
			} else {
				release, dns, err := f.install.install(cmd.Context(), cmd, s, local, membership, result)
				if err != nil {
					return fmt.Errorf("this cluster is a member of clusterset %s, but its workloads or DNS are incomplete (run join again): %w",
						result.ClusterSet, err)
				}
				summary.Release, summary.DNS = &release, dns
			}
			return f.out.print(s.Out, summary, func(w io.Writer) { printJoined(w, summary) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.ClusterID, "clusterid", "",
		"id of this cluster (default: the one it has, or the invitation's, or the uid of its kube-system namespace)")
	flags.StringVar(&f.dataPlane, "dataplane", "",
		fmt.Sprintf("how imported services are reached here: %s (default %s)", objects.DataPlaneNames(), objects.DataPlaneOf("").Name))
	flags.BoolVar(&f.enable, "enable-clusterset-ip", true,
		"give this cluster's exports a clusterset IP unless they say otherwise (default: the setting of the clusterset)")
	flags.StringVar(&f.brokerContext, "broker-context", "", "context of the broker's admin: invite and join in one step")
	flags.StringVar(&f.brokerNamespace, "broker-namespace", objects.DefaultNamespace, "with --broker-context: namespace of the broker")
	flags.StringVar(&f.brokerServer, "broker-server", "",
		"with --broker-context: address at which this cluster reaches the broker (default: that of the context)")
	flags.StringSliceVar(&f.blocks, "clusterset-ip-cidr", nil,
		"with --broker-context: address block for this cluster's clusterset IPs, one per family (default: the next free ones)")
	f.install.add(cmd)
	addOutput(cmd, &f.out)
	return cmd
}

func (f *joinFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && f.brokerContext != "":
		return usagef("give an invitation file or --broker-context, not both")
	case len(args) == 0 && f.brokerContext == "":
		return usagef("give the invitation file that seamark broker invite wrote for this cluster, " +
			"or --broker-context to invite and join in one step")
	}
	if len(args) == 1 {
		for _, flag := range []string{"clusterset-ip-cidr", "broker-namespace", "broker-server"} {
			if cmd.Flags().Changed(flag) {
				return usagef("--%s goes with --broker-context: an invitation determines that already", flag)
			}
		}
	}
	if _, err := objects.ParseDataPlane(f.dataPlane); err != nil {
		return usageError{err}
	}
	return nil
}

// readInvitation reads an invitation from a file, or from standard input.
func (s *session) readInvitation(path string) (objects.Membership, error) {
	var text []byte
	var err error
	if path == standardOutput {
		text, err = io.ReadAll(s.In)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return objects.Membership{}, fmt.Errorf("read the invitation: %w", err)
	}
	membership, err := brokeradmin.DecodeInvitation(text)
	if err != nil {
		return membership, fmt.Errorf("%s: %w", path, err)
	}
	return membership, nil
}

// invite creates an invitation, after it has made sure that this cluster could use it.
func (f *joinFlags) invite(ctx context.Context, s *session, local survey.Connection, blocks []netip.Prefix) (objects.Membership, error) {
	none := objects.Membership{}
	broker, err := s.connectContext(f.brokerContext)
	if err != nil {
		return none, err
	}
	here, err := brokeradmin.ReadLocal(ctx, local.Client)
	if err != nil {
		return none, err
	}
	id, err := brokeradmin.ChooseID(f.ClusterID, here.ClusterID, "", here.KubeSystemUID)
	if err != nil {
		return none, err
	}
	clusterSet, err := brokeradmin.ClusterSetName(ctx, broker.Client, f.brokerNamespace)
	if err != nil {
		return none, fmt.Errorf("the broker of context %s: %w", f.brokerContext, err)
	}
	options := brokeradmin.InviteOptions{Namespace: f.brokerNamespace, Blocks: blocks, For: here.KubeSystemUID}
	if options.Server, options.CAData, err = serverOf(broker, f.brokerServer); err != nil {
		return none, err
	}
	planned := objects.Membership{ClusterID: id, ClusterSet: clusterSet, Server: options.Server, CAData: options.CAData}
	if err := here.MayJoin(planned); err != nil {
		return none, err
	}
	result, err := brokeradmin.Invite(ctx, broker.Client, id, options)
	if errors.Is(err, brokeradmin.ErrInUse) && here.Membership != nil && here.Membership.ClusterID == id {
		options.Renew, options.Blocks = true, nil
		result, err = brokeradmin.Invite(ctx, broker.Client, id, options)
	}
	if err != nil {
		return none, err
	}
	s.warnLoopback(options.Server)
	return result.Membership, nil
}

// agentCommand returns the command that runs the agent for the cluster of this session.
func (s *session) agentCommand() string {
	command := []string{"seamark-agent"}
	for _, flag := range []struct {
		name  string
		value *string
	}{{"--kubeconfig", s.flags.KubeConfig}, {"--context", s.flags.Context}} {
		if flag.value != nil && *flag.value != "" {
			command = append(command, flag.name, *flag.value)
		}
	}
	return strings.Join(command, " ")
}

func printJoined(w io.Writer, r joined) {
	fmt.Fprintf(w, "This cluster is a member of clusterset %s as %s.\n", r.ClusterSet, r.ClusterID)
	lines := []field{{"broker", r.Broker}, {"data plane", string(r.DataPlane)}, {"changes", changes(r.Steps)}}
	if r.Release != nil {
		lines = append(lines, field{"release", describeRelease(*r.Release)})
	}
	if r.DNS != nil {
		lines = append(lines, field{"cluster DNS", r.DNS.summary()})
	}
	details(w, lines...)
	if r.AgentCommand != "" {
		fmt.Fprintf(w, "Next: run the agent, which exports and imports services: %s\n", r.AgentCommand)
		return
	}
	if r.DNS != nil && r.DNS.Advice != "" {
		fmt.Fprint(w, r.DNS.Advice)
	}
	fmt.Fprintln(w, "Next: seamark export service NAME, in any cluster of the clusterset.")
}

func describeRelease(r chart.Release) string {
	return fmt.Sprintf("%s in namespace %s %s (revision %d, version %s)", r.Name, r.Namespace, r.Action, r.Revision, r.Version)
}
