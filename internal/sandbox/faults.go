//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/internal/sandbox/relay"
)

// nodeDevice is the device of every node on the network between clusters.
const nodeDevice = "eth0"

// Cut drops all packets on a path, also of open connections. The host still reaches all clusters.
// It fails when one of the clusters does not exist. Faults that exist already stay, here and in the
// other methods.
func (s *Sandbox) Cut(ctx context.Context, path fault.Path) error {
	return s.injectOn(ctx, path, path.CutOff)
}

// Lose drops a share of the packets on a path, chosen at random. With both ways, a request and its
// answer can be lost.
func (s *Sandbox) Lose(ctx context.Context, path fault.Path, percent float64) error {
	return s.injectOn(ctx, path, func(clusters []string) ([]fault.Fault, error) { return path.Lose(clusters, percent) })
}

// Delay delays every packet on a path. With both ways, the time of a round trip grows by twice the
// delay.
func (s *Sandbox) Delay(ctx context.Context, path fault.Path, delay time.Duration) error {
	return s.injectOn(ctx, path, func(clusters []string) ([]fault.Fault, error) { return path.DelayBy(clusters, delay) })
}

// StopControlPlane kills etcd, the API server, the controller-manager and the scheduler of a
// cluster, then its agent. kubelet starts the agent again and again, but without an API server it
// ends at once. kubelet, containerd, kube-proxy and the pods keep running.
func (s *Sandbox) StopControlPlane(ctx context.Context, cluster string) error {
	return s.inject(ctx, []string{cluster}, fault.Fault{Kind: fault.ControlPlane, Cluster: cluster})
}

// StopNode stops the only node of a cluster as a power failure would: packets to its pods and
// services are dropped, then kubelet, containerd, kube-proxy and all containers are killed. The
// control plane runs, as on a machine of its own.
func (s *Sandbox) StopNode(ctx context.Context, cluster string) error {
	return s.inject(ctx, []string{cluster}, fault.Fault{Kind: fault.Node, Cluster: cluster})
}

// Faults returns the current faults of the sandbox, also those of other commands.
func (s *Sandbox) Faults() []fault.Fault {
	current := s.state
	if fresh, err := Open(s.plan.name); err == nil { // otherwise it was removed
		current = fresh.state
	}
	return append([]fault.Fault{}, current.Faults...)
}

func (s *Sandbox) injectOn(ctx context.Context, path fault.Path, faults func(clusters []string) ([]fault.Fault, error)) error {
	added, err := faults(s.Clusters())
	if err != nil {
		return err
	}
	names := []string{path.From}
	if path.To != "" {
		names = append(names, path.To)
	}
	return s.inject(ctx, names, added...)
}

// inject adds faults. The state is saved first, so that Heal ends also those of a command that was
// killed.
func (s *Sandbox) inject(ctx context.Context, clusters []string, added ...fault.Fault) error {
	return s.changeFaults(ctx, clusters, func() error {
		s.state.Faults = fault.Add(s.state.Faults, added...)
		if err := s.save(); err != nil {
			return err
		}
		if err := s.applyNetworkFaults(ctx); err != nil {
			return err
		}
		for _, f := range added {
			if f.OfNetwork() {
				continue
			}
			c, err := s.plan.find(f.Cluster)
			if err != nil {
				return err
			}
			if err := c.stopFor(f.Kind); err != nil {
				return fmt.Errorf("cluster %s: %w", c.name, err)
			}
		}
		return nil
	})
}

// Heal ends the faults that are selected and returns them. It waits until a control plane or a node
// that was stopped is ready again.
func (s *Sandbox) Heal(ctx context.Context, selection fault.Selection) (healed []fault.Fault, err error) {
	if err := selection.Check(); err != nil {
		return nil, err
	}
	err = s.changeFaults(ctx, selection.Clusters, func() error {
		healed, s.state.Faults = selection.Split(s.state.Faults)
		if err := s.applyNetworkFaults(ctx); err != nil {
			return err
		}
		for _, c := range s.plan.clusters {
			if err := s.restart(ctx, c, kindsIn(healed, c.name), kindsIn(s.state.Faults, c.name)); err != nil {
				return err
			}
		}
		return s.save() // last, so that a Heal that fails can be repeated
	})
	return healed, err
}

// kindsIn returns the kinds of the faults of a cluster itself.
func kindsIn(faults []fault.Fault, cluster string) (kinds []fault.Kind) {
	for _, f := range faults {
		if f.Cluster == cluster {
			kinds = append(kinds, f.Kind)
		}
	}
	return kinds
}

// changeFaults calls change while no other command changes the sandbox, with its current state.
func (s *Sandbox) changeFaults(ctx context.Context, clusters []string, change func() error) error {
	for _, name := range clusters {
		if _, err := s.plan.find(name); err != nil {
			return err
		}
	}
	unlock, err := lock(ctx, s.plan.name, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	fresh, err := Open(s.plan.name) // another command may have changed it
	if err != nil {
		return err
	}
	s.state = fresh.state
	return change()
}

// applyNetworkFaults starts the relays and sets the rules of every node according to the state. A
// relay that is not needed any more ends after the rules that lead to it are gone.
func (s *Sandbox) applyNetworkFaults(ctx context.Context) error {
	for _, c := range s.plan.clusters {
		delays := s.plan.relays(c, s.state.Faults)
		err := c.startRelays(ctx, delays)
		if err == nil {
			err = c.nft(ctx, fault.Ruleset(nodeDevice, s.plan.rules(c, s.state.Faults)))
		}
		if err == nil {
			err = c.stopRelays(delays)
		}
		if err != nil {
			return fmt.Errorf("cluster %s: set up the faults of its network (run seamark sandbox up if it does not run): %w", c.name, err)
		}
	}
	return nil
}

// rules returns the rules of a node: packets are dropped before they are delayed.
func (p plan) rules(c cluster, faults []fault.Fault) []fault.Rule {
	var dropping, delaying []fault.Rule
	for _, f := range faults {
		if f.Kind == fault.Node && f.Cluster == c.name {
			dropping = append(dropping, fault.Rule{To: slices.Concat(c.podCIDRs, c.serviceCIDRs), Percent: 100})
		}
		if f.To != c.name {
			continue
		}
		from, err := p.find(f.From)
		if err != nil { // the state was edited
			continue
		}
		switch f.Kind {
		case fault.Cut:
			dropping = append(dropping, fault.Rule{From: from.ranges(), Percent: 100})
		case fault.Loss:
			dropping = append(dropping, fault.Rule{From: from.ranges(), Percent: f.Percent})
		case fault.Delay:
			delaying = append(delaying, fault.Rule{From: from.ranges(), Via: relayName(f.From)})
		}
	}
	return append(dropping, delaying...)
}

// relayName is the name of a relay for packets from a cluster, and of its device.
func relayName(from string) string { return "delay-" + from }

// relays returns the relays of a node by their names.
func (p plan) relays(c cluster, faults []fault.Fault) map[string]component {
	needed := map[string]component{}
	for _, f := range faults {
		if f.Kind == fault.Delay && f.To == c.name {
			name := relayName(f.From)
			options := relay.Options{Device: name, Beside: nodeDevice, Delay: f.Delay.Duration}
			needed[name] = component{name: name, program: relay.Program, args: relay.Args(options), dir: c.dir}
		}
	}
	return needed
}

// startRelays starts relays and waits until their devices are up. One that runs with another delay
// is replaced; the packets that wait in it are lost.
func (c cluster) startRelays(ctx context.Context, needed map[string]component) error {
	for name, comp := range needed {
		if p, alive := c.running(name); alive && !p.hasArgs(comp.args) {
			if err := p.kill(0); err != nil {
				return err
			}
			if err := c.awaitNoDevice(ctx, name); err != nil {
				return err
			}
		}
		if err := c.start(comp); err != nil {
			return err
		}
		err := c.await(ctx, name, "device "+name, func(context.Context) error { return inNetns(c.netns, func() error { return deviceUp(name) }) })
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitNoDevice waits until the device of a relay that ended is gone. The kernel removes it a
// moment after the process.
func (c cluster) awaitNoDevice(ctx context.Context, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		err := inNetns(c.netns, func() error {
			_, err := netlink.LinkByName(name)
			return err
		})
		var gone netlink.LinkNotFoundError
		if errors.As(err, &gone) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait until the device %s of a relay that ended is gone: %w", name, err)
	}
	return nil
}

func deviceUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil && link.Attrs().Flags&net.FlagUp == 0 {
		err = errors.New("it is down")
	}
	return err
}

// stopRelays ends the relays that are not needed.
func (c cluster) stopRelays(needed map[string]component) error {
	records, err := filepath.Glob(c.record(relayName("*")))
	if err != nil {
		return err
	}
	for _, record := range records {
		name := strings.TrimSuffix(filepath.Base(record), filepath.Ext(record))
		if _, ok := needed[name]; ok {
			continue
		}
		if p, alive := c.running(name); alive {
			if err := p.kill(0); err != nil {
				return err
			}
		}
		if err := os.Remove(record); err != nil {
			return err
		}
	}
	return nil
}

// nft applies a script in the cluster's network namespace.
func (c cluster) nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := inNetns(c.netns, cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(output.String()))
	}
	return nil
}
