// Package reachable has the property with which an agent publishes the clusters that it cannot
// reach, and the rule what of them is left out. It depends on no API client, for programs that have
// none, or another one than package objects.
package reachable

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Key names what can be reached or not: a cluster in one address family.
type Key struct {
	Cluster string
	Family  corev1.IPFamily
}

// Unreachables are the clusters that are unreachable from this one, and since when.
type Unreachables map[Key]time.Time

// Changed returns what became unreachable or reachable again: the keys that one of two has.
func (u Unreachables) Changed(now Unreachables) map[Key]bool {
	out := map[Key]bool{}
	for key := range u {
		if !now.Has(key) {
			out[key] = true
		}
	}
	for key := range now {
		if !u.Has(key) {
			out[key] = true
		}
	}
	return out
}

// Has reports whether a cluster is unreachable in a family.
func (u Unreachables) Has(key Key) bool {
	_, has := u[key]
	return has
}

// Property returns the property that publishes them to the data plane and the DNS server
// of this cluster, which stop using their endpoints at once: the slices of many services cannot be
// rewritten within a second. Its value has one CLUSTER/FAMILY@TIME for each, separated by commas.
func Property(unreachable Unreachables) *aboutv1beta1.ClusterProperty {
	keys := slices.SortedFunc(maps.Keys(unreachable), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Family, b.Family))
	})
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.Cluster + "/" + string(key.Family) + "@" + unreachable[key].UTC().Format(time.RFC3339)
	}
	p := &aboutv1beta1.ClusterProperty{}
	p.Name, p.Spec.Value = v1alpha1.PropertyUnreachableClusters, strings.Join(texts, ",")
	return p
}

// Parse parses the value of the property. It leaves out what it does not understand: to
// use a cluster that does not answer does less harm than to use none.
func Parse(value string) Unreachables {
	out := Unreachables{}
	for text := range strings.SplitSeq(value, ",") {
		name, at, _ := strings.Cut(strings.TrimSpace(text), "@")
		cluster, family, _ := strings.Cut(name, "/")
		since, err := time.Parse(time.RFC3339, at)
		if err == nil && cluster != "" && (family == string(corev1.IPv4Protocol) || family == string(corev1.IPv6Protocol)) {
			out[Key{cluster, corev1.IPFamily(family)}] = since
		}
	}
	return out
}
