//go:build linux

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox"
)

// sandboxFlags are the flags of all sandbox commands.
type sandboxFlags struct{ name string }

func newSandbox(s *session) *cobra.Command {
	f := &sandboxFlags{}
	cmd := group("sandbox", "Run real clusters on this machine, joined into a clusterset",
		newSandboxUp(s, f), newSandboxStatus(s, f), newSandboxLoad(s, f), newSandboxKubeconfig(s, f),
		newSandboxFault(s, f), newSandboxDown(s, f))
	cmd.Long = "sandbox runs real single-node Kubernetes clusters on this Linux machine, without Docker or virtual machines:\n" +
		"kubelet, containerd and pods included, each cluster in a network namespace of its own, with a flat network\n" +
		"between them. It needs root and a checkout of the repository, from which it builds the programs."
	cmd.PersistentFlags().StringVar(&f.name, "name", sandbox.DefaultName, "name of the sandbox; there can be several")
	return cmd
}

func newSandboxUp(s *session, f *sandboxFlags) *cobra.Command {
	var (
		options           sandbox.Options
		dataPlane, family string
		out               format
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Create clusters, with a broker on the first and Seamark in all",
		Long: "up creates the clusters of a sandbox, builds and installs Seamark there, and writes one kubeconfig for all. Run\n" +
			"again, it restores what is missing; on a sandbox without problems that takes seconds. Progress goes to standard\n" +
			"error.",
		Example: "  sudo seamark sandbox up\n" +
			"  sudo seamark sandbox up --clusters 2 --dataplane nftables --ip-family dual",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Name, options.DataPlane, options.Family = f.name, v1alpha1.DataPlane(dataPlane), sandbox.Family(family)
			options.Progress, options.Seamark = s.ErrOut, runSeamark
			created, err := sandbox.Up(cmd.Context(), options)
			if err != nil {
				return err
			}
			status := created.Status(cmd.Context())
			return out.print(s.Out, status, func(w io.Writer) { printUp(w, status) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&options.Clusters, "clusters", sandbox.DefaultClusters, "how many clusters, 1 to 8")
	flags.StringVar(&dataPlane, "dataplane", string(objects.DataPlaneOf("").Name),
		"how imported services are reached: "+objects.DataPlaneNames())
	flags.StringVar(&family, "ip-family", string(sandbox.IPv4), "addresses of nodes, pods and services: ipv4, ipv6 or dual")
	flags.BoolVar(&options.Bare, "bare", false, "only the clusters, without broker and Seamark")
	addOutput(cmd, &out)
	return cmd
}

// runSeamark runs a command line as Run does, and returns what it writes to standard error as an
// error.
func runSeamark(ctx context.Context, args ...string) error {
	var errOut bytes.Buffer
	if Run(ctx, args, strings.NewReader(""), io.Discard, &errOut) != exitOK {
		return fmt.Errorf("seamark %s:\n%s", strings.Join(args, " "), strings.TrimSpace(errOut.String()))
	}
	return nil
}

func printUp(w io.Writer, status sandbox.Status) {
	printSandbox(w, status)
	names := make([]string, len(status.Clusters))
	for i, c := range status.Clusters {
		names[i] = c.Name
	}
	fmt.Fprintf(w, "Next: %s\n      then use the contexts %s\n",
		useKubeconfig(status, os.Args[0], os.Getenv("SUDO_UID") != ""), strings.Join(names, ", "))
}

// useKubeconfig returns the command with which the user can use the clusters. The kubeconfig
// belongs to root; a user of sudo needs a copy of their own.
func useKubeconfig(status sandbox.Status, program string, sudo bool) string {
	if !sudo {
		return "export KUBECONFIG=" + status.Kubeconfig
	}
	name := ""
	if status.Name != sandbox.DefaultName {
		name = " --name " + status.Name
	}
	return "(umask 077; sudo " + program + " sandbox kubeconfig" + name + " >sandbox.kubeconfig); export KUBECONFIG=$PWD/sandbox.kubeconfig"
}

func newSandboxStatus(s *session, f *sandboxFlags) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clusters of a sandbox",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			status := opened.Status(cmd.Context())
			return out.print(s.Out, status, func(w io.Writer) { printSandbox(w, status) })
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func printSandbox(w io.Writer, status sandbox.Status) {
	fmt.Fprintf(w, "Sandbox %s: %s, data plane %s, %s\n",
		status.Name, text.Plural(len(status.Clusters), "cluster"), status.DataPlane, status.Family)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  CLUSTER\tREADY\tPODS\tVERSION\tAPI SERVER\tPOD RANGE\tZONE")
	for _, c := range status.Clusters {
		ready := "yes"
		if !c.Ready {
			ready = "NO"
		}
		fmt.Fprintf(table, "  %s\t%s\t%d/%d\t%s\t%s\t%s\t%s\n", c.Name, ready, c.RunningPods, c.Pods, c.Version, c.Server,
			strings.Join(c.PodCIDRs, ","), c.Zone)
	}
	_ = table.Flush() // an error of w shows in the next write
	for _, c := range status.Clusters {
		if c.Problem != "" {
			fmt.Fprintf(w, "  %s: %s\n", c.Name, c.Problem)
		}
	}
	for _, f := range status.Faults {
		if f.OfNetwork() { // otherwise it is the problem of a cluster
			fmt.Fprintf(w, "  %s\n", f)
		}
	}
	if len(status.Faults) > 0 {
		fmt.Fprintf(w, "  to end what was broken on purpose: %s\n", healCommand(status.Name, ""))
	}
	details(w, field{"kubeconfig", status.Kubeconfig}, field{"image", status.Image}, field{"test image", status.Workload})
}

func newSandboxKubeconfig(s *session, f *sandboxFlags) *cobra.Command {
	var pathOnly bool
	cmd := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the kubeconfig of all clusters",
		Example: "  sudo seamark sandbox kubeconfig > ~/.kube/sandbox",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			if pathOnly {
				_, err = fmt.Fprintln(s.Out, opened.Kubeconfig())
				return err
			}
			text, err := os.ReadFile(opened.Kubeconfig())
			if err != nil {
				return fmt.Errorf("the sandbox is not complete (run seamark sandbox up): %w", err)
			}
			_, err = s.Out.Write(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&pathOnly, "path", false, "print the path of the file instead")
	return cmd
}
