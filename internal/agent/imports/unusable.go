package imports

import (
	"fmt"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// Usability is whether endpoints of a cluster are used where another cluster serves the same.
type Usability string

const (
	// Usable means that the cluster serves, as far as this one knows.
	Usable Usability = ""
	// Unreachable means that the cluster's beacons and endpoints stopped answering here.
	Unreachable Usability = "unreachable"
	// Silent means that the cluster's lease expired, and that no beacon shows that it serves
	// nevertheless.
	Silent Usability = "lease"
)

// UsabilityOf returns whether a cluster is usable in a family. What its beacons show comes before
// its lease: an expired lease shows only that its agent does not reach the broker. A cluster that
// answers in another family serves.
func UsabilityOf(key reachable.Key, reached objects.ReachStates, stale map[string]bool) Usability {
	switch {
	case reached[key] == objects.Unreachable:
		return Unreachable
	case stale[key.Cluster] && !reached.InAnyFamily(key.Cluster):
		return Silent
	}
	return Usable
}

// keptEndpoints is what is kept of clusters that are not usable.
type keptEndpoints struct {
	unreachable, silent []string
	// ports are those that are kept, if other ports of the same clusters are dropped.
	ports []string
}

// dropUnusable returns the slices without what unusable clusters serve, as far as a usable cluster
// serves it too: the same port in the same family. The slices are those that this cluster would
// import or holds, so ports that lost a conflict and refused addresses do not count as served.
func dropUnusable(in Input, imported []*discoveryv1.EndpointSlice) (out []*discoveryv1.EndpointSlice, kept keptEndpoints) {
	usabilityOf := func(s *discoveryv1.EndpointSlice) Usability {
		return UsabilityOf(reachable.SourceOf(s), in.Reached, in.Stale)
	}
	served := reachable.ServedPorts{}
	for _, s := range slices.Concat(imported, in.HeldSlices) {
		if usabilityOf(s) == Usable {
			served.Add(s)
		}
	}
	dropped := false
	for _, s := range imported {
		usability := usabilityOf(s)
		if usability == Usable {
			out = append(out, s)
			continue
		}
		if usability == Silent && in.StaleEndpoints == v1alpha1.StaleEndpointsRemove {
			continue
		}
		left := served.LeaveOut(s)
		dropped = dropped || left != s
		if left == nil {
			continue
		}
		out = append(out, left)
		if len(left.Endpoints) > 0 {
			kept.add(left, usability)
		}
	}
	return out, kept.sorted(dropped)
}

func (k *keptEndpoints) add(s *discoveryv1.EndpointSlice, usability Usability) {
	clusters := &k.silent
	if usability == Unreachable {
		clusters = &k.unreachable
	}
	*clusters = append(*clusters, s.Labels[mcsv1beta1.LabelSourceCluster])
	for _, p := range reachable.PortsOf(s) {
		k.ports = append(k.ports, p.String())
	}
}

// sorted returns it without duplicates. A cluster that is unreachable in one family and silent in
// the other is named once.
func (k keptEndpoints) sorted(withPorts bool) keptEndpoints {
	out := keptEndpoints{unreachable: sortedSet(k.unreachable), ports: sortedSet(k.ports)}
	out.silent = slices.DeleteFunc(sortedSet(k.silent), func(c string) bool { return slices.Contains(out.unreachable, c) })
	if !withPorts {
		out.ports = nil
	}
	return out
}

func sortedSet(in []string) []string {
	slices.Sort(in)
	return slices.Compact(in)
}

// any reports whether endpoints are kept.
func (k keptEndpoints) any() bool { return len(k.unreachable)+len(k.silent) > 0 }

func (k keptEndpoints) String() string {
	var subjects []string
	if len(k.unreachable) > 0 {
		subjects = append(subjects, named(k.unreachable)+" cannot be reached from here")
	}
	switch len(k.silent) {
	case 0:
	case 1:
		subjects = append(subjects, named(k.silent)+" has not been heard from")
	default:
		subjects = append(subjects, named(k.silent)+" have not been heard from")
	}
	possessive := "its"
	if len(k.unreachable)+len(k.silent) > 1 {
		possessive = "their"
	}
	what, why := "", "this service"
	switch len(k.ports) {
	case 0:
	case 1:
		what, why = " for "+k.ports[0], "that port"
	default:
		what, why = " for "+enumerate(k.ports), "those ports"
	}
	return fmt.Sprintf("%s; %s last known endpoints are kept%s, because no other cluster serves %s",
		strings.Join(subjects, ", and "), possessive, what, why)
}

func named(clusters []string) string {
	if len(clusters) == 1 {
		return "cluster " + clusters[0]
	}
	return "clusters " + enumerate(clusters)
}
