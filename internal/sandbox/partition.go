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

// partitionTable is our table in the network namespaces of nodes.
const partitionTable = "seamark_sandbox_partition"

// Partition cuts two clusters off from each other: nothing of one's nodes, pods and services is heard in the other, in either direction,
// and open connections fall blocked. Others, and the host, hear both. It fails when one of them does not exist.
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
	return errors.New("name two clusters to heal what is between them, or none to heal all")
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

// applyPartitions makes the rules of every node as the state says.
func (s *Sandbox) applyPartitions(ctx context.Context) error {
	for _, c := range s.plan.clusters {
		var blocked []netip.Prefix
		for _, other := range s.plan.clusters {
			if s.state.partitioned(newPair(c.name, other.name)) {
				blocked = append(blocked, other.ranges()...)
			}
		}
		if err := c.nft(ctx, partitionRules(blocked)); err != nil {
			return fmt.Errorf("cluster %s: setting the rules of partitions: %w", c.name, err)
		}
	}
	return nil
}

// partitionRules drop what comes from the ranges before anybody sees it, and what goes to them after every translation of addresses. The
// table is replaced in one transaction; declaring it first makes deleting it legal when there was none (nft 1.0.6 has no `destroy`).
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

// Partitions are the pairs of clusters that are cut off from each other.
func (s *Sandbox) Partitions() []Pair { return append([]Pair{}, s.state.Partitions...) }
