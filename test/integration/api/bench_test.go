package api

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/install/policies"
)

// BenchmarkMemberWrites measures the cost of admission: a member creates a slice of 100 endpoints
// beside 0, 50 and 500 other members. "admin" is the same write by an admin, to whom the policies
// do not apply. The results are in docs/decisions/0003-broker-admission.md.
func BenchmarkMemberWrites(b *testing.B) {
	broker := newBroker(b)
	invited := 0
	write := func(b *testing.B, c client.Client, prefix string) {
		n := 0
		for b.Loop() {
			slice := broker.slice("web", "shop", "east")
			slice.Name = fmt.Sprintf("web.shop.east.%s%d", prefix, n)
			n++
			slice.Endpoints = make([]discoveryv1.Endpoint, 100)
			for i := range slice.Endpoints {
				slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.1.2.%d", i)}
			}
			if err := c.Create(b.Context(), slice, client.DryRunAll); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, others := range []int{0, 50, 500} {
		for ; invited < others; invited++ {
			id := v1alpha1.ClusterID(fmt.Sprintf("other-%d", invited))
			cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: string(id), Namespace: broker.ns}}
			broker.must(b, broker.admin.Create(b.Context(), cluster))
			if _, err := policies.Apply(b.Context(), broker.admin, policies.MemberBindings(broker.ns, id)...); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("others=%d/member", others), func(b *testing.B) { write(b, broker.as["east"], "m") })
		b.Run(fmt.Sprintf("others=%d/admin", others), func(b *testing.B) { write(b, broker.admin, "a") })
	}
}
