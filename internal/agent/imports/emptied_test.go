package imports

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// A cluster that is dead, and then loses its precedence, takes no service away that others serve.
func TestDeadClusterEmptiesNoService(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var records []*v1alpha1.ExportRecord
		var published []*discoveryv1.EndpointSlice
		for i, cluster := range []string{"east", "north", "west"} {
			if !rapid.Bool().Draw(rt, "exported by "+cluster) {
				continue
			}
			ports := rapid.SampledFrom([][]v1alpha1.ServicePort{
				{{Name: "http", Port: 80}}, {{Name: "http", Port: 80}, {Name: "https", Port: 443}}, {{Name: "http", Port: 8080}},
				{{Name: "web", Port: 80}, {Name: "https", Port: 443}}, {{Port: 80}},
			}).Draw(rt, "ports")
			headless := rapid.Bool().Draw(rt, "headless")
			records = append(records, record(cluster, rapid.IntRange(1, 9).Draw(rt, "age"), func(r *v1alpha1.ExportRecordSpec) {
				r.Ports = slices.Clone(ports)
				for p := range r.Ports {
					r.Ports[p].Protocol = corev1.ProtocolTCP
				}
				if headless {
					r.Type = mcsv1beta1.Headless
				}
			}))
			s := slice(cluster, "s")
			s.Ports = nil
			for _, p := range ports {
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: ptr.To(corev1.ProtocolTCP), Port: &p.Port})
			}
			for e := range rapid.IntRange(0, 2).Draw(rt, "endpoints") {
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", i, e+1)},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(rapid.Bool().Draw(rt, "ready"))}})
			}
			published = append(published, s)
		}
		copies := func() (out []*discoveryv1.EndpointSlice) {
			for _, s := range published {
				out = append(out, s.DeepCopy())
			}
			return out
		}
		before := Decide(input(records, copies()...))
		dead := map[string]bool{"east": true}
		stale := input(records, copies()...)
		stale.Existing, stale.Stale = before.Import, dead
		during := Decide(stale)
		demoted := input(records, copies()...)
		demoted.Existing, demoted.Stale, demoted.Demoted = during.Import, dead, dead
		for name, plan := range map[string]Plan{"dead": during, "demoted": Decide(demoted)} {
			if serves(before) && !serves(plan) {
				rt.Errorf("%s: before %+v\n%+v\nthen %+v\n%+v", name, before.Import.Spec, before.Slices, plan.Import.Spec, plan.Slices)
			}
		}
	})
}

// serves reports whether a client of the service can connect to a port of it.
func serves(plan Plan) bool {
	return slices.ContainsFunc(plan.Slices, func(s *discoveryv1.EndpointSlice) bool { return len(s.Ports) > 0 && reachable.HasReadyEndpoint(s) })
}
