// Package fault describes the faults of a sandbox and the nftables rules that cause those of its
// network. It does no I/O.
package fault

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is what is wrong.
type Kind string

// The kinds. The first three are faults of the network between two clusters, the others are faults
// of one cluster.
const (
	Cut          Kind = "cut"           // all packets are dropped
	Loss         Kind = "loss"          // some packets are dropped
	Delay        Kind = "delay"         // packets arrive later
	ControlPlane Kind = "control-plane" // the control plane is stopped, the pods run
	Node         Kind = "node"          // the node is stopped, the control plane runs
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Cut, Loss, Delay, ControlPlane, Node} }

// ofNetwork reports whether faults of the kind are between two clusters.
func (k Kind) ofNetwork() bool { return k == Cut || k == Loss || k == Delay }

// ParseKind returns the kind of a name. The empty name stands for all kinds.
func ParseKind(name string) (Kind, error) {
	kind := Kind(name)
	if name == "" || slices.Contains(Kinds(), kind) {
		return kind, nil
	}
	return "", fmt.Errorf("there is no kind of fault %q: choose from %s", name, joinKinds())
}

func joinKinds() string {
	names := make([]string, len(Kinds()))
	for i, kind := range Kinds() {
		names[i] = string(kind)
	}
	return strings.Join(names, ", ")
}

// Fault is one fault. A fault of the network affects packets in one direction only: from the nodes,
// pods and services of one cluster to those of another.
type Fault struct {
	Kind Kind `json:"kind"`
	// From and To are the clusters of a fault of the network.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Cluster has the fault, if it is not one of the network.
	Cluster string `json:"cluster,omitempty"`
	// Percent is how many packets of a hundred are lost.
	Percent float64 `json:"percent,omitempty"`
	// Delay is by how much packets are delayed.
	Delay metav1.Duration `json:"delay,omitzero"`
}

// String says what happens.
func (f Fault) String() string {
	switch f.Kind {
	case Cut:
		return fmt.Sprintf("packets from %s to %s are dropped", f.From, f.To)
	case Loss:
		return fmt.Sprintf("%g %% of the packets from %s to %s are dropped", f.Percent, f.From, f.To)
	case Delay:
		return fmt.Sprintf("packets from %s to %s arrive %s later", f.From, f.To, f.Delay.Duration)
	case ControlPlane:
		return fmt.Sprintf("the control plane of %s is stopped, its pods run", f.Cluster)
	case Node:
		return fmt.Sprintf("the node of %s is stopped with all pods, the control plane runs", f.Cluster)
	}
	return string(f.Kind)
}

// Title names the fault: its kind and where it is.
func (f Fault) Title() string {
	if f.OfNetwork() {
		return fmt.Sprintf("%s from %s to %s", f.Kind, f.From, f.To)
	}
	return fmt.Sprintf("%s of %s", f.Kind, f.Cluster)
}

// OfNetwork reports whether the fault is between two clusters.
func (f Fault) OfNetwork() bool { return f.Kind.ofNetwork() }

// samePlace reports whether two faults exclude each other: a place has one fault of each kind.
func (f Fault) samePlace(other Fault) bool {
	return f.Kind == other.Kind && f.From == other.From && f.To == other.To && f.Cluster == other.Cluster
}

// The limits of loss and delay. Loss has two decimals. A packet that waits longer than MaxDelay
// would be retransmitted long before by most protocols.
const (
	minPercent = 0.01
	maxPercent = 100
	minDelay   = time.Millisecond
	MaxDelay   = time.Minute
)

// Check returns an error that says which value of the fault is impossible.
func (f Fault) Check() error {
	switch {
	case f.Kind == Loss && (f.Percent < minPercent || f.Percent > maxPercent || math.IsNaN(f.Percent)):
		return fmt.Errorf("a loss of %g %% is not possible: choose %g %% to %d %%; to end a loss, use seamark sandbox fault heal",
			f.Percent, minPercent, maxPercent)
	case f.Kind == Delay && (f.Delay.Duration < minDelay || f.Delay.Duration > MaxDelay):
		return fmt.Errorf("a delay of %s is not possible: choose %s to %s; to end a delay, use seamark sandbox fault heal",
			f.Delay.Duration, minDelay, MaxDelay)
	}
	return nil
}

// Add returns the faults together with new ones. A new one replaces a fault of its kind in the same
// place.
func Add(faults []Fault, added ...Fault) []Fault {
	all := slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return slices.ContainsFunc(added, f.samePlace) })
	all = append(all, added...)
	slices.SortFunc(all, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return all
}

// Selection selects faults.
type Selection struct {
	// Kind selects faults of one kind, or of all kinds if it is empty.
	Kind Kind
	// Clusters selects the faults of one cluster and of its network, or of the network between two
	// clusters in both directions, or all if it is empty.
	Clusters []string
}

// Has reports whether the selection has a fault.
func (s Selection) Has(f Fault) bool {
	if s.Kind != "" && s.Kind != f.Kind {
		return false
	}
	switch len(s.Clusters) {
	case 0:
		return true
	case 1:
		return slices.Contains([]string{f.From, f.To, f.Cluster}, s.Clusters[0])
	}
	return f.OfNetwork() && slices.Contains(s.Clusters, f.From) && slices.Contains(s.Clusters, f.To)
}

// Check returns an error if no fault can be selected. It does not know which clusters exist.
func (s Selection) Check() error {
	switch {
	case len(s.Clusters) > 2:
		return fmt.Errorf("name one cluster or two, not %d", len(s.Clusters))
	case len(s.Clusters) == 2 && s.Clusters[0] == s.Clusters[1]:
		return fmt.Errorf("name two different clusters, or %s alone for all its faults", s.Clusters[0])
	case len(s.Clusters) == 2 && s.Kind != "" && !s.Kind.ofNetwork():
		return fmt.Errorf("a fault of kind %s is in one cluster: name one cluster, not two", s.Kind)
	}
	return nil
}

// Split divides the faults into those that the selection has and the others.
func (s Selection) Split(faults []Fault) (selected, others []Fault) {
	for _, f := range faults {
		if s.Has(f) {
			selected = append(selected, f)
		} else {
			others = append(others, f)
		}
	}
	return selected, others
}
