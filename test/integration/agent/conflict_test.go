package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// awaitNextSecond waits until an export created now is newer than an existing one: creation
// timestamps have whole seconds.
func awaitNextSecond(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	export := &mcsv1beta1.ServiceExport{}
	if err := m.Client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, export); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the next second", func() error {
		if !time.Now().Truncate(time.Second).After(export.CreationTimestamp.Time) {
			return fmt.Errorf("still the same second")
		}
		return nil
	})
}

// awaitConflict waits until the exports of all members have the conflict, and checks that each
// message has all the parts.
func awaitConflict(
	t *testing.T, members []*fleet.Member, ns, name string, reason mcsv1beta1.ServiceExportConditionReason, parts ...string,
) {
	t.Helper()
	for _, m := range members {
		c := m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, reason)
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				t.Errorf("%s: %q is missing in the message %q", m.ID, part, c.Message)
			}
		}
	}
}

func awaitNoConflict(t *testing.T, members []*fleet.Member, ns, name string) {
	t.Helper()
	for _, m := range members {
		m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts)
	}
}

// Each kind of conflict is reported on the exports of all clusters and names the cluster with
// precedence and the one that differs. Here the latter resolves it.
func TestConflictsAreReportedAndClearedByTheLoser(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	for reason := range fleet.Conflicts {
		east.Serve(t, fleet.NewService(ns, serviceFor(reason)), "10.1.0.1")
		east.Export(t, ns, serviceFor(reason))
	}
	awaitNextSecond(t, east, ns, serviceFor(mcsv1beta1.ServiceExportReasonLabelsConflict))
	for reason, kind := range fleet.Conflicts {
		west.Serve(t, fleet.NewService(ns, serviceFor(reason), orNoChange(kind.Service)), "10.2.0.1")
		west.Export(t, ns, serviceFor(reason), orNoChange(kind.Export))
	}
	for reason := range fleet.Conflicts {
		awaitConflict(t, f.Members[:2], ns, serviceFor(reason), reason, "east", "west")
	}
	for reason := range fleet.Conflicts {
		if reason == mcsv1beta1.ServiceExportReasonTypeConflict || reason == v1alpha1.ServiceExportReasonClusterSetIPConflict {
			west.Unexport(t, ns, serviceFor(reason))
			awaitNoConflict(t, f.Members[:1], ns, serviceFor(reason))
			continue
		}
		fleet.Update(t, west, ns, serviceFor(reason), &corev1.Service{}, func(s *corev1.Service) {
			plain := fleet.NewService(ns, serviceFor(reason)).Spec
			s.Spec.Ports, s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = plain.Ports, "None", nil
			s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = nil, nil
		})
		fleet.Update(t, west, ns, serviceFor(reason), &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) {
			e.Spec = mcsv1beta1.ServiceExportSpec{}
		})
		awaitNoConflict(t, f.Members[:2], ns, serviceFor(reason))
	}
	awaitEvent(t, west, ns, serviceFor(mcsv1beta1.ServiceExportReasonPortConflict), "PortConflict")
	awaitEvent(t, west, ns, serviceFor(mcsv1beta1.ServiceExportReasonPortConflict), "NoConflicts")
}

// Lesson: a type conflict stayed for ever after the cluster with precedence unexported, because the
// other export was never evaluated again.
func TestLoserTakesOverWhenTheWinnerUnexports(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	east.Serve(t, fleet.NewService(ns, "db"), "10.1.0.1")
	east.Export(t, ns, "db")
	east.AwaitExported(t, ns, "db")
	awaitNextSecond(t, east, ns, "db")
	west.Serve(t, fleet.NewService(ns, "db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), "10.2.0.1")
	west.Export(t, ns, "db")
	awaitConflict(t, f.Members[:2], ns, "db", mcsv1beta1.ServiceExportReasonTypeConflict)
	// The cluster with the other type is not exported, and its export says so.
	west.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonTypeConflict)
	west.Awaits(t, ns, "db", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid)
	if si := north.AwaitImport(t, ns, "db", map[string][]string{"east": {"10.1.0.1"}}); si.Spec.Type != mcsv1beta1.ClusterSetIP {
		t.Errorf("type %s", si.Spec.Type)
	}
	awaitAggregate(t, f, ns, "db", "east")
	east.Unexport(t, ns, "db")
	awaitNoConflict(t, f.Members[1:2], ns, "db")
	west.AwaitExported(t, ns, "db")
	harness.Eventually(t, "the type of the remaining export", func() error {
		si, err := north.Import(ns, "db")
		if err != nil || si.Spec.Type != mcsv1beta1.Headless {
			return fmt.Errorf("type %s %w", si.Spec.Type, err)
		}
		return north.CheckAddresses(ns, "db", map[string][]string{"west": {"10.2.0.1"}})
	})
	awaitAggregate(t, f, ns, "db", "west")
}

func TestThreeWayConflictsNameAllClusters(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	for i, m := range f.Members {
		m.Serve(t, fleet.NewService(ns, "web", func(s *corev1.Service) {
			s.Spec.Ports[0].Port = int32(80 + i)
			if i > 0 {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}
		}), fmt.Sprintf("10.%d.0.1", i+1))
		m.Export(t, ns, "web")
		m.AwaitExported(t, ns, "web")
		awaitNextSecond(t, m, ns, "web")
	}
	awaitConflict(t, f.Members, ns, "web", "PortConflict,SessionAffinityConflict", "east", "west", "north")
	// Ports without precedence get no traffic: they are not in the imported slices.
	for _, m := range f.Members {
		m.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}, "north": {"10.3.0.1"}, "west": {"10.2.0.1"}})
		items, err := m.ImportedSlices(ns, "web")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range items {
			if source := s.Labels[mcsv1beta1.LabelSourceCluster]; (source == "east") != (len(s.Ports) == 1) {
				t.Errorf("%s: the slice of %s has the ports %v", m.ID, source, s.Ports)
			}
		}
	}
	for _, m := range f.Members[1:] {
		m.Unexport(t, ns, "web")
	}
	awaitNoConflict(t, f.Members[:1], ns, "web")
}

// Lesson: ports in another order were reported as a conflict.
func TestOrderOfPortsIsNoConflict(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	ports := []corev1.ServicePort{fleet.Port("http", 80), fleet.Port("https", 443)}
	f.Members[0].Serve(t, fleet.NewService(ns, "web", func(s *corev1.Service) { s.Spec.Ports = ports }), "10.1.0.1")
	f.Members[1].Serve(t, fleet.NewService(ns, "web", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{ports[1], ports[0]}
	}), "10.2.0.1")
	f.Members[0].Export(t, ns, "web")
	f.Members[1].Export(t, ns, "web")
	f.Members[2].AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}})
	awaitNoConflict(t, f.Members[:2], ns, "web")
}

// Lesson: an export without a Service prevented that cluster from importing the service from
// others.
func TestExportWithoutServiceStillImports(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	west.Export(t, ns, "web")
	west.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	west.AwaitImport(t, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	awaitNoConflict(t, f.Members[:1], ns, "web")
}

// serviceFor returns the name of the service whose exports have this conflict.
func serviceFor(reason mcsv1beta1.ServiceExportConditionReason) string {
	return strings.ToLower(string(reason))
}

// orNoChange returns a function that changes nothing in place of nil.
func orNoChange[T any](change func(T)) func(T) {
	if change == nil {
		return func(T) {}
	}
	return change
}

func awaitEvent(t *testing.T, m *fleet.Member, ns, name, reason string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("event %s of %s/%s in %s", reason, ns, name, m.ID), func() error {
		var list eventsv1.EventList
		if err := m.Client.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	})
}

// The cluster with precedence can resolve a conflict as well: then the imported service changes.
func TestConflictsAreClearedByTheWinner(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	sticky := func(seconds int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(seconds)}}
		}
	}
	kinds := map[mcsv1beta1.ServiceExportConditionReason]struct{ winner, loser func(*corev1.Service) }{
		mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict: {sticky(60), sticky(90)},
	}
	for reason, kind := range fleet.Conflicts {
		if kind.Service != nil && reason != mcsv1beta1.ServiceExportReasonTypeConflict { // a Service does not change its type in place
			kinds[reason] = struct{ winner, loser func(*corev1.Service) }{func(*corev1.Service) {}, kind.Service}
		}
	}
	for reason, kind := range kinds {
		east.Serve(t, fleet.NewService(ns, serviceFor(reason), kind.winner), "10.1.0.1")
		east.Export(t, ns, serviceFor(reason))
	}
	awaitNextSecond(t, east, ns, serviceFor(mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict))
	for reason, kind := range kinds {
		west.Serve(t, fleet.NewService(ns, serviceFor(reason), kind.loser), "10.2.0.1")
		west.Export(t, ns, serviceFor(reason))
	}
	for reason, kind := range kinds {
		awaitConflict(t, f.Members[:2], ns, serviceFor(reason), reason, "east", "west")
		fleet.Update(t, east, ns, serviceFor(reason), &corev1.Service{}, kind.loser)
		awaitNoConflict(t, f.Members[:2], ns, serviceFor(reason))
	}
}
