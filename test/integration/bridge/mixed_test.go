package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// east runs Lighthouse, west Seamark. Each broker has a control plane of its own.
func TestMixedClusterset(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 4)
	m := newMixed(t, cps[0], cps[1], map[string]*controlplane.ControlPlane{"east": cps[2]}, map[string]*controlplane.ControlPlane{"west": cps[3]})
	var err error
	if m.emptySeamark, err = m.seamarkHost.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.start()
	for _, c := range []struct {
		name string
		test func(*testing.T, *mixed, string)
	}{
		{"ClusterIP services are used both ways", clusterIPBothWays},
		{"headless services are used both ways", headlessBothWays},
		{"one service of both worlds", sharedService},
		{"conflicts are decided alike", conflictsAlike},
		{"nothing is written when nothing changes", quietWhenUnchanged},
		{"either broker away", brokersAway},
		{"killed at any moment", killedAnyMoment},
		{"one of two replicas is killed", twoReplicas},
		{"Lighthouse's agents restart", lighthouseRestarts},
		{"an id that Lighthouse's agent serves", takenOnLighthouse},
		{"Seamark's broker is restored to an empty state", brokerEmptied},
		{"installed and removed by the command line", byCommand},
	} {
		passed := t.Run(c.name, func(t *testing.T) {
			m.t = t
			ns := harness.Namespace(t, cps[2], cps[3])
			c.test(t, m, ns)
			m.unexportAll(t, ns)
		})
		if !passed {
			break // the rest would fail too
		}
	}
	m.t = t
}

// headless makes a Service headless.
func headless(svc *corev1.Service) { svc.Spec.ClusterIP = corev1.ClusterIPNone }

func clusterIPBothWays(t *testing.T, m *mixed, ns string) {
	fromEast := m.exportInLighthouse(t, fleet.NewService(ns, "orders"), "10.1.0.1")
	fromWest := m.exportInSeamark(t, fleet.NewService(ns, "web"), "10.2.0.1")
	m.awaitLighthouse(t, ns, "web", fromWest.Spec.ClusterIP)
	si := m.west().AwaitImport(t, ns, "orders", map[string][]string{"east": {fromEast.Spec.ClusterIP}})
	if si.Spec.Type != mcsv1beta1.ClusterSetIP || len(si.Spec.Ports) != 1 || si.Spec.Ports[0].Port != 80 {
		t.Errorf("west imports orders as %s with ports %v, want ClusterSetIP with port 80", si.Spec.Type, si.Spec.Ports)
	}
	address := dnsprocess.Run(t, func(port string) string {
		return fmt.Sprintf("clusterset.local:%s {\n bind 127.0.0.1\n clusterset clusterset.local {\n  kubeconfig %s\n }\n}\n",
			port, m.west().CP.Kubeconfig())
	}).Address
	harness.Eventually(t, "seamark-dns of west answers with the ClusterIP in east", func() error {
		got, err := resolve(t.Context(), address, types.NamespacedName{Namespace: ns, Name: "orders"})
		if err == nil && !slices.Equal(got, []string{fromEast.Spec.ClusterIP}) {
			err = fmt.Errorf("it answers %v, want %s", got, fromEast.Spec.ClusterIP)
		}
		return err
	})

	setReady(t, m.agent("east").Client, ns, "orders", false)
	harness.Eventually(t, "west has no ready endpoint of orders", func() error { return awaitReady(t, m, ns, "orders", false) })
	setReady(t, m.agent("east").Client, ns, "orders", true)
	harness.Eventually(t, "west has a ready endpoint of orders", func() error { return awaitReady(t, m, ns, "orders", true) })
	setReady(t, m.west().Client, ns, "web", false)
	harness.Eventually(t, "east has no ready endpoint of web", func() error {
		if got, found, err := m.agent("east").Resolve(t.Context(), ns, "web"); err != nil || !found || len(got) > 0 {
			return fmt.Errorf("it resolves to %v (found: %v, %w)", got, found, err)
		}
		return nil
	})

	m.west().Unexport(t, ns, "web")
	m.unexportInLighthouse(t, ns, "orders")
	m.awaitLighthouse(t, ns, "web")
	m.west().AwaitNoImport(t, ns, "orders")
	m.awaitNothing(t, ns)
}

// setReady sets the condition of the endpoints of a Service.
func setReady(t *testing.T, c client.Client, ns, name string, ready bool) {
	t.Helper()
	s := &discoveryv1.EndpointSlice{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name + "-abc"}, s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Serving = &ready, &ready
	}
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// awaitReady returns an error unless all endpoints that west imported are ready, or none.
func awaitReady(t *testing.T, m *mixed, ns, name string, want bool) error {
	t.Helper()
	imported, err := m.west().ImportedSlices(ns, name)
	if err != nil || len(imported) == 0 {
		return fmt.Errorf("there are no slices (%w)", err)
	}
	for _, s := range imported {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) != want {
				return fmt.Errorf("%v is ready: %v", e.Addresses, !want)
			}
		}
	}
	return nil
}

func (m *mixed) unexportInLighthouse(t *testing.T, ns, name string) {
	t.Helper()
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := m.agent("east").Client.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}
}

// unexportAll ends what a test exported. Lighthouse's agent tries for ever to write what is still
// exported into a namespace that is being deleted, and other requests wait meanwhile.
func (m *mixed) unexportAll(t *testing.T, ns string) {
	t.Helper()
	err := errors.Join(
		m.agent("east").Client.DeleteAllOf(t.Context(), &mcsv1alpha1.ServiceExport{}, client.InNamespace(ns)),
		m.west().Client.DeleteAllOf(t.Context(), &mcsv1beta1.ServiceExport{}, client.InNamespace(ns)),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// awaitNothing waits until neither broker has anything of the services of a namespace.
func (m *mixed) awaitNothing(t *testing.T, ns string) {
	t.Helper()
	harness.Eventually(t, "both brokers have nothing of "+ns, func() error {
		if left := m.rendered(t, "west", ns); len(left) > 0 {
			return fmt.Errorf("Lighthouse's broker has %v", left)
		}
		for name := range m.seamarkObjects(t) {
			if strings.Contains(name, "."+ns) {
				return fmt.Errorf("Seamark's broker has %s", name)
			}
		}
		return nil
	})
}

func headlessBothWays(t *testing.T, m *mixed, ns string) {
	m.exportInLighthouse(t, fleet.NewService(ns, "db", headless), "10.1.0.1", "10.1.0.2")
	m.exportInSeamark(t, fleet.NewService(ns, "queue", headless), "10.2.0.1", "10.2.0.2")
	m.awaitLighthouse(t, ns, "queue", "10.2.0.1", "10.2.0.2")
	si := m.west().AwaitImport(t, ns, "db", map[string][]string{"east": {"10.1.0.1", "10.1.0.2"}})
	if si.Spec.Type != mcsv1beta1.Headless {
		t.Errorf("west imports db as %s, want Headless", si.Spec.Type)
	}
	changePod(t, m.agent("east").Client, ns, "db", "10.1.0.9")
	changePod(t, m.west().Client, ns, "queue", "10.2.0.9")
	m.awaitLighthouse(t, ns, "queue", "10.2.0.9", "10.2.0.2")
	m.west().AwaitImport(t, ns, "db", map[string][]string{"east": {"10.1.0.2", "10.1.0.9"}})
}

func sharedService(t *testing.T, m *mixed, ns string) {
	fromEast := m.exportInLighthouse(t, fleet.NewService(ns, "shared"), "10.1.0.1")
	m.west().AwaitImport(t, ns, "shared", map[string][]string{"east": {fromEast.Spec.ClusterIP}})
	fromWest := m.exportInSeamark(t, fleet.NewService(ns, "shared"), "10.2.0.1")
	both := []string{fromEast.Spec.ClusterIP, fromWest.Spec.ClusterIP}
	m.awaitLighthouse(t, ns, "shared", both...)
	m.west().AwaitImport(t, ns, "shared", map[string][]string{"east": both[:1], "west": both[1:]})
	m.unexportInLighthouse(t, ns, "shared")
	m.awaitLighthouse(t, ns, "shared", fromWest.Spec.ClusterIP)
	m.west().AwaitImport(t, ns, "shared", map[string][]string{"west": both[1:]})
}

func conflictsAlike(t *testing.T, m *mixed, ns string) {
	// The type of the older export, which is in east, wins on both sides.
	m.exportInLighthouse(t, fleet.NewService(ns, "kind"), "10.1.0.1")
	m.exportInLighthouse(t, fleet.NewService(ns, "ports"), "10.1.0.1")
	for _, name := range []string{"kind", "ports"} {
		harness.Eventually(t, "west imports "+name, func() error { _, err := m.west().Import(ns, name); return err })
	}
	eastIP := &corev1.Service{}
	if err := m.agent("east").Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "kind"}, eastIP); err != nil {
		t.Fatal(err)
	}
	// ServiceExports are ordered by whole seconds.
	harness.Eventually(t, "a second later", func() error {
		if age := time.Since(eastIP.CreationTimestamp.Time); age < 2*time.Second {
			return fmt.Errorf("the Service is %s old", age)
		}
		return nil
	})
	m.exportInSeamark(t, fleet.NewService(ns, "kind", headless), "10.2.0.1")
	m.exportInSeamark(t, fleet.NewService(ns, "ports", func(svc *corev1.Service) {
		svc.Spec.Ports = append(svc.Spec.Ports, fleet.Port("extra", 99))
	}), "10.2.0.1")
	for name, reason := range map[string]mcsv1beta1.ServiceExportConditionReason{
		"kind": mcsv1beta1.ServiceExportReasonTypeConflict, "ports": mcsv1beta1.ServiceExportReasonPortConflict,
	} {
		m.west().Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, reason)
		// Lighthouse looks for conflicts only when a contribution changes, and on a busy machine it has
		// missed one. It looks again when it starts.
		restart := sync.OnceFunc(func() { t.Log("restarting Lighthouse's agent"); m.agent("east").Restart(t) })
		began := time.Now()
		harness.Eventually(t, fmt.Sprintf("Lighthouse reports %s on %s in east", reason, name), func() error {
			if time.Since(began) > 15*time.Second {
				restart()
			}
			export := &mcsv1alpha1.ServiceExport{}
			if err := m.agent("east").Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name}, export); err != nil {
				return err
			}
			c := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionConflict))
			if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Reason, string(reason)) {
				return fmt.Errorf("its condition is %v", c)
			}
			return nil
		})
	}
	m.awaitLighthouse(t, ns, "kind", eastIP.Spec.ClusterIP)
	m.west().AwaitImport(t, ns, "kind", map[string][]string{"east": {eastIP.Spec.ClusterIP}})
	si := &mcsv1alpha1.ServiceImport{}
	harness.Eventually(t, "the aggregate has the ports of both clusters", func() error {
		err := m.agent("east").Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "ports"}, si)
		if err != nil || len(si.Spec.Ports) != 2 {
			return fmt.Errorf("it has %v (%w)", si.Spec.Ports, err)
		}
		return nil
	})
	for _, name := range []string{"kind", "ports"} {
		m.unexportInLighthouse(t, ns, name)
		m.west().Unexport(t, ns, name)
	}
	m.awaitNothing(t, ns)
}

// populate exports services in both clusters and waits until both brokers are quiet.
func populate(t *testing.T, m *mixed, ns string, n int) map[string]string {
	t.Helper()
	for i := range n {
		m.exportInLighthouse(t, fleet.NewService(ns, fmt.Sprintf("east-%d", i)), "10.1.0.1")
		m.exportInSeamark(t, fleet.NewService(ns, fmt.Sprintf("west-%d", i)), "10.2.0.1")
	}
	awaitPopulated(t, m, ns, n)
	return m.awaitQuiet(t)
}

func awaitPopulated(t *testing.T, m *mixed, ns string, n int) {
	t.Helper()
	for i := range n {
		east, west := &corev1.Service{}, &corev1.Service{}
		if err := m.agent("east").Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("east-%d", i)}, east); err != nil {
			t.Fatal(err)
		}
		if err := m.west().Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("west-%d", i)}, west); err != nil {
			t.Fatal(err)
		}
		m.awaitLighthouse(t, ns, west.Name, west.Spec.ClusterIP)
		m.west().AwaitImport(t, ns, east.Name, map[string][]string{"east": {east.Spec.ClusterIP}})
	}
}

// difference returns what two states of the brokers do not share.
func difference(before, after map[string]string) (out []string) {
	for name, version := range before {
		if after[name] != version {
			out = append(out, name+": "+version+" -> "+after[name])
		}
	}
	for name := range after {
		if _, existed := before[name]; !existed {
			out = append(out, name+": new")
		}
	}
	slices.Sort(out)
	return out
}

func quietWhenUnchanged(t *testing.T, m *mixed, ns string) {
	before := populate(t, m, ns, 2)
	m.killBridge()
	m.startBridge()
	m.awaitLogged(t, "read both brokers")
	if changed := difference(before, m.awaitQuiet(t)); len(changed) > 0 {
		t.Errorf("a restart of the bridge changed %v", changed)
	}
}
