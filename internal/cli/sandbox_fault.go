//go:build linux

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seamark-dev/seamark/internal/cli/text"
	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
)

// faultList is what the commands of faults print.
type faultList struct {
	// Faults are all faults of the sandbox.
	Faults []fault.Fault `json:"faults"`
	// Healed are the faults that heal has ended.
	Healed []fault.Fault `json:"healed,omitempty"`
}

func newSandboxFault(s *session, f *sandboxFlags) *cobra.Command {
	cmd := group("fault", "Break the network between clusters, a control plane or a node",
		newFaultCut(s, f), newFaultLoss(s, f), newFaultDelay(s, f),
		newFaultControlPlane(s, f), newFaultNode(s, f), newFaultList(s, f), newFaultHeal(s, f))
	cmd.Long = "fault breaks a sandbox on purpose, to see what users of its services notice. Faults last until `heal` or `down`, and\n" +
		"several can be combined. Those of the network affect packets between nodes, pods and services of different clusters;\n" +
		"this machine reaches all clusters, so kubectl works."
	cmd.Example = "  sudo seamark sandbox fault cut west\n" +
		"  sudo seamark sandbox fault delay west north 100ms\n" +
		"  sudo seamark sandbox fault list\n" +
		"  sudo seamark sandbox fault heal"
	return cmd
}

// faultCommand completes a command that causes a fault: change does it, given the sandbox and the
// arguments, and heal has the arguments with which heal ends it.
func faultCommand(s *session, f *sandboxFlags, cmd *cobra.Command,
	change func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (done, heal string, err error),
) *cobra.Command {
	var out format
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opened, err := sandbox.Open(f.name)
		if err != nil {
			return err
		}
		done, heal, err := change(cmd, opened, args)
		if err != nil {
			return err
		}
		return out.print(s.Out, faultList{Faults: opened.Faults()}, func(w io.Writer) {
			fmt.Fprintf(w, "%s\nUndo: %s\n", done, healCommand(f.name, heal))
		})
	}
	addOutput(cmd, &out)
	return cmd
}

// healCommand returns the command that ends faults.
func healCommand(name, arguments string) string {
	words := []string{"seamark sandbox fault heal"}
	if arguments != "" {
		words = append(words, arguments)
	}
	if name != sandbox.DefaultName {
		words = append(words, "--name "+name)
	}
	return strings.Join(words, " ")
}

// pathFlags adds the flag of faults of the network.
func pathFlags(cmd *cobra.Command, oneWay *bool) *cobra.Command {
	cmd.Flags().BoolVar(oneWay, "one-way", false, "affect only packets from the first cluster, not those to it")
	return cmd
}

// pathOf returns the path that clusters on the command line name.
func pathOf(clusters []string, oneWay bool) fault.Path {
	path := fault.Path{From: clusters[0], OneWay: oneWay}
	if len(clusters) > 1 {
		path.To = clusters[1]
	}
	return path
}

// packets returns which packets a fault on a path affects.
func packets(p fault.Path) string {
	to := p.To
	if to == "" {
		to = "all other clusters"
	}
	if p.OneWay {
		return fmt.Sprintf("packets from %s to %s", p.From, to)
	}
	return fmt.Sprintf("packets between %s and %s", p.From, to)
}

// healPath returns the arguments with which heal ends a fault on a path.
func healPath(p fault.Path, kind fault.Kind) string {
	words := append(strings.Fields(p.From+" "+p.To), "--kind", string(kind))
	return strings.Join(words, " ")
}

func newFaultCut(s *session, f *sandboxFlags) *cobra.Command {
	var oneWay bool
	cmd := &cobra.Command{
		Use:   "cut CLUSTER [CLUSTER]",
		Short: "Drop all packets between two clusters, or between one and all others",
		Example: "  sudo seamark sandbox fault cut west\n" +
			"  sudo seamark sandbox fault cut west north --one-way",
		Args: cobra.RangeArgs(1, 2),
	}
	return pathFlags(faultCommand(s, f, cmd, func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (string, string, error) {
		path := pathOf(args, oneWay)
		return fmt.Sprintf("All %s are dropped.", packets(path)), healPath(path, fault.Cut), opened.Cut(cmd.Context(), path)
	}), &oneWay)
}

func newFaultLoss(s *session, f *sandboxFlags) *cobra.Command {
	var oneWay bool
	cmd := &cobra.Command{
		Use:   "loss CLUSTER [CLUSTER] PERCENT",
		Short: "Drop some packets between two clusters, or between one and all others",
		Long: "loss drops packets at random. In both directions a request and its answer can be lost: with 10 % one round trip of\n" +
			"five fails. It replaces an earlier loss in the same place.",
		Example: "  sudo seamark sandbox fault loss west north 10%\n" +
			"  sudo seamark sandbox fault loss west north 0.5% --one-way",
		Args: cobra.RangeArgs(2, 3),
	}
	return pathFlags(faultCommand(s, f, cmd, func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (string, string, error) {
		clusters, value := args[:len(args)-1], args[len(args)-1]
		percent, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		if err != nil {
			return "", "", usagef("%q is not a percentage: write it last, such as 10%%", value)
		}
		path := pathOf(clusters, oneWay)
		return fmt.Sprintf("%g %% of the %s are dropped.", percent, packets(path)), healPath(path, fault.Loss),
			opened.Lose(cmd.Context(), path, percent)
	}), &oneWay)
}

func newFaultDelay(s *session, f *sandboxFlags) *cobra.Command {
	var oneWay bool
	cmd := &cobra.Command{
		Use:   "delay CLUSTER [CLUSTER] DURATION",
		Short: "Delay all packets between two clusters, or between one and all others",
		Long: "delay makes every packet arrive later, in order. In both directions a round trip takes twice the delay longer. It\n" +
			"replaces an earlier delay in the same place. Each direction has a process that keeps at most 32,768 packets; more\n" +
			"are dropped. When a delay is changed or healed, the packets that wait are lost.",
		Example: "  sudo seamark sandbox fault delay west north 500ms\n" +
			"  sudo seamark sandbox fault delay west 50ms --one-way",
		Args: cobra.RangeArgs(2, 3),
	}
	return pathFlags(faultCommand(s, f, cmd, func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (string, string, error) {
		clusters, value := args[:len(args)-1], args[len(args)-1]
		delay, err := time.ParseDuration(value)
		if err != nil {
			return "", "", usagef("%q is not a duration: write it last, such as 500ms", value)
		}
		path, trip := pathOf(clusters, oneWay), delay
		if !oneWay {
			trip *= 2
		}
		return fmt.Sprintf("All %s arrive %s later: a round trip takes %s longer.", packets(path), delay, trip), healPath(path, fault.Delay),
			opened.Delay(cmd.Context(), path, delay)
	}), &oneWay)
}

func newFaultControlPlane(s *session, f *sandboxFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "control-plane CLUSTER",
		Short: "Stop the control plane of a cluster, while its pods run",
		Long: "control-plane kills etcd, the API server, the controller-manager, the scheduler and Seamark's agent of a cluster.\n" +
			"kubelet, containerd, kube-proxy and all other pods go on. On the first cluster this also stops the broker. heal\n" +
			"starts everything again with the objects it had.",
		Example: "  sudo seamark sandbox fault control-plane west",
		Args:    cobra.ExactArgs(1),
	}
	return faultCommand(s, f, cmd, func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (string, string, error) {
		return fmt.Sprintf("The control plane of %s is stopped. Its pods run, kubectl does not reach it.", args[0]),
			args[0] + " --kind " + string(fault.ControlPlane), opened.StopControlPlane(cmd.Context(), args[0])
	})
}

func newFaultNode(s *session, f *sandboxFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node CLUSTER",
		Short: "Stop the node of a cluster with all its pods, while the control plane runs",
		Long: "node stops the only node of a cluster as a power failure would: packets to its pods and services are dropped, and\n" +
			"kubelet, containerd, kube-proxy and all containers are killed. The API server runs, as on a machine of its own, and\n" +
			"reports after 50 seconds that the node is not ready. heal boots the node: containers start again, pods get new IPs.",
		Example: "  sudo seamark sandbox fault node west",
		Args:    cobra.ExactArgs(1),
	}
	return faultCommand(s, f, cmd, func(cmd *cobra.Command, opened *sandbox.Sandbox, args []string) (string, string, error) {
		return fmt.Sprintf("The node of %s is stopped with all its pods. Its control plane runs.", args[0]),
			args[0] + " --kind " + string(fault.Node), opened.StopNode(cmd.Context(), args[0])
	})
}

func newFaultList(s *session, f *sandboxFlags) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the faults of a sandbox",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			faults := opened.Faults()
			return out.print(s.Out, faultList{Faults: faults}, func(w io.Writer) { printFaults(w, f.name, faults) })
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func printFaults(w io.Writer, name string, faults []fault.Fault) {
	if len(faults) == 0 {
		fmt.Fprintf(w, "Sandbox %s has no faults.\n", name)
		return
	}
	rows := make([][]string, len(faults))
	for i, f := range faults {
		rows[i] = []string{string(f.Kind), f.String()}
	}
	text.Table(w, []string{"FAULT", "EFFECT"}, rows)
	fmt.Fprintf(w, "Undo: %s\n", healCommand(name, ""))
}

func newFaultHeal(s *session, f *sandboxFlags) *cobra.Command {
	var (
		out  format
		kind string
	)
	cmd := &cobra.Command{
		Use:   "heal [CLUSTER [CLUSTER]]",
		Short: "End all faults, those of a cluster, or those between two clusters",
		Long: "heal ends faults. With one cluster it ends the faults of that cluster and of its network, with two those of the\n" +
			"network between them, in both directions. It waits until a control plane or a node that was stopped is ready.",
		Example: "  sudo seamark sandbox fault heal\n" +
			"  sudo seamark sandbox fault heal west north --kind delay",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			selected, err := fault.ParseKind(kind)
			if err != nil {
				return usageError{err}
			}
			opened, err := sandbox.Open(f.name)
			if err != nil {
				return err
			}
			healed, err := opened.Heal(cmd.Context(), fault.Selection{Kind: selected, Clusters: args})
			if err != nil {
				return err
			}
			return out.print(s.Out, faultList{opened.Faults(), healed}, func(w io.Writer) { printHealed(w, healed, opened.Faults()) })
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only faults of this kind: cut, loss, delay, control-plane or node")
	addOutput(cmd, &out)
	return cmd
}

func printHealed(w io.Writer, healed, left []fault.Fault) {
	for _, f := range healed {
		fmt.Fprintf(w, "Healed: %s\n", f.Title())
	}
	switch {
	case len(healed) == 0 && len(left) == 0:
		fmt.Fprintln(w, "There are no faults: nothing to do.")
	case len(healed) == 0:
		fmt.Fprintf(w, "There is no such fault; %s of another kind or place: seamark sandbox fault list\n", text.Plural(len(left), "fault"))
	case len(left) > 0:
		fmt.Fprintf(w, "%s left: seamark sandbox fault list\n", text.Plural(len(left), "fault"))
	default:
		fmt.Fprintln(w, "The sandbox has no faults.")
	}
}
