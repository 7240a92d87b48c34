package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/lighthouse"
)

// west moves to Seamark while east stays with Lighthouse. The bridge leaves alone what Lighthouse's
// agent of west wrote, until --take-over says that the agent has ended. In east the services of
// west have endpoints all the time.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	cps := harness.Fresh(t, 2)
	moved := lighthouse.New(t, cps[0], cps[1:], "west").Agents[0]
	m := newMixed(t, cps[0], cps[0], map[string]*controlplane.ControlPlane{"east": cps[0]}, map[string]*controlplane.ControlPlane{"west": cps[1]})
	ns := harness.Namespace(t, cps...)
	m.lighthouse.Start(t)
	moved.Start(t)
	web := exportFrom(t, moved, fleet.NewService(ns, "web"), "10.2.0.1")
	exportFrom(t, moved, fleet.NewService(ns, "queue", headless), "10.2.0.1", "10.2.0.2")
	m.awaitLighthouse(t, ns, "web", web.Spec.ClusterIP)
	m.awaitLighthouse(t, ns, "queue", "10.2.0.1", "10.2.0.2")
	gaps := m.watchGaps(t, "east", ns, "web", "queue")

	moved.Kill()
	before := m.lighthouseObjects(t)
	west := m.west()
	if err := west.Client.Create(t.Context(), &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PropertyMigration},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: string(v1alpha1.MigrationFinished)},
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	west.AwaitExported(t, ns, "web")
	west.AwaitExported(t, ns, "queue")
	m.startBridge()
	m.awaitLogged(t, "--take-over west")
	m.awaitQuiet(t)
	if changed := difference(before, m.lighthouseObjects(t)); len(changed) > 0 {
		t.Errorf("without --take-over the bridge changed %v", changed)
	}

	m.killBridge()
	m.startBridge("--take-over", "west")
	harness.Eventually(t, "all that Lighthouse's broker has of west is the bridge's", func() error { return m.allBridged(t, "west") })
	for name, version := range m.lighthouseObjects(t) {
		uid, _, _ := strings.Cut(version, " ")
		if strings.HasPrefix(name, "ServiceImport ") && !strings.HasPrefix(before[name], uid+" ") {
			t.Errorf("%s was replaced; before: %q", name, before[name])
		}
	}
	m.killBridge()
	m.startBridge() // what was taken over stays the bridge's
	changePod(t, west.Client, ns, "queue", "10.2.0.9")
	m.awaitLighthouse(t, ns, "queue", "10.2.0.9", "10.2.0.2")
	m.awaitLighthouse(t, ns, "web", web.Spec.ClusterIP)
	if found := gaps(); len(found) > 0 {
		t.Errorf("%d times east had no endpoints, first: %s", len(found), found[0])
	}
	west.Unexport(t, ns, "web")
	m.awaitLighthouse(t, ns, "web")
}

// watchGaps asks for services in a Lighthouse cluster until the returned function is called, which
// returns when there was none.
func (m *mixed) watchGaps(t *testing.T, id, ns string, names ...string) func() []string {
	t.Helper()
	agent, stop, done := m.agent(id), make(chan struct{}), make(chan []string, 1)
	go func() {
		var gaps []string
		for {
			for _, name := range names {
				got, _, err := agent.Resolve(t.Context(), ns, name)
				if err == nil && len(got) == 0 {
					gaps = append(gaps, time.Now().Format("15:04:05.000")+" "+name)
				}
			}
			select {
			case <-stop:
				done <- gaps
				return
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() []string { close(stop); return <-done }
}

// allBridged returns an error if Lighthouse's broker has an object of a cluster that no bridge
// wrote, or none at all.
func (m *mixed) allBridged(t *testing.T, id string) error {
	t.Helper()
	imports, endpoints, bridged := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}, 0
	var left []string
	for _, list := range []client.ObjectList{imports, endpoints} {
		of := client.MatchingLabels{mcsv1alpha1.LabelSourceCluster: id}
		if err := m.local.List(t.Context(), list, client.InNamespace(lighthouse.BrokerNamespace), of); err != nil {
			return err
		}
		eachItem(list, func(obj client.Object) {
			if obj.GetAnnotations()[objects.AnnotationBridge] == "" {
				left = append(left, obj.GetName())
				return
			}
			bridged++
		})
	}
	if len(left) > 0 || bridged == 0 {
		return fmt.Errorf("%d objects are the bridge's, and %v are not", bridged, left)
	}
	return nil
}

// changePod gives the first pod of a Service another address and a hostname.
func changePod(t *testing.T, c client.Client, ns, name, address string) {
	t.Helper()
	s, hostname := &discoveryv1.EndpointSlice{}, "pod-0"
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name + "-abc"}, s); err != nil {
		t.Fatal(err)
	}
	s.Endpoints[0].Addresses, s.Endpoints[0].Hostname = []string{address}, &hostname
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
