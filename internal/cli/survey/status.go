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

// ReadStatus reads what status assesses, and asks the agents which clusters they reach.
func ReadStatus(ctx context.Context, clusters []*Cluster, b *Broker) status.Input {
	reached := make([][]objects.Reachability, len(clusters))
	var asking sync.WaitGroup
	for i, c := range clusters {
		asking.Go(func() { reached[i] = c.AskReachability(ctx) })
	}
	in := ReadStatusObjects(ctx, clusters, b, func(i int) []objects.Reachability {
		asking.Wait()
		return reached[i]
	})
	return in
}

// AskReachability asks the agents of a member which clusters they reach.
func (c *Cluster) AskReachability(ctx context.Context) []objects.Reachability {
	if c.Problem != nil || !c.IsMember() {
		return nil
	}
	return c.askReachability(ctx)
}

// ReadStatusObjects reads what status assesses. reached returns which clusters the agent of a
// cluster reaches, by its index.
func ReadStatusObjects(ctx context.Context, clusters []*Cluster, b *Broker, reached func(i int) []objects.Reachability) status.Input {
	var in status.Input
	var reading sync.WaitGroup
	reading.Go(func() { readBrokerStatus(ctx, b, &in) })
	reading.Go(func() { in.Clusters = ReadServices(ctx, clusters, "") })
	reading.Wait()
	for i := range in.Clusters {
		in.Clusters[i].Reachability = reached(i)
	}
	in.Now = time.Now()
	in.BrokerNow = in.Now
	if b.Problem == nil {
		in.BrokerNow = b.clock.now(in.Now)
	}
	in.Clusters = slices.DeleteFunc(in.Clusters, func(c status.Cluster) bool { return c.Problem == "" && !c.Member })
	return in
}

func readBrokerStatus(ctx context.Context, b *Broker, in *status.Input) {
	if b.Problem != nil {
		in.Broker.Problem = b.Problem.Error()
		return
	}
	in.Broker = status.Broker{Server: b.Config.Host, Via: b.via}
	in.ClusterSet = b.ClusterSet.Name
	var (
		members    v1alpha1.ClusterList
		leases     coordinationv1.LeaseList
		records    v1alpha1.ExportRecordList
		slices     discoveryv1.EndpointSliceList
		aggregates mcsv1beta1.ServiceImportList
	)
	for _, list := range []client.ObjectList{&members, &leases, &records, &slices, &aggregates} {
		if err := b.Client.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
			in.Broker.Problem = objects.ErrorText(err)
			return
		}
	}
	in.Members, in.Leases, in.Records = members.Items, leases.Items, records.Items
	in.Slices, in.Aggregates = slices.Items, aggregates.Items
}

// ReadServices reads the exports and imports of all clusters at the same time, in one namespace or,
// if it is empty, in all.
func ReadServices(ctx context.Context, clusters []*Cluster, namespace string) []status.Cluster {
	out := make([]status.Cluster, len(clusters))
	var reading sync.WaitGroup
	for i, c := range clusters {
		reading.Go(func() { out[i] = c.readServices(ctx, namespace) })
	}
	reading.Wait()
	return out
}

func (c *Cluster) readServices(ctx context.Context, namespace string) status.Cluster {
	out := status.Cluster{ID: c.Name(), Context: c.Context, Member: c.IsMember()}
	if c.Problem != nil {
		out.Problem = c.Problem.Error()
		return out
	}
	var exports mcsv1beta1.ServiceExportList
	var imports mcsv1beta1.ServiceImportList
	for _, list := range []client.ObjectList{&exports, &imports} {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
			out.Problem = objects.ErrorText(err)
			return out
		}
	}
	out.Exports = exports.Items
	for i := range imports.Items {
		// A broker may be on the same API server; its aggregates are no imports.
		if _, onBroker := imports.Items[i].Labels[v1alpha1.LabelServiceNamespace]; !onBroker {
			out.Imports = append(out.Imports, imports.Items[i])
		}
	}
	return out
}
