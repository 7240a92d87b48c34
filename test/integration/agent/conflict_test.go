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

// newer waits until a new export is younger than one made before: creation times have whole seconds.
func newer(t *testing.T, m *fleet.Member, ns, name string) {
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

func conflict(t *testing.T, members []*fleet.Member, ns, name string, reason mcsv1beta1.ServiceExportConditionReason, says ...string) {
	t.Helper()
	for _, m := range members {
		c := m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, reason)
		for _, text := range says {
			if !strings.Contains(c.Message, text) {
				t.Errorf("%s: the message does not say %q: %s", m.ID, text, c.Message)
			}
		}
	}
}

func noConflict(t *testing.T, members []*fleet.Member, ns, name string) {
	t.Helper()
	for _, m := range members {
		m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoConflicts)
	}
}

// conflictKinds are ways to disagree with a plain Service, and what is said then.
var conflictKinds = map[mcsv1beta1.ServiceExportConditionReason]struct {
	service func(*corev1.Service)
	export  func(*mcsv1beta1.ServiceExport)
}{
	mcsv1beta1.ServiceExportReasonPortConflict:            {service: func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }},
	mcsv1beta1.ServiceExportReasonTypeConflict:            {service: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
	mcsv1beta1.ServiceExportReasonSessionAffinityConflict: {service: func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
	mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict: {service: func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}},
	mcsv1beta1.ServiceExportReasonTrafficDistributionConflict: {service: func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferSameZone") }},
	mcsv1beta1.ServiceExportReasonLabelsConflict:              {export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"a": "b"} }},
	mcsv1beta1.ServiceExportReasonAnnotationsConflict:         {export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedAnnotations = map[string]string{"a": "b"} }},
	"ClusterSetIPConflict": {export: func(e *mcsv1beta1.ServiceExport) {
		e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
	}},
}

// Each kind of conflict is told on every constituent and names winner and loser. It is cleared by the loser giving in here, by
// the winner unexporting in the next test.
func TestConflictsAreToldAndClearedByTheLoser(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	for reason := range conflictKinds {
		east.Serve(t, fleet.NewService(ns, name(reason)), "10.1.0.1")
		east.Export(t, ns, name(reason))
	}
	newer(t, east, ns, name(mcsv1beta1.ServiceExportReasonLabelsConflict))
	for reason, kind := range conflictKinds {
		west.Serve(t, fleet.NewService(ns, name(reason), orNothing(kind.service)), "10.2.0.1")
		west.Export(t, ns, name(reason), orNothing(kind.export))
	}
	for reason := range conflictKinds {
		conflict(t, f.Members[:2], ns, name(reason), reason, "east", "west")
	}
	for reason := range conflictKinds {
		if reason == mcsv1beta1.ServiceExportReasonTypeConflict || reason == "ClusterSetIPConflict" {
			west.Unexport(t, ns, name(reason))
			noConflict(t, f.Members[:1], ns, name(reason))
			continue
		}
		fleet.Update(t, west, ns, name(reason), &corev1.Service{}, func(s *corev1.Service) {
			plain := fleet.NewService(ns, name(reason)).Spec
			s.Spec.Ports, s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = plain.Ports, "None", nil
			s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = nil, nil
		})
		fleet.Update(t, west, ns, name(reason), &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) { e.Spec = mcsv1beta1.ServiceExportSpec{} })
		noConflict(t, f.Members[:2], ns, name(reason))
	}
	eventSeen(t, west, ns, name(mcsv1beta1.ServiceExportReasonPortConflict), "PortConflict")
	eventSeen(t, west, ns, name(mcsv1beta1.ServiceExportReasonPortConflict), "NoConflicts")
}

// Lesson: a type conflict stuck for ever after the winning cluster unexported: the loser was never re-evaluated.
func TestLoserTakesOverWhenTheWinnerUnexports(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west, north := f.Members[0], f.Members[1], f.Members[2]
	east.Serve(t, fleet.NewService(ns, "db"), "10.1.0.1")
	east.Export(t, ns, "db")
	exportedAndReady(t, east, ns, "db")
	newer(t, east, ns, "db")
	west.Serve(t, fleet.NewService(ns, "db", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), "10.2.0.1")
	west.Export(t, ns, "db")
	conflict(t, f.Members[:2], ns, "db", mcsv1beta1.ServiceExportReasonTypeConflict)
	// The cluster of the other type is left out.
	if si := imported(t, north, ns, "db", map[string][]string{"east": {"10.1.0.1"}}); si.Spec.Type != mcsv1beta1.ClusterSetIP {
		t.Errorf("type %s", si.Spec.Type)
	}
	aggregated(t, f, ns, "db", "east")
	east.Unexport(t, ns, "db")
	noConflict(t, f.Members[1:2], ns, "db")
	harness.Eventually(t, "the loser's type", func() error {
		si, err := north.Import(ns, "db")
		if err != nil || si.Spec.Type != mcsv1beta1.Headless {
			return fmt.Errorf("type %s %w", si.Spec.Type, err)
		}
		return sameAddresses(north, ns, "db", map[string][]string{"west": {"10.2.0.1"}})
	})
	aggregated(t, f, ns, "db", "west")
}

func TestThreeWayConflictsNameEverybody(t *testing.T) {
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
		exportedAndReady(t, m, ns, "web")
		newer(t, m, ns, "web")
	}
	conflict(t, f.Members, ns, "web", "PortConflict,SessionAffinityConflict", "east", "west", "north")
	// Ports that lost get no traffic: their slices do not carry them.
	for _, m := range f.Members {
		imported(t, m, ns, "web", map[string][]string{"east": {"10.1.0.1"}, "north": {"10.3.0.1"}, "west": {"10.2.0.1"}})
		items, err := m.ImportedSlices(ns, "web")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range items {
			if source := s.Labels[mcsv1beta1.LabelSourceCluster]; (source == "east") != (len(s.Ports) == 1) {
				t.Errorf("%s: the slice of %s carries ports %v", m.ID, source, s.Ports)
			}
		}
	}
	for _, m := range f.Members[1:] {
		m.Unexport(t, ns, "web")
	}
	noConflict(t, f.Members[:1], ns, "web")
}

// Lesson: ports in another order counted as a conflict.
func TestOrderOfPortsIsNoConflict(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	ports := []corev1.ServicePort{fleet.Port("http", 80), fleet.Port("https", 443)}
	f.Members[0].Serve(t, fleet.NewService(ns, "web", func(s *corev1.Service) { s.Spec.Ports = ports }), "10.1.0.1")
	f.Members[1].Serve(t, fleet.NewService(ns, "web", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{ports[1], ports[0]} }), "10.2.0.1")
	f.Members[0].Export(t, ns, "web")
	f.Members[1].Export(t, ns, "web")
	imported(t, f.Members[2], ns, "web", map[string][]string{"east": {"10.1.0.1"}, "west": {"10.2.0.1"}})
	noConflict(t, f.Members[:2], ns, "web")
}

// Lesson: a local export without a Service stopped that cluster from importing the service from the others.
func TestExportWithoutServiceStillImports(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	east, west := f.Members[0], f.Members[1]
	west.Export(t, ns, "web")
	west.Awaits(t, ns, "web", mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, mcsv1beta1.ServiceExportReasonNoService)
	east.Serve(t, fleet.NewService(ns, "web"), "10.1.0.1")
	east.Export(t, ns, "web")
	imported(t, west, ns, "web", map[string][]string{"east": {"10.1.0.1"}})
	noConflict(t, f.Members[:1], ns, "web")
}

func name(reason mcsv1beta1.ServiceExportConditionReason) string {
	return strings.ToLower(string(reason))
}

func orNothing[T any](change func(T)) func(T) {
	if change == nil {
		return func(T) {}
	}
	return change
}

func eventSeen(t *testing.T, m *fleet.Member, ns, name, reason string) {
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

// The winner may give in as well: then the service changes, and nobody disagrees any more.
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
	for reason, kind := range conflictKinds {
		if kind.service != nil && reason != mcsv1beta1.ServiceExportReasonTypeConflict { // a Service does not change its type in place
			kinds[reason] = struct{ winner, loser func(*corev1.Service) }{func(*corev1.Service) {}, kind.service}
		}
	}
	for reason, kind := range kinds {
		east.Serve(t, fleet.NewService(ns, name(reason), kind.winner), "10.1.0.1")
		east.Export(t, ns, name(reason))
	}
	newer(t, east, ns, name(mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict))
	for reason, kind := range kinds {
		west.Serve(t, fleet.NewService(ns, name(reason), kind.loser), "10.2.0.1")
		west.Export(t, ns, name(reason))
	}
	for reason, kind := range kinds {
		conflict(t, f.Members[:2], ns, name(reason), reason, "east", "west")
		fleet.Update(t, east, ns, name(reason), &corev1.Service{}, kind.loser)
		noConflict(t, f.Members[:2], ns, name(reason))
	}
}
