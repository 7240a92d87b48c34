package survey

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

type FactOptions struct {
	DNS        map[string]string
	ProbeImage string
}

// readFacts reads what the checks need. What cannot be read is told in the facts.
func ReadFacts(ctx context.Context, sites []*Cluster, h *Broker, o FactOptions) doctor.Facts {
	f := doctor.Facts{Broker: readBrokerFacts(ctx, h)}
	f.Clusters = make([]doctor.Cluster, len(sites))
	var reading sync.WaitGroup
	for i, s := range sites {
		reading.Go(func() { f.Clusters[i] = s.readFacts(ctx, o) })
	}
	reading.Wait()
	kept := f.Clusters[:0]
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Problem == "" && !c.Member && isBroker(sites[i], h) {
			continue // a broker that is no member
		}
		if m := findMember(f.Broker.Members, c.ID); m != nil {
			c.DataPlane = cmp.Or(c.DataPlane, m.Status.DataPlane)
		}
		if c.Problem == "" && c.Member {
			sites[i].probe(ctx, h, o.ProbeImage, c)
		}
		kept = append(kept, *c)
	}
	f.Clusters = kept
	return f
}

func findMember(members []doctor.Member, id string) *doctor.Member {
	for i := range members {
		if members[i].Name == id {
			return &members[i]
		}
	}
	return nil
}

func readBrokerFacts(ctx context.Context, h *Broker) doctor.Broker {
	if h.Problem != nil {
		return doctor.Broker{Problem: h.Problem.Error()}
	}
	b := doctor.Broker{Server: h.Config.Host, Set: h.ClusterSet}
	var (
		members    v1alpha1.ClusterList
		leases     coordinationv1.LeaseList
		aggregates mcsv1beta1.ServiceImportList
	)
	for _, list := range []client.ObjectList{&members, &leases, &aggregates} {
		if err := h.Client.List(ctx, list, client.InNamespace(h.Namespace)); err != nil {
			return doctor.Broker{Problem: "the broker at " + h.Config.Host + ": " + objects.ErrorText(err)}
		}
	}
	now := h.clock.now(time.Now())
	for i := range members.Items {
		m := doctor.Member{Cluster: members.Items[i]}
		for j := range leases.Items {
			if lease := &leases.Items[j]; lease.Name == m.Name {
				m.Life = explain.LifeOf(lease, now)
				m.Skew = skewOf(lease, m.Life)
			}
		}
		b.Members = append(b.Members, m)
	}
	for i := range aggregates.Items {
		for _, text := range aggregates.Items[i].Spec.IPs {
			if addr, err := netip.ParseAddr(text); err == nil {
				b.Used = append(b.Used, addr)
			}
		}
	}
	b.Kinds, b.KindsProblem = ReadKinds(ctx, h.Client, crds.Broker)
	if ahead, known := h.clock.read(); known {
		b.ClockAhead = &ahead
	}
	return b
}

// skewOf compares the time that a member wrote into its lease with the time at which the broker took it.
func skewOf(lease *coordinationv1.Lease, life explain.Life) *time.Duration {
	if !life.Joined || life.Last.Equal(lease.Spec.RenewTime.Time) {
		return nil
	}
	skew := lease.Spec.RenewTime.Sub(life.Last)
	return &skew
}

// readKinds reads which versions of the kinds are served.
func ReadKinds(ctx context.Context, c client.Client, set crds.Set) ([]doctor.Kind, string) {
	definitions, err := crds.Definitions(set)
	if err != nil {
		return nil, err.Error()
	}
	var kinds []doctor.Kind
	for _, d := range definitions {
		kind := doctor.Kind{Name: d.CRD.Name, AnyOf: d.AnyOf}
		existing := &apiextensionsv1.CustomResourceDefinition{}
		err := c.Get(ctx, types.NamespacedName{Name: d.CRD.Name}, existing)
		switch {
		case apierrors.IsNotFound(err):
			kind.Missing = true
		case err != nil:
			return nil, "CustomResourceDefinitions cannot be read: " + objects.ErrorText(err)
		}
		for _, v := range existing.Spec.Versions {
			if v.Served {
				kind.Served = append(kind.Served, v.Name)
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds, ""
}

// readFacts reads one cluster.
func (s *Cluster) readFacts(ctx context.Context, o FactOptions) doctor.Cluster {
	c := doctor.Cluster{ID: s.Name(), Context: s.Context, Member: s.IsMember(), ClusterSet: s.ClusterSet, MembershipProblem: s.MembershipProblem}
	if s.Problem != nil {
		c.Problem = s.Problem.Error()
		return c
	}
	s.readVersion(&c)
	c.Kinds, c.KindsProblem = ReadKinds(ctx, s.Client, crds.Member)
	c.Denied = s.denied(ctx, s.Client, userNeeds)
	if s.Membership != nil {
		c.DataPlane = s.Membership.DataPlane
		s.askBroker(ctx, &c)
	}
	s.readWorkloads(ctx, &c)
	c.DNSAddresses, c.Corefile, c.CorefileProblem = s.readForwarding(ctx)
	s.readServices(ctx, &c, o)
	if ahead, known := s.clock.read(); known {
		c.ClockAhead = &ahead
	}
	return c
}

func (s *Cluster) readVersion(c *doctor.Cluster) {
	c.Version = "of an unknown version"
	d, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return
	}
	if v, err := d.ServerVersion(); err == nil {
		c.Version = v.GitVersion
		c.Major, _ = strconv.Atoi(v.Major)
		c.Minor, _ = strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	}
}

// askBroker asks the broker as this member.
func (s *Cluster) askBroker(ctx context.Context, c *doctor.Cluster) {
	h := OpenBroker(ctx, Connection{Config: s.Membership.Config()}, s.Membership.Namespace, "cluster "+s.ID)
	c.AskedBroker = true
	if h.Problem != nil {
		c.BrokerProblem = h.Problem.Error()
		return
	}
	c.BrokerDenied = s.denied(ctx, h.Client, memberNeeds(s.Membership))
}

func (s *Cluster) readWorkloads(ctx context.Context, c *doctor.Cluster) {
	if err := s.Client.List(ctx, &appsv1.DeploymentList{}, client.InNamespace(objects.AgentNamespace), client.Limit(1)); err != nil {
		c.WorkloadsProblem = "what runs in " + objects.AgentNamespace + " cannot be read: " + objects.ErrorText(err)
		return
	}
	c.Agent, c.DNS = s.deployment(ctx, agentDeployment), s.deployment(ctx, DNSName)
	if objects.DataPlaneOf(c.DataPlane).RunsProxy {
		c.Proxy = s.daemonSet(ctx, proxyDaemonSet)
		state := s.readProxies(ctx)
		c.ProxyErrors, c.Proxies = state.errors, state.describe(s.clock.now(time.Now()))
	}
}

// readForwarding reads the addresses of seamark-dns and the configuration of the cluster's own DNS, or why that is not known.
func (s *Cluster) readForwarding(ctx context.Context) (addresses []string, corefile, problem string) {
	service := &corev1.Service{}
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: objects.AgentNamespace, Name: DNSName}, service); err == nil {
		addresses = service.Spec.ClusterIPs
	}
	config := &corev1.ConfigMap{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}, config)
	switch {
	case apierrors.IsNotFound(err):
		problem = "there is no ConfigMap kube-system/coredns: this cluster's DNS is not CoreDNS as usual; see that it forwards clusterset.local to seamark-dns"
	case err != nil:
		problem = "ConfigMap kube-system/coredns cannot be read: " + objects.ErrorText(err)
	case config.Data["Corefile"] == "":
		problem = "ConfigMap kube-system/coredns has no Corefile: see that this cluster's DNS forwards clusterset.local to seamark-dns"
	}
	return addresses, config.Data["Corefile"], problem
}

// readServices finds exports that complain, and a name to ask DNS for.
func (s *Cluster) readServices(ctx context.Context, c *doctor.Cluster, o FactOptions) {
	held := s.ReadServices(ctx, "")
	for i := range held.Exports {
		if status.ExportProblem(&held.Exports[i]) != "" {
			c.BadExports = append(c.BadExports, held.Exports[i].Namespace+"/"+held.Exports[i].Name)
		}
	}
	c.Asked = "clusterset.local"
	for i := range held.Imports {
		if si := &held.Imports[i]; objects.IsManagedImport(si) && len(si.Spec.IPs) > 0 {
			c.Asked, c.Expect = si.Name+"."+si.Namespace+".svc.clusterset.local", si.Spec.IPs
			break
		}
	}
	c.Answer = s.askDNS(ctx, c.Asked+".", cmp.Or(o.DNS[c.ID], o.DNS[c.Context], o.DNS[""]))
}
