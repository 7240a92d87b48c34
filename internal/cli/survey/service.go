package survey

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// Servers are the DNS servers that the user chose, by id or context of the cluster; the one under
// "" is for all other clusters.
type Servers map[string]string

// of returns the server for a cluster; empty for a pod of seamark-dns.
func (s Servers) of(c *Cluster) string { return cmp.Or(s[c.Name()], s[c.Context], s[""]) }

// ReadService reads all objects of one service, and asks the workloads of the clusters about it.
func ReadService(ctx context.Context, clusters []*Cluster, b *Broker, key types.NamespacedName, servers Servers) explain.Input {
	r := NewServiceReader(ctx, clusters, b)
	read := make([]*explain.Cluster, len(r.clusters))
	var reading sync.WaitGroup
	for i := range r.clusters {
		reading.Go(func() {
			read[i] = r.clusters[i].readService(ctx, key)
			r.clusters[i].Ask(ctx, key, read[i], servers)
		})
	}
	reading.Wait()
	return r.input(ctx, key, read)
}

// ServiceReader reads the objects of services, one service after another. It reads only once what
// all services have in common.
type ServiceReader struct {
	// At is when it was read; now if it is zero.
	At       time.Time
	broker   *Broker
	common   explain.Broker
	clusters []serviceCluster
}

// serviceCluster is a cluster, and what all of its services have in common.
type serviceCluster struct {
	*Cluster
	common explain.Cluster
}

// NewServiceReader returns a reader of services. It reads what they have in common.
func NewServiceReader(ctx context.Context, clusters []*Cluster, b *Broker) *ServiceReader {
	r := &ServiceReader{broker: b}
	for _, c := range clusters {
		if c.Problem == nil && !c.IsMember() && b.isOn(c) {
			continue // a broker that is no member has no part in it
		}
		r.clusters = append(r.clusters, serviceCluster{Cluster: c})
	}
	var reading sync.WaitGroup
	reading.Go(func() { r.common = b.readCommon(ctx) })
	for i := range r.clusters {
		reading.Go(func() { r.clusters[i].readCommon(ctx) })
	}
	reading.Wait()
	return r
}

// Read reads the objects of a service. It asks no workload: Ask does.
func (r *ServiceReader) Read(ctx context.Context, key types.NamespacedName) explain.Input {
	read := make([]*explain.Cluster, len(r.clusters))
	for i := range r.clusters {
		read[i] = r.clusters[i].readService(ctx, key)
	}
	return r.input(ctx, key, read)
}

// Common returns what the services of each cluster have in common, and those of the broker.
func (r *ServiceReader) Common() ([]explain.Cluster, explain.Broker) {
	out := make([]explain.Cluster, len(r.clusters))
	for i := range r.clusters {
		out[i] = r.clusters[i].common
	}
	return out, r.common
}

func (r *ServiceReader) input(ctx context.Context, key types.NamespacedName, clusters []*explain.Cluster) explain.Input {
	in := explain.Input{Namespace: key.Namespace, Name: key.Name, Broker: r.broker.readService(ctx, key, r.common), Now: metav1.NewTime(r.At)}
	if r.At.IsZero() {
		in.Now = metav1.NewTime(time.Now())
	}
	for _, c := range clusters {
		for i := range in.Broker.Members {
			if m := &in.Broker.Members[i]; m.Name == c.ID {
				c.DataPlane = cmp.Or(c.DataPlane, m.Status.DataPlane)
			}
		}
		c.DataPlane = cmp.Or(c.DataPlane, objects.DataPlaneOf("").Name)
		in.Clusters = append(in.Clusters, *c)
	}
	slices.SortStableFunc(in.Clusters, func(a, b explain.Cluster) int { return cmp.Compare(a.ID, b.ID) })
	return in
}

// isOn reports whether the broker is on the API server of a cluster.
func (b *Broker) isOn(c *Cluster) bool { return b.Config != nil && b.Config.Host == c.Config.Host }

// readCommon reads what all services on the broker have in common.
func (b *Broker) readCommon(ctx context.Context) explain.Broker {
	out := explain.Broker{Namespace: b.Namespace, Via: b.via, Set: b.ClusterSet}
	if b.Problem != nil {
		out.Problem = b.Problem.Error()
		return out
	}
	var members v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	for _, list := range []client.ObjectList{&members, &leases} {
		if err := b.Client.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
			return b.failed(err)
		}
	}
	out.Members, out.Leases = members.Items, leases.Items
	ahead, _ := b.clock.read()
	out.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
	return out
}

func (b *Broker) failed(err error) explain.Broker {
	return explain.Broker{Problem: "the broker at " + b.Config.Host + ": " + objects.ErrorText(err)}
}

// readService adds what the broker has of a service to what all services have in common.
func (b *Broker) readService(ctx context.Context, key types.NamespacedName, out explain.Broker) explain.Broker {
	if out.Problem != "" {
		return out
	}
	var records v1alpha1.ExportRecordList
	var slices discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&records, &slices} {
		if err := b.Client.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels(objects.Labels(key, ""))); err != nil {
			return b.failed(err)
		}
	}
	out.Records, out.Slices = records.Items, slices.Items
	aggregate := types.NamespacedName{Namespace: b.Namespace, Name: objects.AggregateName(key)}
	var err error
	if out.Aggregate, err = GetIfServed(ctx, b.Client, aggregate, &mcsv1beta1.ServiceImport{}); err != nil {
		return b.failed(err)
	}
	return out
}

// readCommon reads what all services of a cluster have in common.
func (c *serviceCluster) readCommon(ctx context.Context) {
	out := &c.common
	*out = explain.Cluster{ID: c.Name(), Context: c.Context, Member: c.IsMember()}
	if c.Problem != nil {
		out.Problem = c.Problem.Error()
		return
	}
	if c.Membership != nil {
		out.DataPlane = c.Membership.DataPlane
	}
	if families, err := objects.Families(ctx, c.Client); err == nil {
		out.Families = families
	}
	out.Unreachable = c.readUnreachable(ctx)
	out.Agent, out.DNSServer = c.deployment(ctx, agentDeployment), c.deployment(ctx, DNSServer)
	dns := c.readDNS(ctx)
	out.Zone, out.DNSAddresses, out.Corefile = dns.zone, dns.addresses, dns.corefile
	if objects.DataPlaneOf(out.DataPlane).RunsProxy {
		out.Proxy = c.daemonSet(ctx, proxyDaemonSet)
	}
	ahead, _ := c.clock.read()
	out.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
}

// readService reads the objects of one service in a cluster.
func (c *serviceCluster) readService(ctx context.Context, key types.NamespacedName) *explain.Cluster {
	out := c.common
	if out.Problem != "" {
		return &out
	}
	if err := c.readServiceObjects(ctx, key, &out); err != nil {
		return &explain.Cluster{ID: out.ID, Context: out.Context, Problem: objects.ErrorText(err)}
	}
	return &out
}

// Ask asks the workloads of a cluster about a service whose objects were read: the agents what they
// wait for, the proxies what they have programmed, and DNS for the name.
func (c *Cluster) Ask(ctx context.Context, key types.NamespacedName, out *explain.Cluster, servers Servers) {
	c.AskState(ctx, key, out)
	if out.Problem == "" && out.Import != nil {
		out.DNS = c.askDNS(ctx, objects.DNSName(key, cmp.Or(out.Zone, objects.DefaultZone)), servers.of(c))
	}
}

// AskState is Ask without DNS, for which a connection to a pod may have to be opened.
func (c *Cluster) AskState(ctx context.Context, key types.NamespacedName, out *explain.Cluster) {
	if out.Problem != "" {
		return
	}
	out.Waiting = c.askAgents(ctx, key)
	if objects.DataPlaneOf(out.DataPlane).RunsProxy {
		out.Proxies, out.ProxiesNotAsked = c.askProxies(ctx, key)
	}
}

func (c *Cluster) readServiceObjects(ctx context.Context, key types.NamespacedName, out *explain.Cluster) error {
	err := c.Client.Get(ctx, types.NamespacedName{Name: key.Namespace}, &corev1.Namespace{})
	out.NamespaceMissing = apierrors.IsNotFound(err)
	if err != nil && !out.NamespaceMissing && !apierrors.IsForbidden(err) {
		return err
	}
	if out.Export, err = GetIfServed(ctx, c.Client, key, &mcsv1beta1.ServiceExport{}); err != nil {
		return err
	}
	if out.Service, err = GetIfServed(ctx, c.Client, key, &corev1.Service{}); err != nil {
		return err
	}
	if out.Import, err = GetIfServed(ctx, c.Client, key, &mcsv1beta1.ServiceImport{}); err != nil {
		return err
	}
	derived := types.NamespacedName{Namespace: key.Namespace, Name: objects.DerivedServiceName(key.Name)}
	if out.Derived, err = GetIfServed(ctx, c.Client, derived, &corev1.Service{}); err != nil {
		return err
	}
	var own, imported discoveryv1.EndpointSliceList
	for list, label := range map[*discoveryv1.EndpointSliceList]string{
		&own: discoveryv1.LabelServiceName, &imported: mcsv1beta1.LabelServiceName,
	} {
		if err := c.Client.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{label: key.Name}); err != nil {
			return err
		}
	}
	for i := range own.Items {
		if _, ok := objects.SourceService(&own.Items[i]); ok {
			out.Slices = append(out.Slices, own.Items[i])
		}
	}
	for i := range imported.Items {
		if _, ok := objects.ImportedService(&imported.Items[i]); ok {
			out.Imported = append(out.Imported, imported.Items[i])
		}
	}
	return nil
}

// readUnreachable returns the clusters that the agent publishes as unreachable, sorted; none if
// that cannot be read.
func (c *Cluster) readUnreachable(ctx context.Context) []string {
	property := reachable.Property(nil)
	found, err := GetIfServed(ctx, c.Client, client.ObjectKeyFromObject(property), property)
	if err != nil || found == nil {
		return nil
	}
	var out []string
	for key := range reachable.Parse(found.Spec.Value) {
		out = append(out, key.Cluster)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
