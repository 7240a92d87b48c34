// Package cli is the command seamark, for admins of brokers and of clusters and for owners of
// services. Each command is one file: its flags, the calls into other packages, and what it prints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/seamark-dev/seamark/internal/daemon/version"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake on the command line, as opposed to a command that fails.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Run executes a command line, given without the name of the program, and returns the exit code: 0,
// 1 if the command failed, 2 after a mistake on the command line. Errors are written to errOut.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	cmd := NewCommand(genericiooptions.IOStreams{In: in, Out: out, ErrOut: errOut})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errOut, "error: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(errOut, "\nSee '%s --help'.\n", commandFor(cmd, args).CommandPath())
		return exitUsage
	}
	return exitFailed
}

// commandFor returns the command that the arguments name, or root if they name none.
func commandFor(root *cobra.Command, args []string) *cobra.Command {
	if found, _, err := root.Find(args); err == nil {
		return found
	}
	return root
}

// NewCommand returns the whole command tree.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &session{IOStreams: streams, flags: genericclioptions.NewConfigFlags(false)}
	s.flags.Namespace = nil // each command has its own, with its own default
	root := &cobra.Command{
		Use:   "seamark",
		Short: "Join Kubernetes clusters into a clusterset and use their services by name everywhere",
		Long: "seamark joins Kubernetes clusters into a clusterset: a Service exported in one of them can be used by name from\n" +
			"all.\n\n" +
			"The broker's admin deploys a broker and invites clusters; each cluster's admin joins; owners of services export\n" +
			"them.",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	s.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(
		group("broker", "Set up the broker of a clusterset and invite clusters", newDeploy(s), newInvite(s), newBrokerRemove(s)),
		newJoin(s), newLeave(s), newMigrate(s),
		group("cluster", "See, change and remove the clusters of a clusterset", newClusterList(s), newClusterAddBlock(s), newClusterRemove(s)),
		group("export", "Make services of this cluster usable in the whole clusterset",
			withSelector(s, newExportService(s)), newExportNamespace(s)),
		group("unexport", "Stop exporting services", newUnexportService(s)),
		group("chart", "Get the Helm chart that join installs, or what it installs", newChartPackage(s), newChartRender(s)),
		newSandbox(s),
		newStatus(s), newExplain(s), newDoctor(s), newUI(s), newGather(s), newBench(s),
		group("get", "List exports, imports and clusters, over several contexts at once", newGetExports(s), newGetImports(s), newGetClusters(s)),
		newVersion(s),
	)
	nameAfter(root, os.Args[0])
	prepareTree(root)
	return root
}

// group returns a command that has only subcommands.
func group(name, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short}
	cmd.AddCommand(children...)
	return cmd
}

// prepareTree makes every mistake on the command line a usageError; calling a group without a
// subcommand, or with one that does not exist, is such a mistake.
func prepareTree(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	if cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			names := make([]string, 0, len(cmd.Commands()))
			for _, child := range cmd.Commands() {
				if child.IsAvailableCommand() {
					names = append(names, child.Name())
				}
			}
			choice := strings.Join(names, ", ")
			if len(args) == 0 && !cmd.HasParent() {
				return cmd.Help()
			}
			if len(args) == 0 {
				return usagef("%s needs a command: choose one of %s", cmd.CommandPath(), choice)
			}
			return usagef("there is no command %q of %s: choose one of %s", args[0], cmd.CommandPath(), choice)
		}
	} else if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%w (usage: %s)", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		prepareTree(child)
	}
}
