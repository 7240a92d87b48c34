package agent_test

import (
	"encoding/json"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// docs/broker.md computes the size of a broker's database from these sizes. API servers store
// custom resources as JSON, and slices and leases as protobuf.
func TestSizesOnTheBroker(t *testing.T) {
	f := clusterset(t)
	ns := fleet.NewNamespace(t, f.Members...)
	for name, endpoints := range map[string]int{"small-service": 10, "large-service": 100} {
		for i, m := range f.Members[:2] {
			serveMany(t, m, ns, name, i, endpoints)
		}
	}
	for name, endpoints := range map[string]int{"small-service": 10, "large-service": 100} {
		service := types.NamespacedName{Namespace: ns, Name: name}
		record, si, slice := &v1alpha1.ExportRecord{}, &mcsv1beta1.ServiceImport{}, &discoveryv1.EndpointSlice{}
		harness.Eventually(t, name+" is on the broker, by both exporters", func() error {
			if err := f.Admin.Get(t.Context(), onBroker(objects.AggregateName(service)), si); err != nil {
				return err
			}
			if len(si.Status.Clusters) != 2 {
				return fmt.Errorf("the aggregate lists %v", fleet.ClustersOf(si))
			}
			var slices discoveryv1.EndpointSliceList
			err := f.Admin.List(t.Context(), &slices, client.InNamespace(objects.DefaultNamespace),
				client.MatchingLabels(objects.Labels(service, f.Members[0].ID)))
			if err != nil || len(slices.Items) == 0 || len(slices.Items[0].Endpoints) != endpoints {
				return fmt.Errorf("%d slices (%w)", len(slices.Items), err)
			}
			*slice = slices.Items[0]
			return f.Admin.Get(t.Context(), onBroker(objects.RecordName(service, f.Members[0].ID)), record)
		})
		atMost(t, "ExportRecord", jsonSize(t, record), 1_600)
		atMost(t, fmt.Sprintf("EndpointSlice with %d endpoints", endpoints), protoSize(t, slice), 900+60*endpoints)
		atMost(t, "aggregate with 2 clusters", jsonSize(t, si), 2_100)
		for i := range 98 {
			si.Status.Clusters = append(si.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: fmt.Sprintf("cluster-%03d", i)})
		}
		atMost(t, "aggregate with 100 clusters", jsonSize(t, si), 4_800)
	}
	lease := &coordinationv1.Lease{}
	if err := f.Admin.Get(t.Context(), onBroker(f.Members[0].ID), lease); err != nil {
		t.Fatal(err)
	}
	atMost(t, "Lease", protoSize(t, lease), 800)
}

// serveMany exports a service of the i-th member whose endpoints have nodes and zones.
func serveMany(t *testing.T, m *fleet.Member, ns, name string, i, endpoints int) {
	t.Helper()
	svc := fleet.NewService(ns, name)
	addresses := make([]string, endpoints)
	for j := range addresses {
		addresses[j] = fmt.Sprintf("10.%d.1.%d", 71+i, j+1)
	}
	slice := fleet.NewSlice(svc, "one", addresses...)
	for j := range slice.Endpoints {
		slice.Endpoints[j].NodeName, slice.Endpoints[j].Zone = ptr.To(fmt.Sprintf("worker-%03d.example", j)), ptr.To("europe-west1-b")
	}
	m.Create(t, svc, slice)
	m.Export(t, ns, name)
}

func onBroker(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: objects.DefaultNamespace, Name: name}
}

func jsonSize(t *testing.T, obj any) int {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

func protoSize(t *testing.T, obj interface{ Marshal() ([]byte, error) }) int {
	t.Helper()
	data, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

func atMost(t *testing.T, what string, got, most int) {
	t.Helper()
	t.Logf("%s: %d bytes", what, got)
	if got > most {
		t.Errorf("%s has %d bytes, docs/broker.md assumes at most %d", what, got, most)
	}
}
