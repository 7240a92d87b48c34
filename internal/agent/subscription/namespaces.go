// Package subscription limits what an agent reads of the broker to the services of namespaces that
// exist in its cluster. What an agent holds, and what the broker sends it, is then proportional to
// what the cluster imports and exports, not to the size of the clusterset.
package subscription

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// maxSelector is how long a label selector may be. API servers accept far more; some proxies before
// them accept lines of 8 KiB. It is enough for some 250 namespaces.
const maxSelector = 6 << 10

// Namespaces are the namespaces whose services concern a cluster: those that exist in it, and those
// that do not exist any more but in which the cluster still has something on the broker. It is safe
// for concurrent use.
type Namespaces struct {
	mu        sync.Mutex
	all       bool // of the clusterset
	exist     map[string]struct{}
	published map[string]struct{}
	known     chan struct{} // closed when SetKnown is called
	changed   chan struct{} // closed when the namespaces change
}

// NewNamespaces returns Namespaces that are not known yet.
func NewNamespaces() *Namespaces {
	return &Namespaces{
		exist: map[string]struct{}{}, published: map[string]struct{}{},
		known: make(chan struct{}), changed: make(chan struct{}),
	}
}

// Every returns the Namespaces of a cluster that all services concern.
func Every() *Namespaces {
	n := NewNamespaces()
	n.all = true
	n.SetKnown()
	return n
}

// AreAll reports whether all services concern the cluster, whatever namespaces it has.
func (n *Namespaces) AreAll() bool { return n.all }

// SetKnown is called once, when all namespaces have been added. Nothing is listed before.
func (n *Namespaces) SetKnown() { close(n.known) }

// Add adds a namespace that exists in the cluster.
func (n *Namespaces) Add(namespace string) {
	n.change(func() { n.exist[namespace] = struct{}{} })
}

// AddPublished adds a namespace in which the cluster has something on the broker.
func (n *Namespaces) AddPublished(namespace string) {
	n.change(func() { n.published[namespace] = struct{}{} })
}

// Delete is called when a namespace does not exist any more. Its services concern the cluster until
// Release: it may still have something there on the broker.
func (n *Namespaces) Delete(namespace string) {
	n.change(func() {
		delete(n.exist, namespace)
		n.published[namespace] = struct{}{}
	})
}

// Release is called when the cluster has nothing in a namespace on the broker.
func (n *Namespaces) Release(namespace string) {
	n.change(func() { delete(n.published, namespace) })
}

// Gone returns the namespaces that do not exist any more and wait for Release.
func (n *Namespaces) Gone() (gone []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace := range n.published {
		if _, exists := n.exist[namespace]; !exists {
			gone = append(gone, namespace)
		}
	}
	return gone
}

// Concern reports whether services of a namespace concern the cluster.
func (n *Namespaces) Concern(namespace string) bool {
	selection, _ := n.selection()
	return selection.contains(namespace)
}

func (n *Namespaces) change(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.names()
	change()
	if !maps.Equal(before, n.names()) {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

func (n *Namespaces) names() map[string]struct{} {
	names := maps.Clone(n.exist)
	maps.Copy(names, n.published)
	return names
}

// selection returns which namespaces are to be read now, and a channel that is closed when that may
// have changed.
func (n *Namespaces) selection() (Selection, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all {
		return Selection{everything: true}, n.changed
	}
	return Select(n.names()), n.changed
}

// await waits until the namespaces are known.
func (n *Namespaces) await(ctx context.Context) error {
	select {
	case <-n.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Selection is which namespaces' services are read from the broker.
type Selection struct {
	everything bool
	names      map[string]struct{}
	// tooMany means that a selector cannot name them: the broker sends everything, and what does not
	// belong to them is left out here.
	tooMany bool
}

// Select returns the selection of namespaces.
func Select(names map[string]struct{}) Selection {
	return Selection{names: names, tooMany: len(selectorOf(names)) > maxSelector}
}

// LabelSelector selects the broker's objects of the services, "" all of them.
func (s Selection) LabelSelector() string {
	if s.everything || s.tooMany {
		return ""
	}
	return selectorOf(s.names)
}

// selectorOf returns a label selector of the services of some namespaces. If there is no namespace,
// it selects nothing: no namespace has a name with a dot.
func selectorOf(names map[string]struct{}) string {
	list := slices.Sorted(maps.Keys(names))
	if len(list) == 0 {
		list = []string{"no.namespace"}
	}
	return v1alpha1.LabelServiceNamespace + " in (" + strings.Join(list, ",") + ")"
}

func (s Selection) contains(namespace string) bool {
	_, ok := s.names[namespace]
	return ok || s.everything
}

// containsObject reports whether an object of the broker belongs to a service of the namespaces.
func (s Selection) containsObject(obj metav1.Object) bool {
	return s.contains(obj.GetLabels()[v1alpha1.LabelServiceNamespace])
}

// minus returns the namespaces of s that are not in other. Both name their namespaces.
func (s Selection) minus(other Selection) Selection {
	names := map[string]struct{}{}
	for name := range s.names {
		if !other.contains(name) {
			names[name] = struct{}{}
		}
	}
	return Select(names)
}

// plus returns the namespaces of both. Both name their namespaces.
func (s Selection) plus(other Selection) Selection {
	names := maps.Clone(s.names)
	maps.Copy(names, other.names)
	return Select(names)
}
