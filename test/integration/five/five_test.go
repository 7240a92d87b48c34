// Package five_test has five exporters disagree about one service, in every way there is.
package five_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const ns = "five"

// kinds are the ways to disagree, and how a loser gives in; nil where only unexporting helps.
var kinds = map[string]struct {
	service func(*corev1.Service)
	export  func(*mcsv1beta1.ServiceExport)
	giveIn  func(*corev1.Service)
}{
	"PortConflict":            {service: func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }, giveIn: func(s *corev1.Service) { s.Spec.Ports[0].Port = 80 }},
	"TypeConflict":            {service: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
	"SessionAffinityConflict": {service: func(s *corev1.Service) { s.Spec.SessionAffinity = "ClientIP" }, giveIn: func(s *corev1.Service) { s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = "None", nil }},
	"InternalTrafficPolicyConflict": {service: func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}, giveIn: func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = nil }},
	"TrafficDistributionConflict": {service: func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferSameZone") }, giveIn: func(s *corev1.Service) { s.Spec.TrafficDistribution = nil }},
	"LabelsConflict":              {export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"a": "b"} }},
	"AnnotationsConflict":         {export: func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedAnnotations = map[string]string{"a": "b"} }},
	"ClusterSetIPConflict": {export: func(e *mcsv1beta1.ServiceExport) {
		e.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
	}},
}

// Three agree, the two newest disagree; the conflict is told on all five and names exactly the winner and the two. It goes when
// the two give in, or unexport.
func TestFiveExporters(t *testing.T) {
	cps := harness.Clusters(t, 5)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	agree, disagree := f.Members[:3], f.Members[3:]
	for i, m := range f.Members {
		m.Namespace(t, ns)
		if i == 1 || i == 3 {
			nextSecond() // the first is the oldest of all, and the last two are the newest
		}
		for reason, kind := range kinds {
			svc := fleet.NewService(ns, strings.ToLower(reason))
			if i >= 3 && kind.service != nil {
				kind.service(svc)
			}
			m.Serve(t, svc, fmt.Sprintf("10.%d.0.1", i+1))
			m.Export(t, ns, svc.Name, func(e *mcsv1beta1.ServiceExport) {
				if i >= 3 && kind.export != nil {
					kind.export(e)
				}
			})
		}
	}
	for reason := range kinds {
		for _, m := range f.Members {
			conflicts(t, m, reason, "east", disagree)
		}
	}
	for reason, kind := range kinds {
		name := strings.ToLower(reason)
		for _, m := range disagree {
			if kind.giveIn == nil {
				m.Unexport(t, ns, name)
				continue
			}
			fleet.Update(t, m, ns, name, &corev1.Service{}, kind.giveIn)
		}
	}
	for reason, kind := range kinds {
		left := f.Members
		if kind.giveIn == nil {
			left = agree
		}
		for _, m := range left {
			agrees(t, m, reason)
		}
	}
}

// conflicts waits until an export tells the conflict with the winner and exactly these losers.
func conflicts(t *testing.T, m *fleet.Member, reason, winner string, losers []*fleet.Member) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s on %s", reason, m.ID), func() error {
		c, err := m.Condition(ns, strings.ToLower(reason), mcsv1beta1.ServiceExportConditionConflict)
		if err != nil {
			return err
		}
		if c.Status != metav1.ConditionTrue || c.Reason != reason || !strings.Contains(c.Message, winner) {
			return fmt.Errorf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		for _, loser := range losers {
			if !strings.Contains(c.Message, loser.ID) {
				return fmt.Errorf("%s is not named: %s", loser.ID, c.Message)
			}
		}
		for _, innocent := range []string{"west", "north"} {
			if strings.Contains(c.Message, innocent) {
				return fmt.Errorf("%s is named, but agrees: %s", innocent, c.Message)
			}
		}
		return nil
	})
}

func agrees(t *testing.T, m *fleet.Member, reason string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("no %s on %s any more", reason, m.ID), func() error {
		c, err := m.Condition(ns, strings.ToLower(reason), mcsv1beta1.ServiceExportConditionConflict)
		if err != nil {
			return err
		}
		if c.Status != metav1.ConditionFalse || c.Reason != string(mcsv1beta1.ServiceExportReasonNoConflicts) {
			return fmt.Errorf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

// nextSecond waits for the next whole second: creation times have no finer ones.
func nextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second + 50*time.Millisecond).Sub(now))
}
