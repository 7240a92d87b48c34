package dataplane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestDerivedServiceMakesAnImportReachable(t *testing.T) {
	east, west, north := clusterset(t)
	ns := fleet.NewNamespace(t, east, west, north)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1", "10.2.0.2")
	west.Export(t, ns, "web")
	vip := waitAllocated(t, shared, ns, "web", 1).Spec.IPs[0]

	si := waitReachable(t, east, ns, "web", 1)
	svc := waitDerived(t, east, ns, "", func(*corev1.Service) error { return nil })
	if svc.Spec.ClusterIP != si.Spec.IPs[0] || svc.Spec.ClusterIP == vip {
		t.Errorf("east's address %v is not that of its Service %s", si.Spec.IPs, svc.Spec.ClusterIP)
	}
	if len(svc.Spec.Selector) > 0 || svc.Spec.Type != corev1.ServiceTypeClusterIP || len(svc.OwnerReferences) != 0 {
		t.Errorf("derived Service: %+v owners %v", svc.Spec, svc.OwnerReferences)
	}
	items, err := east.ImportedSlices(ns, "web")
	if err != nil || len(items) != 1 || items[0].Labels[discoveryv1.LabelServiceName] != svc.Name || len(items[0].OwnerReferences) != 0 {
		t.Errorf("slices are not those of the Service: %v %v", items, err)
	}
	for _, m := range []*fleet.Member{west, north} {
		if si := waitReachable(t, m, ns, "web", 1); si.Spec.IPs[0] != vip {
			t.Errorf("%s has %v, the clusterset %s", m.ID, si.Spec.IPs, vip)
		}
		if _, err := derived(m, ns); err == nil {
			t.Errorf("%s derived a Service that its data plane does not use", m.ID)
		}
		if items, err := m.ImportedSlices(ns, "web"); err != nil || len(items) != 1 ||
			items[0].Labels[discoveryv1.LabelServiceName] != objects.UnusedServiceName("web", west.ID, m.ID) {
			t.Errorf("%s: slices %v %v", m.ID, items, err)
		}
	}
	west.Unexport(t, ns, "web")
	waitGone(t, "derived Service", func() (client.Object, error) { return derived(east, ns) })
}

func TestDerivedServiceFollowsEveryChange(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	waitReachable(t, east, ns, "web", 1)
	first := waitDerived(t, east, ns, "", func(*corev1.Service) error { return nil })
	change := func(f func(*corev1.Service)) { fleet.Update(t, west, ns, "web", &corev1.Service{}, f) }

	change(func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, fleet.Port("admin", 9000)) })
	waitDerived(t, east, ns, first.UID, func(s *corev1.Service) error {
		if len(s.Spec.Ports) != 2 || s.Spec.Ports[1].Name != "admin" || s.Spec.Ports[1].Port != 9000 {
			return fmt.Errorf("ports %v", s.Spec.Ports)
		}
		return nil
	})
	change(func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](77)}}
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameZone)
	})
	waitDerived(t, east, ns, first.UID, func(s *corev1.Service) error {
		if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 77 ||
			*s.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal ||
			ptr.Deref(s.Spec.TrafficDistribution, "") != "PreferSameZone" {
			return fmt.Errorf("spec %+v", s.Spec)
		}
		return nil
	})
	change(func(s *corev1.Service) {
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = nil, nil
	})
	last := waitDerived(t, east, ns, first.UID, func(s *corev1.Service) error {
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone ||
			*s.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster || s.Spec.TrafficDistribution != nil {
			return fmt.Errorf("spec %+v", s.Spec)
		}
		return nil
	})
	if last.Spec.ClusterIP != first.Spec.ClusterIP {
		t.Errorf("the address changed from %s to %s", first.Spec.ClusterIP, last.Spec.ClusterIP)
	}
}

func TestHintsKeepTrafficNear(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	svc := fleet.NewService(ns, "near", func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferSameNode") })
	slice := fleet.NewSlice(svc, "abc", "10.2.0.1", "10.2.0.2")
	slice.Endpoints[0].Zone, slice.Endpoints[0].NodeName = ptr.To("zone-a"), ptr.To("node-a")
	slice.Endpoints[1].Zone, slice.Endpoints[1].NodeName = ptr.To("zone-b"), ptr.To("node-b")
	west.Create(t, svc, slice)
	west.Export(t, ns, "near")
	hints := func(want string) {
		t.Helper()
		harness.Eventually(t, "hints in east", func() error {
			items, err := east.ImportedSlices(ns, "near")
			if err != nil || len(items) != 1 {
				return fmt.Errorf("%d slices: %w", len(items), err)
			}
			var got []string
			for _, e := range items[0].Endpoints {
				text := ""
				if e.Hints != nil {
					for _, z := range e.Hints.ForZones {
						text += z.Name
					}
					for _, n := range e.Hints.ForNodes {
						text += "/" + n.Name
					}
				}
				got = append(got, text)
			}
			if fmt.Sprint(got) != want {
				return fmt.Errorf("hints %v, want %s", got, want)
			}
			return nil
		})
	}
	hints("[zone-a/node-a zone-b/node-b]")
	fleet.Update(t, west, ns, "near", &corev1.Service{}, func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferClose") })
	hints("[zone-a zone-b]")
	fleet.Update(t, west, ns, "near", &corev1.Service{}, func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
	hints("[ ]")
}

func TestDerivedServiceIsRestored(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	waitReachable(t, east, ns, "web", 1)
	svc := waitDerived(t, east, ns, "", func(*corev1.Service) error { return nil })
	fleet.Update(t, east, ns, svc.Name, &corev1.Service{}, func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{"app": "other"}
		s.Spec.Ports[0].Port = 81
		s.Annotations = map[string]string{"another.example/controller": "keeps this"}
	})
	waitDerived(t, east, ns, svc.UID, func(s *corev1.Service) error {
		if len(s.Spec.Selector) > 0 || s.Spec.Ports[0].Port != 80 || s.Annotations["another.example/controller"] == "" {
			return fmt.Errorf("spec %+v, annotations %v", s.Spec, s.Annotations)
		}
		return nil
	})
	east.Delete(t, svc)
	harness.Eventually(t, "the Service is restored and the import has its address", func() error {
		restored, err := derived(east, ns)
		if err != nil {
			return err
		}
		si, err := east.Import(ns, "web")
		if err != nil || restored.UID == svc.UID || !slices.Equal(si.Spec.IPs, restored.Spec.ClusterIPs) {
			return fmt.Errorf("Service %s, ips %v: %w", restored.Spec.ClusterIP, si.Spec.IPs, err)
		}
		return nil
	})
}

func TestForeignServiceIsLeftAlone(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	foreign := fleet.NewService(ns, objects.DerivedServiceName("web"))
	east.Create(t, foreign)
	west.Serve(t, fleet.NewService(ns, "web"), "10.2.0.1")
	west.Export(t, ns, "web")
	harness.Eventually(t, "the import reports the Service in its way", func() error {
		si, err := east.Import(ns, "web")
		if err != nil || len(si.Status.Conditions) == 0 {
			return fmt.Errorf("no condition yet: %w", err)
		}
		c := si.Status.Conditions[0]
		if c.Status != metav1.ConditionFalse || c.Reason != string(v1alpha1.ServiceImportReasonDerivedServiceForeign) ||
			!strings.Contains(c.Message, "is not managed by Seamark: delete it") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	east.Delete(t, foreign)
	fleet.Update(t, west, ns, "web", &corev1.Service{},
		func(s *corev1.Service) { s.Spec.Ports[0].Port = 82 }) // any change makes the agent reconcile
	waitReachable(t, east, ns, "web", 1)
}

// After a service was headless for a while, its clusterset IP and its derived ClusterIP are the
// same as before.
func TestAddressesSurviveAHeadlessWhile(t *testing.T) {
	east, west, _ := clusterset(t)
	ns := fleet.NewNamespace(t, east, west)
	svc := fleet.NewService(ns, "web")
	west.Serve(t, svc, "10.2.0.1")
	west.Export(t, ns, "web")
	vip := waitAllocated(t, shared, ns, "web", 1).Spec.IPs[0]
	clusterIP := waitReachable(t, east, ns, "web", 1).Spec.IPs[0]
	replace := func(change ...func(*corev1.Service)) {
		t.Helper()
		if err := west.Client.Delete(context.Background(), svc); err != nil {
			t.Fatal(err)
		}
		svc = fleet.NewService(ns, "web", change...)
		west.Create(t, svc)
	}
	replace(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	harness.Eventually(t, "headless in east", func() error {
		si, err := east.Import(ns, "web")
		if err != nil || si.Spec.Type != mcsv1beta1.Headless || len(si.Spec.IPs) > 0 {
			return fmt.Errorf("%+v: %w", si.Spec, err)
		}
		return nil
	})
	replace()
	if si := waitReachable(t, east, ns, "web", 1); si.Spec.IPs[0] != clusterIP {
		t.Errorf("east's address was %s and is %v", clusterIP, si.Spec.IPs)
	}
	if si := waitReachable(t, west, ns, "web", 1); si.Spec.IPs[0] != vip {
		t.Errorf("the clusterset IP was %s and is %v", vip, si.Spec.IPs)
	}
}
