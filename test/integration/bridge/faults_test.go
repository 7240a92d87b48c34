package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

// awaitLogged waits until the bridge that runs now has logged a text.
func (m *mixed) awaitLogged(t *testing.T, text string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("the bridge logs %q", text), func() error {
		log, err := os.ReadFile(m.bridgeLog())
		if err != nil {
			return err
		}
		if !strings.Contains(string(log[m.logged:]), text) {
			return errors.New("it has not")
		}
		return nil
	})
}

func brokersAway(t *testing.T, m *mixed, ns string) {
	before := populate(t, m, ns, 2)
	for i, c := range []struct {
		away *controlplane.ControlPlane
	}{{m.lighthouseHost}, {m.seamarkHost}} {
		c.away.CutOff()
		eastName, westName := fmt.Sprintf("new-east-%d", i), fmt.Sprintf("new-west-%d", i)
		m.exportInLighthouse(t, fleet.NewService(ns, eastName), "10.1.0.1")
		m.exportInSeamark(t, fleet.NewService(ns, westName), "10.2.0.1")
		m.killBridge() // it starts although a broker is away
		m.startBridge()
		harness.Consistently(t, "nothing is withdrawn while a broker is away", 3*time.Second, func() error { return m.stillThere(t, c.away, before) })
		c.away.Reconnect()
		for _, s := range []struct {
			client client.Client
			name   string
		}{{m.agent("east").Client, eastName}, {m.west().Client, westName}} {
			svc := &corev1.Service{}
			if err := s.client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: s.name}, svc); err != nil {
				t.Fatal(err)
			}
			if s.name == westName {
				m.awaitLighthouse(t, ns, s.name, svc.Spec.ClusterIP)
			} else {
				m.west().AwaitImport(t, ns, s.name, map[string][]string{"east": {svc.Spec.ClusterIP}})
			}
		}
		before = m.awaitQuiet(t)
	}
}

// stillThere returns an error if the broker that is not away lacks an object that it had.
func (m *mixed) stillThere(t *testing.T, away *controlplane.ControlPlane, before map[string]string) error {
	t.Helper()
	now := map[string]string{}
	if away == m.lighthouseHost {
		for name, version := range m.seamarkObjects(t) {
			now["Seamark: "+name] = version
		}
	} else {
		now = m.lighthouseObjects(t)
	}
	for name := range before {
		if strings.HasPrefix(name, "Seamark: ") != (away == m.lighthouseHost) {
			continue
		}
		if _, exists := now[name]; !exists {
			return fmt.Errorf("%s is gone", name)
		}
	}
	return nil
}

func killedAnyMoment(t *testing.T, m *mixed, ns string) {
	const n = 4
	for i := range n {
		m.exportInLighthouse(t, fleet.NewService(ns, fmt.Sprintf("east-%d", i)), "10.1.0.1")
		m.exportInSeamark(t, fleet.NewService(ns, fmt.Sprintf("west-%d", i)), "10.2.0.1")
		time.Sleep(time.Duration(37*(i+1)) * time.Millisecond) // another moment each time
		m.killBridge()
		m.startBridge()
	}
	awaitPopulated(t, m, ns, n)
	m.awaitQuiet(t)
	imports := &mcsv1alpha1.ServiceImportList{}
	err := m.local.List(t.Context(), imports, client.InNamespace(lighthouse.BrokerNamespace),
		client.MatchingLabels{"lighthouse.submariner.io/sourceNamespace": ns})
	if err != nil || len(imports.Items) != 2*n {
		t.Errorf("Lighthouse's broker has %d ServiceImports of single clusters, want %d (%v)", len(imports.Items), 2*n, err)
	}
	for i := range n {
		m.west().Unexport(t, ns, fmt.Sprintf("west-%d", i))
		m.unexportInLighthouse(t, ns, fmt.Sprintf("east-%d", i))
		time.Sleep(time.Duration(23*(i+1)) * time.Millisecond)
		m.killBridge()
		m.startBridge("--withdrawal-hold=1s") // it may not have seen the deletions
	}
	m.awaitNothing(t, ns)
	m.killBridge()
	m.startBridge()
}

func lighthouseRestarts(t *testing.T, m *mixed, ns string) {
	before := populate(t, m, ns, 2)
	m.agent("east").Restart(t)
	after := m.awaitQuiet(t)
	for name := range before {
		if _, exists := after[name]; !exists {
			t.Errorf("%s is gone after a restart of Lighthouse's agent", name)
		}
	}
	awaitPopulated(t, m, ns, 2)
}

func takenOnLighthouse(t *testing.T, m *mixed, ns string) {
	populate(t, m, ns, 1)
	foreign := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lighthouse.BrokerNamespace, GenerateName: "other-",
			Labels: map[string]string{
				mcsv1alpha1.LabelServiceName: "other", "lighthouse.submariner.io/sourceNamespace": ns, mcsv1alpha1.LabelSourceCluster: "west",
			},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{}},
	}
	if err := m.local.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	m.awaitLogged(t, "--take-over west")
	svc := m.exportInSeamark(t, fleet.NewService(ns, "late"), "10.2.0.1")
	m.west().AwaitExported(t, ns, "late")
	harness.Consistently(t, "the bridge writes nothing for west", time.Second, func() error {
		if got := m.rendered(t, "west", ns)["late"]; len(got) > 0 {
			return fmt.Errorf("Lighthouse's broker has %v", got)
		}
		return nil
	})
	if err := m.local.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	m.awaitLighthouse(t, ns, "late", svc.Spec.ClusterIP)
}

// The bridge keeps what it wrote on Lighthouse's broker when Seamark's lost it, and publishes what
// Seamark's broker lost of Lighthouse's clusters.
func brokerEmptied(t *testing.T, m *mixed, ns string) {
	before := populate(t, m, ns, 4)
	m.west().Stop() // it would publish everything again
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := m.emptySeamark(ctx); err != nil {
		t.Fatal(err)
	}
	m.awaitLogged(t, "holding a withdrawal")
	if err := m.stillThere(t, m.seamarkHost, before); err != nil {
		t.Error(err)
	}
	if err := m.west().Start(); err != nil {
		t.Fatal(err)
	}
	awaitPopulated(t, m, ns, 4)
	if err := m.stillThere(t, m.seamarkHost, before); err != nil {
		t.Error(err)
	}
}
