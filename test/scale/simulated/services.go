package simulated

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/test/fleet"
)

// CreateNamespace creates a namespace in the simulated cluster.
func (m *Member) CreateNamespace(ctx context.Context, name string) error {
	return m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// perSlice is how many endpoints a slice has at most, as in Kubernetes.
const perSlice = 100

// Export creates a Service with slices of these addresses, and exports it.
func (m *Member) Export(ctx context.Context, namespace, name string, addresses ...string) error {
	svc := fleet.NewService(namespace, name)
	all := []client.Object{svc}
	for i, part := range parts(addresses) {
		all = append(all, fleet.NewSlice(svc, strconv.Itoa(i), part...))
	}
	return m.create(ctx, append(all, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})...)
}

// parts returns the addresses of each slice. A service without endpoints has one slice, too.
func parts(addresses []string) [][]string {
	if len(addresses) == 0 {
		return [][]string{nil}
	}
	return slices.Collect(slices.Chunk(addresses, perSlice))
}

// SetAddresses replaces the endpoints of a service that Export created with as many addresses.
func (m *Member) SetAddresses(ctx context.Context, namespace, name string, addresses ...string) error {
	for i, part := range parts(addresses) {
		want := fleet.NewSlice(fleet.NewService(namespace, name), strconv.Itoa(i), part...)
		current := &discoveryv1.EndpointSlice{}
		key := client.ObjectKeyFromObject(want)
		if err := m.Client.Get(ctx, key, current); err != nil {
			return fmt.Errorf("read slice %s in %s: %w", key, m.ID, err)
		}
		current.Endpoints = want.Endpoints
		if err := m.Client.Update(ctx, current); err != nil {
			return fmt.Errorf("update slice %s in %s: %w", key, m.ID, err)
		}
	}
	return nil
}

// Imports are the services of a namespace that a cluster has imported, with the addresses of each
// source cluster, sorted.
type Imports map[string]map[string][]string

// ReadImports reads the imports of a namespace. A service counts if its ServiceImport has a
// clusterset IP.
func ReadImports(ctx context.Context, c client.Client, namespace string) (Imports, error) {
	out := Imports{}
	imported := &mcsv1beta1.ServiceImportList{}
	if err := c.List(ctx, imported, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the ServiceImports of %s: %w", namespace, err)
	}
	for i := range imported.Items {
		if si := &imported.Items[i]; len(si.Spec.IPs) > 0 {
			out[si.Name] = map[string][]string{}
		}
	}
	found := &discoveryv1.EndpointSliceList{}
	if err := c.List(ctx, found, client.InNamespace(namespace), client.HasLabels{mcsv1beta1.LabelSourceCluster}); err != nil {
		return nil, fmt.Errorf("list the imported slices of %s: %w", namespace, err)
	}
	for i := range found.Items {
		s := &found.Items[i]
		name, source := s.Labels[mcsv1beta1.LabelServiceName], s.Labels[mcsv1beta1.LabelSourceCluster]
		if out[name] == nil {
			out[name] = map[string][]string{"without a ServiceImport": nil}
		}
		for j := range s.Endpoints {
			out[name][source] = append(out[name][source], s.Endpoints[j].Addresses...)
		}
		slices.Sort(out[name][source])
	}
	return out, nil
}
