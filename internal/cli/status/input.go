package status

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Input is what was read of a clusterset.
type Input struct {
	// Now is when it was read, on the reader's clock; BrokerNow is the same on the broker's clock.
	Now, BrokerNow time.Time
	Broker         Broker
	ClusterSet     string
	// Members, Leases, Records, Slices and Aggregates are the objects on the broker.
	Members    []v1alpha1.Cluster
	Leases     []coordinationv1.Lease
	Records    []v1alpha1.ExportRecord
	Slices     []discoveryv1.EndpointSlice
	Aggregates []mcsv1beta1.ServiceImport
	// Clusters are the clusters that the user chose.
	Clusters []Cluster
}

// Cluster is what was read of one cluster.
type Cluster struct {
	// ID is its id, or the name of its context if it has none. Context is empty for the current one.
	ID, Context string
	Member      bool
	// Problem is why it cannot be read; then Exports and Imports are empty.
	Problem string
	Exports []mcsv1beta1.ServiceExport
	Imports []mcsv1beta1.ServiceImport
	// Reachability is how its agent reaches other clusters; empty if the agent could not be asked.
	Reachability []objects.Reachability
}
