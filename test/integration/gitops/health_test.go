package gitops_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	claimsv1 "github.com/seamark-dev/seamark/api/claims/v1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// awaitHealth waits until kstatus judges an object so.
func awaitHealth(t *testing.T, c client.Client, kind schema.GroupVersionKind, namespace, name string, want status.Status) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s %s is %s", kind.Kind, name, want), func() error {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		if err := c.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, obj); err != nil {
			return err
		}
		got, err := status.Compute(obj)
		if err == nil && got.Status != want {
			err = fmt.Errorf("it is %s: %s", got.Status, got.Message)
		}
		return err
	})
}

// checkHealth checks how kstatus judges the kinds of Seamark, and exports in every state.
func checkHealth(t *testing.T, b *broker, m *fleet.Member, ns string) {
	export := mcsv1beta1.SchemeGroupVersion.WithKind("ServiceExport")
	awaitHealth(t, m.Client, export, ns, "web", status.CurrentStatus)
	m.Export(t, ns, "later")
	awaitHealth(t, m.Client, export, ns, "later", status.InProgressStatus)
	m.Create(t, fleet.NewService(ns, "later", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	awaitHealth(t, m.Client, export, ns, "later", status.FailedStatus)
	fleet.Update(t, m, ns, "later", &corev1.Service{}, func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Ports: []corev1.ServicePort{fleet.Port("http", 80)}}
	})
	awaitHealth(t, m.Client, export, ns, "later", status.CurrentStatus)

	awaitHealth(t, m.Client, mcsv1beta1.SchemeGroupVersion.WithKind("ServiceImport"), ns, "web", status.CurrentStatus)
	awaitHealth(t, m.Client, aboutv1beta1.GroupVersion.WithKind("ClusterProperty"), "", aboutv1beta1.PropertyClusterID, status.CurrentStatus)
	awaitHealth(t, m.Client, claimsv1.GroupVersion.WithKind("ClusterClaim"), "", claimsv1.ClaimClusterID, status.CurrentStatus)
	for kind, name := range map[string]string{
		"ClusterSet": "clusterset", "Cluster": m.ID,
		"ExportRecord": objects.RecordName(types.NamespacedName{Namespace: ns, Name: "web"}, m.ID),
	} {
		awaitHealth(t, b.admin, v1alpha1.GroupVersion.WithKind(kind), objects.DefaultNamespace, name, status.CurrentStatus)
	}
}
