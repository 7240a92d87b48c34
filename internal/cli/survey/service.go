package survey

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/objects"
)

// readService reads all there is of one service. What cannot be read is told in what it returns.
func ReadService(ctx context.Context, sites []*Cluster, h *Broker, namespace, name string, dns map[string]string) explain.Input {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	in := explain.Input{Namespace: namespace, Name: name}
	in.Broker = readBrokerService(ctx, h, key)
	looked := make([]*explain.Cluster, len(sites))
	var reading sync.WaitGroup
	for i, s := range sites {
		if s.Problem == nil && !s.IsMember() && isBroker(s, h) {
			continue // a broker that is no member has no part in it
		}
		reading.Go(func() { looked[i] = s.readCluster(ctx, key, dns) })
	}
	reading.Wait()
	in.Now = metav1.NewTime(time.Now())
	for _, c := range looked {
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

// isHub tells a site whose API server is the broker's.
func isBroker(s *Cluster, h *Broker) bool { return h.Config != nil && h.Config.Host == s.Config.Host }

func readBrokerService(ctx context.Context, h *Broker, key types.NamespacedName) explain.Broker {
	b := explain.Broker{Namespace: h.Namespace, Via: h.via, Set: h.ClusterSet}
	if h.Problem != nil {
		b.Problem = h.Problem.Error()
		return b
	}
	var members v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	var records v1alpha1.ExportRecordList
	var slices discoveryv1.EndpointSliceList
	of := client.MatchingLabels(objects.Labels(key, ""))
	for list, options := range map[client.ObjectList][]client.ListOption{
		&members: {client.InNamespace(h.Namespace)}, &leases: {client.InNamespace(h.Namespace)},
		&records: {client.InNamespace(h.Namespace), of}, &slices: {client.InNamespace(h.Namespace), of},
	} {
		if err := h.Client.List(ctx, list, options...); err != nil {
			return explain.Broker{Problem: "the broker at " + h.Config.Host + ": " + objects.ErrorText(err)}
		}
	}
	b.Members, b.Leases, b.Records, b.Slices = members.Items, leases.Items, records.Items, slices.Items
	var err error
	if b.Aggregate, err = objects.GetOrNil(ctx, h.Client, types.NamespacedName{Namespace: h.Namespace, Name: objects.AggregateName(key)}, &mcsv1beta1.ServiceImport{}); err != nil {
		return explain.Broker{Problem: "the broker at " + h.Config.Host + ": " + objects.ErrorText(err)}
	}
	ahead, _ := h.clock.read()
	b.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
	return b
}

// readCluster reads what one cluster has of a service.
func (s *Cluster) readCluster(ctx context.Context, key types.NamespacedName, dns map[string]string) *explain.Cluster {
	c := &explain.Cluster{ID: s.Name(), Context: s.Context, Member: s.IsMember()}
	if s.Problem != nil {
		c.Problem = s.Problem.Error()
		return c
	}
	if s.Membership != nil {
		c.DataPlane = s.Membership.DataPlane
	}
	if err := s.readObjects(ctx, key, c); err != nil {
		return &explain.Cluster{ID: s.Name(), Context: s.Context, Problem: objects.ErrorText(err)}
	}
	if families, err := objects.Families(ctx, s.Client); err == nil {
		c.Families = families
	}
	c.Agent, c.DNSServer = s.deployment(ctx, agentDeployment), s.deployment(ctx, DNSName)
	c.DNSAddresses, c.Corefile, _ = s.readForwarding(ctx)
	if objects.DataPlaneOf(c.DataPlane).RunsProxy {
		c.Proxy = s.daemonSet(ctx, proxyDaemonSet)
		c.Proxies, c.ProxiesNotAsked = s.askProxies(ctx, key)
	}
	if c.Import != nil {
		c.DNS = s.askDNS(ctx, key.Name+"."+key.Namespace+".svc.clusterset.local.", cmp.Or(dns[c.ID], dns[c.Context], dns[""]))
	}
	ahead, _ := s.clock.read()
	c.ClockAhead = metav1.Duration{Duration: ahead.Round(time.Second)}
	return c
}

func (s *Cluster) readObjects(ctx context.Context, key types.NamespacedName, c *explain.Cluster) error {
	err := s.Client.Get(ctx, types.NamespacedName{Name: key.Namespace}, &corev1.Namespace{})
	c.NamespaceMissing = apierrors.IsNotFound(err)
	if err != nil && !c.NamespaceMissing && !apierrors.IsForbidden(err) {
		return err
	}
	if c.Export, err = objects.GetOrNil(ctx, s.Client, key, &mcsv1beta1.ServiceExport{}); err != nil {
		return err
	}
	if c.Service, err = objects.GetOrNil(ctx, s.Client, key, &corev1.Service{}); err != nil {
		return err
	}
	if c.Import, err = objects.GetOrNil(ctx, s.Client, key, &mcsv1beta1.ServiceImport{}); err != nil {
		return err
	}
	derived := types.NamespacedName{Namespace: key.Namespace, Name: objects.DerivedServiceName(key.Name)}
	if c.Derived, err = objects.GetOrNil(ctx, s.Client, derived, &corev1.Service{}); err != nil {
		return err
	}
	var own, imported discoveryv1.EndpointSliceList
	if err := s.Client.List(ctx, &own, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}); err != nil {
		return err
	}
	if err := s.Client.List(ctx, &imported, client.InNamespace(key.Namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: key.Name}); err != nil {
		return err
	}
	for i := range own.Items {
		if _, ok := objects.SourceService(&own.Items[i]); ok {
			c.Slices = append(c.Slices, own.Items[i])
		}
	}
	for i := range imported.Items {
		if _, ok := objects.ImportedService(&imported.Items[i]); ok {
			c.Imported = append(c.Imported, imported.Items[i])
		}
	}
	return nil
}

// The workloads of Seamark in a member, as the chart names them.
const (
	agentDeployment = "seamark-agent"
	DNSName         = "seamark-dns"
	proxyDaemonSet  = "seamark-proxy"
)

// deployment returns how one of our Deployments is; nil when it is not there or may not be read.
func (s *Cluster) deployment(ctx context.Context, name string) *explain.Workload {
	d, err := objects.GetOrNil(ctx, s.Client, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, &appsv1.Deployment{})
	if err != nil || d == nil {
		return nil
	}
	return &explain.Workload{Ready: d.Status.ReadyReplicas, Want: ptr.Deref(d.Spec.Replicas, 1)}
}

func (s *Cluster) daemonSet(ctx context.Context, name string) *explain.Workload {
	d, err := objects.GetOrNil(ctx, s.Client, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}, &appsv1.DaemonSet{})
	if err != nil || d == nil {
		return nil
	}
	return &explain.Workload{Ready: d.Status.NumberReady, Want: d.Status.DesiredNumberScheduled}
}
