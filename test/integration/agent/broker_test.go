package agent_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// awaitNothingOnBroker waits until the broker has no object of a namespace, or of one service in
// it.
func awaitNothingOnBroker(t *testing.T, f *fleet.Fleet, ns string, service ...string) {
	t.Helper()
	labels := client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}
	if len(service) > 0 {
		labels[mcsv1beta1.LabelServiceName] = service[0]
	}
	f.AwaitOnBroker(t, 0, labels)
}

// awaitAggregate waits until the aggregate of a service lists exactly these clusters.
func awaitAggregate(t *testing.T, f *fleet.Fleet, ns, name string, clusters ...string) {
	t.Helper()
	si := &mcsv1beta1.ServiceImport{}
	service := types.NamespacedName{Namespace: ns, Name: name}
	harness.Eventually(t, fmt.Sprintf("aggregate of %s with clusters %v", service, clusters), func() error {
		key := types.NamespacedName{Namespace: objects.DefaultNamespace, Name: objects.AggregateName(service)}
		if err := f.Admin.Get(context.Background(), key, si); err != nil {
			return err
		}
		if got := fleet.ClustersOf(si); !slices.Equal(got, clusters) {
			return fmt.Errorf("it lists %v", got)
		}
		return nil
	})
}
