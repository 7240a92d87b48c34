package agent_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// onBroker lists what the broker holds of a namespace, or of one service of it.
func onBroker(f *fleet.Fleet, ns string, service ...string) ([]string, error) {
	labels := client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}
	if len(service) > 0 {
		labels[mcsv1beta1.LabelServiceName] = service[0]
	}
	var names []string
	for _, list := range []client.ObjectList{&v1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}} {
		if err := f.Admin.List(context.Background(), list, client.InNamespace(objects.DefaultNamespace), labels); err != nil {
			return nil, err
		}
		switch l := list.(type) {
		case *v1alpha1.ExportRecordList:
			for _, o := range l.Items {
				names = append(names, "record "+o.Name)
			}
		case *discoveryv1.EndpointSliceList:
			for _, o := range l.Items {
				names = append(names, "slice "+o.Name)
			}
		case *mcsv1beta1.ServiceImportList:
			for _, o := range l.Items {
				names = append(names, "aggregate "+o.Name)
			}
		}
	}
	return names, nil
}

func nothingOnBroker(t *testing.T, f *fleet.Fleet, ns string, service ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("nothing of %s%v on the broker", ns, service), func() error {
		names, err := onBroker(f, ns, service...)
		if err != nil || len(names) > 0 {
			return fmt.Errorf("%v %w", names, err)
		}
		return nil
	})
}

// aggregated waits until the aggregate of a service lists exactly these clusters.
func aggregated(t *testing.T, f *fleet.Fleet, ns, name string, clusters ...string) {
	t.Helper()
	si := &mcsv1beta1.ServiceImport{}
	service := types.NamespacedName{Namespace: ns, Name: name}
	harness.Eventually(t, fmt.Sprintf("aggregate of %s with clusters %v", service, clusters), func() error {
		if err := f.Admin.Get(context.Background(), types.NamespacedName{Namespace: objects.DefaultNamespace, Name: objects.AggregateName(service)}, si); err != nil {
			return err
		}
		var got []string
		for _, c := range si.Status.Clusters {
			got = append(got, c.Cluster)
		}
		if !slices.Equal(got, clusters) {
			return fmt.Errorf("it lists %v", got)
		}
		return nil
	})
}
