//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// partitionTable is the nftables table of partitions in the network namespaces of nodes.
const partitionTable = "seamark_sandbox_partition"

// Partition cuts two clusters off from each other: packets between their nodes, pods and services
// are dropped in both directions, also on open connections. Other clusters and the host still reach
// both. It fails when one of the clusters does not exist.
func (s *Sandbox) Partition(ctx context.Context, a, b string) error {
	if a == b {
		return fmt.Errorf("cluster %s cannot be cut off from itself: name two clusters", a)
	}
	return s.changePartitions(ctx, []string{a, b}, func(pairs []Pair) []Pair {
		if pair := newPair(a, b); !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
		return pairs
	})
}

// Heal ends the partition of two clusters, or without names every partition.
func (s *Sandbox) Heal(ctx context.Context, names ...string) error {
	switch len(names) {
	case 0:
		return s.changePartitions(ctx, nil, func([]Pair) []Pair { return nil })
	case 2:
		pair := newPair(names[0], names[1])
		return s.changePartitions(ctx, names, func(pairs []Pair) []Pair {
			return slices.DeleteFunc(pairs, func(p Pair) bool { return p == pair })
		})
	}
	return errors.New("name two clusters to end their partition, or none to end all partitions")
}

func (s *Sandbox) changePartitions(ctx context.Context, names []string, change func([]Pair) []Pair) error {
	for _, name := range names {
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
	s.state.Partitions = change(s.state.Partitions)
	if err := s.applyPartitions(ctx); err != nil {
		return err
	}
	return s.save()
}

// applyPartitions sets the rules of every node according to the state.
func (s *Sandbox) applyPartitions(ctx context.Context) error {
	for _, c := range s.plan.clusters {
		var blocked []netip.Prefix
		for _, other := range s.plan.clusters {
			if s.state.partitioned(newPair(c.name, other.name)) {
				blocked = append(blocked, other.ranges()...)
			}
		}
		if err := c.nft(ctx, partitionRules(blocked)); err != nil {
			return fmt.Errorf("cluster %s: set the rules of partitions: %w", c.name, err)
		}
	}
	return nil
}

// partitionRules returns rules that drop packets from the ranges before all other hooks, and
// packets to them after every address translation. The table is replaced in one transaction. It is
// declared first, because deleting a table that does not exist is an error (nft 1.0.6 has no
// `destroy`).
func partitionRules(blocked []netip.Prefix) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\n", partitionTable)
	if len(blocked) == 0 {
		return b.String()
	}
	var from, to strings.Builder
	for _, prefix := range blocked {
		family := "ip"
		if prefix.Addr().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&from, "    %s saddr %s drop\n", family, prefix)
		fmt.Fprintf(&to, "    %s daddr %s drop\n", family, prefix)
	}
	fmt.Fprintf(&b, "table inet %s {\n  chain from {\n    type filter hook prerouting priority raw\n%s  }\n"+
		"  chain to {\n    type filter hook postrouting priority 0\n%s  }\n}\n", partitionTable, from.String(), to.String())
	return b.String()
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

// Partitions returns the pairs of clusters that are cut off from each other.
func (s *Sandbox) Partitions() []Pair { return append([]Pair{}, s.state.Partitions...) }
