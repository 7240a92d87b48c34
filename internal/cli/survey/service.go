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

// ReadService reads all objects of one service.
func ReadService(ctx context.Context, clusters []*Cluster, b *Broker, key types.NamespacedName, servers Servers) explain.Input {
	in := explain.Input{Namespace: key.Namespace, Name: key.Name, Broker: b.readService(ctx, key)}
	read := make([]*explain.Cluster, len(clusters))
	var reading sync.WaitGroup
	for i, c := range clusters {
		if c.Problem == nil && !c.IsMember() && b.isOn(c) {
			continue // a broker that is no member has no part in it
		}
		reading.Go(func() { read[i] = c.readService(ctx, key, servers) })
	}
	reading.Wait()
	in.Now = metav1.NewTime(time.Now())
	for _, c := range read {
		if c == nil {
			continue
		}
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

func (b *Broker) readService(ctx context.Context, key types.NamespacedName) explain.Broker {
	out := explain.Broker{Namespace: b.Namespace, Via: b.via, Set: b.ClusterSet}
	if b.Problem != nil {
		out.Problem = b.Problem.Error()
		return out
	}
	failed := func(err error) explain.Broker {
		return explain.Broker{Problem: "the broker at " + b.Config.Host + ": " + objects.ErrorText(err)}
	}
	var members v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	var records v1alpha1.ExportRecordList
	var slices discoveryv1.EndpointSliceList
	inBroker, ofService := client.InNamespace(b.Namespace), client.MatchingLabels(objects.Labels(key, ""))
	for list, options := range map[client.ObjectList][]client.ListOption{
		&members: {inBroker}, &leases: {inBroker}, &records: {inBroker, ofService}, &slices: {inBroker, ofService},
	} {
		if err := b.Client.List(ctx, list, options...); err != nil {
			return failed(err)
		}
	}
	out.Members, out.Leases, out.Records, out.Slices = members.Items, leases.Items, records.Items, slices.Items
	aggregate := types.NamespacedName{Namespace: b.Namespace, Name: objects.AggregateName(key)}
	var err error
	if out.Aggregate, err = GetIfServed(ctx, b.Client, aggregate, &mcsv1beta1.ServiceImport{}); err != nil {
		return failed(err)
	}
	ahead, _ := b.clock.read()
	out.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
	return out
}

// readService reads the objects of one service in a cluster, and asks its workloads about it.
func (c *Cluster) readService(ctx context.Context, key types.NamespacedName, servers Servers) *explain.Cluster {
	out := &explain.Cluster{ID: c.Name(), Context: c.Context, Member: c.IsMember()}
	if c.Problem != nil {
		out.Problem = c.Problem.Error()
		return out
	}
	if c.Membership != nil {
		out.DataPlane = c.Membership.DataPlane
	}
	if err := c.readServiceObjects(ctx, key, out); err != nil {
		return &explain.Cluster{ID: c.Name(), Context: c.Context, Problem: objects.ErrorText(err)}
	}
	if families, err := objects.Families(ctx, c.Client); err == nil {
		out.Families = families
	}
	out.Unreachable = c.readUnreachable(ctx)
	out.Agent, out.DNSServer = c.deployment(ctx, agentDeployment), c.deployment(ctx, DNSServer)
	out.Waiting = c.askAgents(ctx, key)
	dns := c.readDNS(ctx)
	out.Zone, out.DNSAddresses, out.Corefile = dns.zone, dns.addresses, dns.corefile
	if objects.DataPlaneOf(out.DataPlane).RunsProxy {
		out.Proxy = c.daemonSet(ctx, proxyDaemonSet)
		out.Proxies, out.ProxiesNotAsked = c.askProxies(ctx, key)
	}
	if out.Import != nil {
		out.DNS = c.askDNS(ctx, objects.DNSName(key, dns.zone), servers.of(c))
	}
	ahead, _ := c.clock.read()
	out.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
	return out
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
