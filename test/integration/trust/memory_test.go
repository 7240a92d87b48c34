package trust

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	flood   = 40        // services of the attack
	padding = 200 << 10 // bytes of each text
	bound   = 12 << 20  // of heap that the attack may cost both agents together
)

// text returns a text that no other object has: caches share equal ones.
func text(i int, what string) string {
	return fmt.Sprintf("%d %s %s", i, what, strings.Repeat("x", padding))
}

// A member publishes four times what it may, with much text in every field that takes text. The
// agents of others do not hold it. When it publishes no more than it may, they import it again.
func TestPublishedContentDoesNotFillMemory(t *testing.T) {
	c := withEvilMember(t)
	ns := fleet.NewNamespace(t, c.east, c.west)
	c.grant(t, func(spec *v1alpha1.ClusterSpec) {
		spec.Limits = v1alpha1.ClusterLimits{Services: flood / 4, Bytes: 64 << 10}
	})
	t.Cleanup(func() { c.withdrawAll(t, ns) })
	c.roundTrip(t, ns, "before")
	before := heap()
	published := 0
	for i := range flood {
		service := types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("s%02d", i)}
		r, s, si := record("evil", service), slice("evil", service), aggregate("evil", service)
		r.Annotations = map[string]string{"evil.example/text": text(i, "record")}
		r.Spec.ExportedAnnotations = map[string]string{"evil.example/text": text(i, "exported")}
		s.Annotations = map[string]string{v1alpha1.AnnotationNodeRegions: text(i, "slice")}
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.6.6.6"}}}
		s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}
		si.Annotations = map[string]string{"evil.example/text": text(i, "aggregate")}
		for _, obj := range []client.Object{r, s, si} {
			must(t, c.evil.Create(t.Context(), obj))
		}
		published += 4 * padding
	}
	c.roundTrip(t, ns, "after") // the watches are in order, so both agents have received the attack
	// What an agent reads at this moment is in the heap too: up to 4 MiB for each watch or list, as
	// much as a connection takes before its reader does. What it holds stays there.
	harness.Eventually(t, "the agents hold little of what was published", func() error {
		grown := heap() - before
		t.Logf("the heap grew by %d KiB for %d KiB that were published to two agents", grown>>10, published>>10)
		if grown > bound {
			return fmt.Errorf("the heap grew by %d KiB, which is more than %d KiB", grown>>10, bound>>10)
		}
		return nil
	})

	// The first services stay, without the text.
	for i := range flood {
		service := types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("s%02d", i)}
		if i >= flood/4 {
			for _, obj := range []client.Object{record("evil", service), slice("evil", service)} {
				must(t, c.evil.Delete(t.Context(), obj))
			}
			continue
		}
		r, s := record("evil", service), slice("evil", service)
		must(t, c.evil.Get(t.Context(), client.ObjectKeyFromObject(s), s))
		s.Annotations = nil
		must(t, c.evil.Update(t.Context(), s))
		must(t, c.evil.Get(t.Context(), client.ObjectKeyFromObject(r), r))
		r.Spec.ExportedAnnotations = nil
		must(t, c.evil.Update(t.Context(), r))
	}
	for i := range flood / 4 {
		c.west.AwaitImport(t, ns, fmt.Sprintf("s%02d", i), map[string][]string{"evil": {"10.6.6.6"}})
	}
}

// roundTrip exports a service in each honest cluster and waits until the other one has imported it.
func (c clusterset) roundTrip(t *testing.T, ns, name string) {
	t.Helper()
	for from, to := range map[*fleet.Member]*fleet.Member{c.east: c.west, c.west: c.east} {
		name, address := name+"-"+from.ID, map[string]string{"east": "10.51.0.9", "west": "10.52.0.9"}[from.ID]
		from.Serve(t, fleet.NewService(ns, name), address)
		from.Export(t, ns, name)
		to.AwaitImport(t, ns, name, map[string][]string{from.ID: {address}})
	}
}

// withdrawAll deletes what evil published in a namespace.
func (c clusterset) withdrawAll(t *testing.T, ns string) {
	for _, kind := range []client.Object{&v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}} {
		labels := client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}
		must(t, c.Admin.DeleteAllOf(context.Background(), kind, client.InNamespace(namespace), labels))
	}
}

// heap returns the bytes of the heap that are in use, the agents' included.
func heap() int {
	var stats runtime.MemStats
	for range 3 { // shared texts are freed by the collection after the last use
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
