package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// Lesson: two services whose joined names are equal (c/a-b, b-c/a) overwrote each other on the hub.
func TestNamesThatJoinToTheSame(t *testing.T) {
	f := clusterset(t)
	base := fleet.NewNamespace(t)
	first, second := base+"-c", base // service x-y in base-c … and x in …: joined with dashes all would be equal
	east, west := f.Members[0], f.Members[1]
	for _, m := range f.Members {
		m.Namespace(t, first)
		m.Namespace(t, second)
	}
	east.Serve(t, fleet.NewService(first, "a"), "10.1.0.1")
	east.Serve(t, fleet.NewService(second, "c-a"), "10.1.0.2")
	east.Serve(t, fleet.NewService(second, "a"), "10.1.0.3")
	east.Export(t, first, "a")
	east.Export(t, second, "c-a")
	east.Export(t, second, "a")
	imported(t, west, first, "a", map[string][]string{"east": {"10.1.0.1"}})
	imported(t, west, second, "c-a", map[string][]string{"east": {"10.1.0.2"}})
	imported(t, west, second, "a", map[string][]string{"east": {"10.1.0.3"}})
	east.Unexport(t, second, "a")
	notImported(t, west, second, "a")
	imported(t, west, first, "a", map[string][]string{"east": {"10.1.0.1"}})
}

func TestNamespaceCreatedLater(t *testing.T) {
	f := clusterset(t)
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	exportedAndReady(t, east, ns, "web")
	imported(t, east, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	west.Namespace(t, ns)
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
}

func TestExcludedNamespaces(t *testing.T) {
	f := clusterset(t)
	east := f.Members[0]
	service := "t" + fleet.NewNamespace(t)[1:]
	east.Serve(t, fleet.NewService(metav1.NamespaceSystem, service), "10.1.0.1")
	east.Export(t, metav1.NamespaceSystem, service)
	east.Awaits(t, metav1.NamespaceSystem, service, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, v1alpha1.ServiceExportReasonNamespaceNotAllowed)
	nothingOnBroker(t, f, metav1.NamespaceSystem)
}

// A pod change moves one slice and nothing else.
func TestEndpointChangesMoveOneSlice(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	svc := fleet.NewService(ns, "big")
	east.Create(t, svc)
	for i := range 5 {
		east.Create(t, fleet.NewSlice(svc, fmt.Sprint(i), fmt.Sprintf("10.1.%d.1", i)))
	}
	east.Export(t, ns, "big")
	imported(t, west, ns, "big", map[string][]string{"east": {"10.1.0.1", "10.1.1.1", "10.1.2.1", "10.1.3.1", "10.1.4.1"}})
	settled(t, west, ns, "big")
	before := versions(t, west, ns, "big")
	fleet.Update(t, east, ns, "big-3", &discoveryv1.EndpointSlice{}, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints[0].Conditions.Ready = ptr.To(false)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.3.2"}})
	})
	imported(t, west, ns, "big", map[string][]string{"east": {"10.1.0.1", "10.1.1.1", "10.1.2.1", "10.1.3.1", "10.1.3.2", "10.1.4.1"}})
	changed := 0
	for name, version := range versions(t, west, ns, "big") {
		if before[name] != version {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("%d objects were written for one changed slice", changed)
	}
	east.Delete(t, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "big-0"}})
	imported(t, west, ns, "big", map[string][]string{"east": {"10.1.1.1", "10.1.2.1", "10.1.3.1", "10.1.3.2", "10.1.4.1"}})
}

// The properties of a Service may all change while it is exported.
func TestChangesOfAnExportedService(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	first := imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	fleet.Update(t, east, ns, "web", &corev1.Service{}, func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, fleet.Port("https", 443))
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	fleet.Update(t, east, ns, "web", &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
		e.Spec.ExportedLabels = map[string]string{"colour": "blue"}
	})
	harness.Eventually(t, "ports, affinity and labels", func() error {
		si, err := west.Import(ns, "web")
		if err != nil {
			return err
		}
		if len(si.Spec.Ports) != 2 || si.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || si.Labels["colour"] != "blue" {
			return fmt.Errorf("%+v %v", si.Spec, si.Labels)
		}
		if si.UID != first.UID {
			t.Fatal("the ServiceImport was recreated")
		}
		return nil
	})
	fleet.Update(t, east, ns, "web", &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = nil })
	harness.Eventually(t, "the label gone", func() error {
		si, err := west.Import(ns, "web")
		if err != nil || si.Labels["colour"] != "" {
			return fmt.Errorf("%v %w", si.Labels, err)
		}
		return nil
	})
}

// Lesson: headless ↔ ClusterIP flips deleted and recreated the import: a gap, and a new VIP.
func TestTypeFlipKeepsTheImport(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	first := imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	uid := first.UID
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			si, err := west.Import(ns, "web")
			if err != nil || si.UID != uid {
				watched <- fmt.Errorf("the import went away, uid %s: %w", si.UID, err)
				return
			}
		}
		watched <- nil
	}()
	// A ClusterIP Service cannot become headless in place: it is deleted and made anew, within one breath.
	east.Delete(t, fleet.NewService(ns, "web"))
	east.Create(t, fleet.NewService(ns, "web", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }))
	harness.Eventually(t, "headless", func() error {
		si, err := west.Import(ns, "web")
		if err != nil || si.Spec.Type != mcsv1beta1.Headless {
			return fmt.Errorf("type %s %w", si.Spec.Type, err)
		}
		return nil
	})
	cancel()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}

func TestExportDeletedAndMadeAgain(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	for range 3 {
		east.Export(t, ns, "web")
		imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
		east.Unexport(t, ns, "web")
	}
	east.Export(t, ns, "web")
	exportedAndReady(t, east, ns, "web")
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	aggregated(t, f, ns, "web", "east")
}

// Spec 1: a ServiceImport exists as long as at least one cluster exports the service.
func TestImportLivesAsLongAsAnyExport(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	for i, m := range f.Members[:2] {
		m.Serve(t, fleet.NewService(ns, "web"), fmt.Sprintf("10.%d.0.1", i+1))
		m.Export(t, ns, "web")
	}
	si := imported(t, f.Members[2], ns, "web", map[string][]string{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}})
	aggregated(t, f, ns, "web", "east", "west")
	f.Members[0].Unexport(t, ns, "web")
	after := imported(t, f.Members[2], ns, "web", map[string][]string{"west": {"10.2.0.1"}})
	if after.UID != si.UID {
		t.Error("the import was recreated")
	}
	aggregated(t, f, ns, "web", "west")
	f.Members[1].Unexport(t, ns, "web")
	for _, m := range f.Members {
		notImported(t, m, ns, "web")
	}
	nothingOnBroker(t, f, ns)
}

// A local Service of the same name that is not exported has no part in the import.
func TestLocalServiceOfTheSameNameIsLeftAlone(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	local := fleet.NewService(ns, "web")
	west.Serve(t, local, "10.2.0.1")
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	after := &corev1.Service{}
	if err := west.Client.Get(context.Background(), client.ObjectKeyFromObject(local), after); err != nil || after.ResourceVersion != local.ResourceVersion {
		t.Errorf("the local Service was touched: %v", err)
	}
}

// versions are the resourceVersions of a member's import and slices.
func versions(t *testing.T, m *fleet.Member, ns, name string) map[string]string {
	t.Helper()
	si, err := m.Import(ns, name)
	if err != nil {
		t.Fatal(err)
	}
	items, err := m.ImportedSlices(ns, name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"import": si.ResourceVersion}
	for _, s := range items {
		out[s.Name] = s.ResourceVersion
	}
	return out
}

// settled waits until nothing has been written about an import for a while.
func settled(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	last, since := "", time.Now()
	harness.Eventually(t, "quiet", func() error {
		if now := fmt.Sprint(versions(t, m, ns, name)); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("still changing")
		}
		return nil
	})
}
