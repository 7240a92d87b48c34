package bridge_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

// The bridge writes on Lighthouse's broker what Lighthouse's agent writes. One cluster exports
// random Services, first as north with Lighthouse's agent, then as west with Seamark's agent and
// the bridge.
func TestRenderedObjectsEqualThoseOfLighthouse(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 2)
	m := newMixed(t, cps[0], cps[0], map[string]*controlplane.ControlPlane{"north": cps[1]}, map[string]*controlplane.ControlPlane{"west": cps[1]})
	ns := harness.Namespace(t, cps[1])
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 8
	total := 0
	for i := range n {
		total += createRandom(t, m.agent("north").Client, random, ns, fmt.Sprintf("svc-%d", i))
	}
	m.lighthouse.Start(t)
	var want map[string][]string
	harness.Eventually(t, "Lighthouse's agent exports all Services", func() error {
		want = m.rendered(t, "north", ns)
		if got := count(want); len(want) != n || got != total {
			return fmt.Errorf("its broker has %d objects of %d services, want %d of %d", got, len(want), total, n)
		}
		return nil
	})
	m.awaitQuiet(t)
	want = m.rendered(t, "north", ns)
	m.agent("north").Kill()
	removeLighthouse(t, m.agent("north").Client, ns, lighthouse.OperatorNamespace)
	removeLighthouse(t, m.local, lighthouse.BrokerNamespace)
	m.awaitNothing(t, ns)

	if err := m.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	m.startBridge()
	harness.Eventually(t, "the bridge writes as many objects", func() error {
		if got := count(m.rendered(t, "west", ns)); got != total {
			return fmt.Errorf("Lighthouse's broker has %d objects, want %d", got, total)
		}
		return nil
	})
	m.awaitQuiet(t)
	got := m.rendered(t, "west", ns)
	for _, service := range slices.Sorted(maps.Keys(want)) {
		slices.Sort(want[service])
		slices.Sort(got[service])
		if diff := cmp.Diff(want[service], got[service]); diff != "" {
			t.Errorf("%s differs (-Lighthouse +bridge):\n%s", service, diff)
		}
	}
}

// removeLighthouse deletes all that Lighthouse's agents wrote in namespaces, as its uninstall job
// does.
func removeLighthouse(t *testing.T, c client.Client, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		err := errors.Join(
			c.DeleteAllOf(t.Context(), &mcsv1alpha1.ServiceImport{}, client.InNamespace(ns)),
			c.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(ns), lighthouse.Slices()),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func count(objects map[string][]string) (total int) {
	for _, texts := range objects {
		total += len(texts)
	}
	return total
}

// createRandom creates a random Service with slices and its ServiceExport, and returns how many
// objects Lighthouse's broker has of it.
func createRandom(t *testing.T, c client.Client, random *rand.Rand, ns, name string) int {
	t.Helper()
	one := func() bool { return random.IntN(2) == 0 }
	svc := fleet.NewService(ns, name)
	if one() {
		svc.Spec.Ports[0].AppProtocol = ptr.To("kubernetes.io/h2c")
	}
	for i := range random.IntN(3) {
		port := fleet.Port(fmt.Sprintf("p%d", i), int32(1000+i))
		if one() {
			port.Protocol = corev1.ProtocolUDP
		}
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	if one() {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		timeout := ptr.To(int32(random.IntN(1000) + 1))
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: timeout}}
	}
	if one() {
		svc.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	}
	slicesOfService, published := 1, 1
	if random.IntN(3) == 0 {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
		slicesOfService = 1 + random.IntN(2)
		published = slicesOfService
	} else if one() {
		svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	all := []client.Object{svc}
	for i := range slicesOfService {
		s := fleet.NewSlice(svc, fmt.Sprintf("s%d", i), fmt.Sprintf("10.9.%d.1", i), fmt.Sprintf("10.9.%d.2", i))
		randomEndpoints(random, s)
		all = append(all, s)
	}
	all = append(all, &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	for _, obj := range all {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return 2 + published // the cluster's ServiceImport, the aggregate, and slices
}

func randomEndpoints(random *rand.Rand, s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if random.IntN(3) == 0 {
			e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
		}
		if random.IntN(2) == 0 {
			e.Hostname, e.NodeName, e.Zone = ptr.To(fmt.Sprintf("pod-%d", i)), ptr.To("node-1"), ptr.To("zone-a")
		} else {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: fmt.Sprintf("pod-%d", i)}
		}
	}
}
