package survey

import (
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
)

// readStatus reads the broker and the clusters. What cannot be read is told in what it returns.
func ReadStatus(ctx context.Context, sites []*Cluster, h *Broker) status.Input {
	in := status.Input{}
	var reading sync.WaitGroup
	reading.Go(func() { readBrokerStatus(ctx, h, &in) })
	in.Clusters = make([]status.Cluster, len(sites))
	for i, s := range sites {
		reading.Go(func() { in.Clusters[i] = s.ReadServices(ctx, "") })
	}
	reading.Wait()
	in.Now = time.Now()
	in.BrokerNow = in.Now
	if h.Problem == nil {
		in.BrokerNow = h.clock.now(in.Now)
	}
	in.Clusters = slices.DeleteFunc(in.Clusters, func(s status.Cluster) bool { return s.Problem == "" && !s.Member })
	return in
}

// readAll reads the exports and imports of a cluster, in one namespace or in all.
func (s *Cluster) ReadServices(ctx context.Context, namespace string) status.Cluster {
	o := status.Cluster{ID: s.Name(), Context: s.Context, Member: s.IsMember()}
	if s.Problem != nil {
		o.Problem = s.Problem.Error()
		return o
	}
	var exports mcsv1beta1.ServiceExportList
	var imported mcsv1beta1.ServiceImportList
	for _, list := range []client.ObjectList{&exports, &imported} {
		if err := s.Client.List(ctx, list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
			o.Problem = objects.ErrorText(err)
			return o
		}
	}
	o.Exports = exports.Items
	for i := range imported.Items {
		if _, onBroker := imported.Items[i].Labels[v1alpha1.LabelServiceNamespace]; !onBroker { // a broker may live on the same API server
			o.Imports = append(o.Imports, imported.Items[i])
		}
	}
	return o
}

func readBrokerStatus(ctx context.Context, h *Broker, in *status.Input) {
	if h.Problem != nil {
		in.Broker.Problem = h.Problem.Error()
		return
	}
	in.Broker = status.Broker{Server: h.Config.Host, Via: h.via}
	in.ClusterSet = h.ClusterSet.Name
	var (
		members    v1alpha1.ClusterList
		leases     coordinationv1.LeaseList
		records    v1alpha1.ExportRecordList
		slices     discoveryv1.EndpointSliceList
		aggregates mcsv1beta1.ServiceImportList
	)
	for _, list := range []client.ObjectList{&members, &leases, &records, &slices, &aggregates} {
		if err := h.Client.List(ctx, list, client.InNamespace(h.Namespace)); err != nil {
			in.Broker.Problem = objects.ErrorText(err)
			return
		}
	}
	in.Members, in.Leases, in.Records, in.Slices, in.Aggregates = members.Items, leases.Items, records.Items, slices.Items, aggregates.Items
}
