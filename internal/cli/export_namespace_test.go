package cli

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPlanOne(t *testing.T) {
	exported := map[string]bool{"had": true}
	for name, test := range map[string]struct {
		svc          corev1.Service
		action, kind string
	}{
		"plain": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}, bulkPlanned, "ClusterIP"},
		"headless": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone}},
			bulkPlanned, "Headless"},
		"external": {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}, bulkSkipped, "ExternalName"},
		"had":      {corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}, bulkExists, "ClusterIP"},
	} {
		test.svc.Name, test.svc.Namespace = name, "shop"
		item := planOne(&test.svc, exported)
		if item.Action != test.action || item.Type != test.kind || (item.Action == bulkSkipped) != (item.Why != "") {
			t.Errorf("%s: %+v", name, item)
		}
	}
}

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "y": true} {
		if got := confirmed(strings.NewReader(answer), &bytes.Buffer{}); got != want {
			t.Errorf("%q: %t", answer, got)
		}
	}
}
