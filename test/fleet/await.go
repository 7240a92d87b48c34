package fleet

import (
	"context"
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

// AwaitExported waits until the member's ServiceExport is Ready.
func (m *Member) AwaitExported(t testing.TB, namespace, name string) {
	t.Helper()
	m.Awaits(t, namespace, name, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported)
}

// AwaitImport waits until the member has a ServiceImport with a status that lists the source
// clusters, and has imported exactly these addresses, by source cluster.
func (m *Member) AwaitImport(t testing.TB, namespace, name string, want map[string][]string) *mcsv1beta1.ServiceImport {
	t.Helper()
	var si *mcsv1beta1.ServiceImport
	harness.Eventually(t, fmt.Sprintf("%s/%s imported in %s", namespace, name, m.ID), func() (err error) {
		if si, err = m.Import(namespace, name); err != nil {
			return err
		}
		if len(si.Status.Conditions) == 0 {
			return fmt.Errorf("no status yet")
		}
		clusters := ClustersOf(si)
		for source := range want {
			if !slices.Contains(clusters, source) {
				return fmt.Errorf("the status lists clusters %v", clusters)
			}
		}
		return m.CheckAddresses(namespace, name, want)
	})
	return si
}

// AwaitNoImport waits until the member has neither a ServiceImport nor imported EndpointSlices of
// the service.
func (m *Member) AwaitNoImport(t testing.TB, namespace, name string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s/%s no longer imported in %s", namespace, name, m.ID), func() error {
		if _, err := m.Import(namespace, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceImport still exists (%w)", err)
		}
		items, err := m.ImportedSlices(namespace, name)
		if err != nil || len(items) > 0 {
			return fmt.Errorf("%d EndpointSlices still exist (%w)", len(items), err)
		}
		return nil
	})
}

// CheckAddresses returns an error unless the member has imported exactly these addresses of a
// service, by source cluster.
func (m *Member) CheckAddresses(namespace, name string, want map[string][]string) error {
	got, err := m.Addresses(namespace, name)
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s imported %v of %s, want %v", m.ID, got, name, want)
	}
	return nil
}

// ClustersOf returns the clusters that the status of a ServiceImport lists, sorted: the list has no
// order.
func ClustersOf(si *mcsv1beta1.ServiceImport) []string {
	var out []string
	for _, c := range si.Status.Clusters {
		out = append(out, c.Cluster)
	}
	slices.Sort(out)
	return out
}

// OnBroker returns the kinds and names of the records, EndpointSlices and aggregates on the broker
// that have these labels.
func (f *Fleet) OnBroker(labels client.MatchingLabels) ([]string, error) {
	var names []string
	for _, list := range []client.ObjectList{&v1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}} {
		if err := f.Admin.List(context.Background(), list, client.InNamespace(objects.DefaultNamespace), labels); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			names = append(names, fmt.Sprintf("%T %s", obj, obj.GetName()))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// AwaitOnBroker waits until the broker has exactly this number of records, EndpointSlices and
// aggregates with these labels.
func (f *Fleet) AwaitOnBroker(t testing.TB, want int, labels client.MatchingLabels) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d objects with labels %v on the broker", want, labels), func() error {
		names, err := f.OnBroker(labels)
		if err != nil || len(names) != want {
			return fmt.Errorf("there are %d: %v (%w)", len(names), names, err)
		}
		return nil
	})
}
