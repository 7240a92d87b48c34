package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
)

// invited is what invite prints: everything but the credential.
type invited struct {
	ClusterID  string          `json:"clusterID"`
	ClusterSet string          `json:"clusterSet"`
	Renewed    bool            `json:"renewed"`
	Revoked    bool            `json:"revoked"`
	Blocks     []v1alpha1.CIDR `json:"clusterSetIPBlocks"`
	Namespaces []string        `json:"allowedNamespaces"`
	Server     string          `json:"server"`
	File       string          `json:"file"`
	Expires    time.Time       `json:"expires"`
	secret     bool            // the file is the manifest of a Secret
}

func newInvite(s *session) *cobra.Command {
	var (
		options brokeradmin.InviteOptions
		target  invitationFile
		blocks  []string
		allow   []string
		within  []string
		server  string
	)
	cmd := &cobra.Command{
		Use:   "invite ID",
		Short: "Register a cluster and write the file it joins with",
		Long: "invite registers a cluster with the broker, under an id that no other cluster has and with address blocks of its\n" +
			"own, and writes a file with that cluster's own credential. Keep the file confidential; `seamark join FILE` uses\n" +
			"it. With -o yaml the invitation is the manifest of a Secret, on standard output unless --file names a file: seal\n" +
			"it as you seal other Secrets, and apply it to a cluster with the chart.",
		Example: "  seamark broker invite east --context broker\n" +
			"  seamark broker invite west --context broker --allow-namespaces shop,billing\n" +
			"  seamark broker invite east --context broker --renew   # a new credential for a member\n" +
			"  seamark broker invite east --context broker -o yaml | kubectl --context east apply -f -",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if err := target.prepare(id); err != nil {
				return err
			}
			if cmd.Flags().Changed("allow-namespaces") {
				options.AllowedNamespaces = append([]string{}, allow...)
			}
			var err error
			if options.Blocks, err = parseRanges(blocks); err != nil {
				return err
			}
			if options.EndpointRanges, err = parseRanges(within); err != nil {
				return err
			}
			if cmd.Flags().Changed("endpoint-ranges") && options.EndpointRanges == nil {
				options.EndpointRanges = []netip.Prefix{} // as before: no fixed ranges
			}
			connection, err := s.connect()
			if err != nil {
				return err
			}
			if options.Server, options.CAData, err = serverOf(connection, server); err != nil {
				return err
			}
			result, err := brokeradmin.Invite(cmd.Context(), connection.Client, id, options)
			if err != nil {
				return err
			}
			s.warnLoopback(options.Server)
			return target.write(s, result)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addNamespace(cmd, &options.Namespace, objects.DefaultNamespace, "namespace of the broker")
	flags.StringSliceVar(&blocks, "clusterset-ip-cidr", nil,
		"address block for this cluster's clusterset IPs, one per family (default: the next free ones)")
	flags.StringSliceVar(&allow, "allow-namespaces", nil,
		"the only namespaces whose services this cluster may export and import (default: all but kube-* and seamark-*)")
	flags.StringSliceVar(&within, "endpoint-ranges", nil,
		"the only ranges in which this cluster's endpoints may lie; other clusters may not publish addresses in them (default: not fixed)")
	flags.StringVar(&target.path, "file", "", `file to write, "-" for standard output (default "ID.invitation.yaml")`)
	flags.BoolVar(&target.force, "force", false, "replace an existing file")
	flags.BoolVar(&options.Renew, "renew", false, "issue a new credential for a cluster that is registered already")
	flags.BoolVar(&options.Revoke, "revoke", false, "with --renew: revoke all earlier credentials of the cluster")
	flags.DurationVar(&options.TokenLifetime, "token-lifetime", brokeradmin.DefaultTokenLifetime,
		"how long the credential is valid unless the agent renews it")
	flags.StringVar(&server, "server", "", "address at which the cluster reaches the broker (default: that of this context)")
	flags.VarP(&target.format, "output", "o", "json: print the result as json; yaml: write the invitation as the manifest of a Secret")
	return cmd
}

// invitationFile is the file that an invitation is written to.
type invitationFile struct {
	path   string
	force  bool
	format format
}

const standardOutput = "-"

// prepare fails before the cluster is registered if the file could not be written afterwards.
func (f *invitationFile) prepare(id string) error {
	if f.path == "" && f.isSecret() {
		f.path = standardOutput
	}
	if f.path == "" {
		f.path = id + ".invitation.yaml"
	}
	if f.path == standardOutput || f.force {
		return nil
	}
	if _, err := os.Lstat(f.path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists: use --force to replace it, or --file to write another", f.path)
	}
	return nil
}

// isSecret reports whether the invitation is written as the manifest of a Secret.
func (f *invitationFile) isSecret() bool { return f.format == asYAML }

func (f *invitationFile) write(s *session, result brokeradmin.InviteResult) error {
	encode := brokeradmin.EncodeInvitation
	if f.isSecret() {
		encode = brokeradmin.EncodeSecret
	}
	text, err := encode(result.Membership)
	if err != nil {
		return err
	}
	summary := invited{
		ClusterID: result.Membership.ClusterID, ClusterSet: result.Membership.ClusterSet, Renewed: result.Renewed, Revoked: result.Revoked,
		Blocks: append([]v1alpha1.CIDR{}, result.Blocks...), Namespaces: append([]string{}, result.Namespaces...),
		Server: result.Membership.Server, File: f.path, Expires: result.Expires, secret: f.isSecret(),
	}
	if f.path == standardOutput {
		printInvited(s.ErrOut, summary)
		if f.format == asJSON {
			if text, err = yaml.YAMLToJSON(text); err != nil {
				return err
			}
			text = append(text, '\n')
		}
		_, err = s.Out.Write(text)
		return err
	}
	if err := brokeradmin.WriteInvitation(f.path, text, f.force); err != nil {
		return fmt.Errorf("cluster %s is registered, but its invitation is not written (run seamark broker invite %s --renew): %w",
			summary.ClusterID, summary.ClusterID, err)
	}
	if f.isSecret() {
		printInvited(s.Out, summary)
		return nil
	}
	return f.format.print(s.Out, summary, func(w io.Writer) { printInvited(w, summary) })
}

func printInvited(w io.Writer, r invited) {
	if r.Renewed {
		fmt.Fprintf(w, "Cluster %s of clusterset %s has a new credential.\n", r.ClusterID, r.ClusterSet)
	} else {
		fmt.Fprintf(w, "Cluster %s is invited to clusterset %s.\n", r.ClusterID, r.ClusterSet)
	}
	file := r.File
	if file == standardOutput {
		file = "standard output"
	}
	details(w, field{"address blocks", joinCIDRs(r.Blocks, "none")},
		field{"namespaces", joinNamespaces(r.Namespaces)}, field{"broker", r.Server},
		field{"invitation", fmt.Sprintf("%s (valid until %s)", file, r.Expires.UTC().Format(time.RFC3339))})
	if r.File == standardOutput {
		r.File = "FILE"
	}
	switch {
	case r.Revoked:
		fmt.Fprintln(w, "All earlier credentials of the cluster are revoked: its agent is locked out until the cluster joins with this one.")
	case r.Renewed:
		fmt.Fprintf(w, "Earlier credentials stay valid, and can be renewed by their holders; to end them: "+
			"seamark broker invite %s --renew --revoke\n", r.ClusterID)
	}
	next := "seamark join " + r.File
	if r.secret {
		next = "kubectl apply -f " + r.File
	}
	fmt.Fprintf(w, "It holds only the credential of %s: keep it confidential.\nNext, in that cluster: %s\n", r.ClusterID, next)
}
