package simulated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
)

// CreateNamespace creates a namespace in the simulated cluster.
func (m *Member) CreateNamespace(ctx context.Context, name string) error {
	return m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// Export creates a Service with a slice of these addresses, and exports it.
func (m *Member) Export(ctx context.Context, namespace, name string, addresses ...string) error {
	svc := fleet.NewService(namespace, name)
	return m.create(ctx, svc, fleet.NewSlice(svc, sliceSuffix, addresses...),
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

const sliceSuffix = "abc"

// SetAddresses replaces the endpoints of a service that Export created.
func (m *Member) SetAddresses(ctx context.Context, namespace, name string, addresses ...string) error {
	current := &discoveryv1.EndpointSlice{}
	key := types.NamespacedName{Namespace: namespace, Name: name + "-" + sliceSuffix}
	if err := m.Client.Get(ctx, key, current); err != nil {
		return fmt.Errorf("read slice %s in %s: %w", key, m.ID, err)
	}
	current.Endpoints = fleet.NewSlice(fleet.NewService(namespace, name), sliceSuffix, addresses...).Endpoints
	if err := m.Client.Update(ctx, current); err != nil {
		return fmt.Errorf("update slice %s in %s: %w", key, m.ID, err)
	}
	return nil
}
