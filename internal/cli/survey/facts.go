package survey

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// FactOptions are the choices of the user who runs doctor.
type FactOptions struct {
	Servers Servers
	// ProbeImage is the image of the pod that tries to reach pods of other clusters; empty for
	// none.
	ProbeImage string
	// ObjectsOnly leaves out what needs another verb than get, list and watch: the permissions of the
	// user, and what is asked of workloads.
	ObjectsOnly bool
}

// ReadFacts reads what the checks of doctor need.
func ReadFacts(ctx context.Context, clusters []*Cluster, b *Broker, o FactOptions) doctor.Facts {
	facts := doctor.Facts{Broker: b.readFacts(ctx)}
	read := make([]doctor.Cluster, len(clusters))
	var reading sync.WaitGroup
	for i, c := range clusters {
		reading.Go(func() { read[i] = c.readFacts(ctx, o) })
	}
	reading.Wait()
	for i := range read {
		c := &read[i]
		if c.Problem == "" && !c.Member && c.Removed == "" && b.isOn(clusters[i]) {
			continue // a broker that is no member
		}
		for j := range facts.Broker.Members {
			if m := &facts.Broker.Members[j]; m.Name == c.ID {
				c.DataPlane = cmp.Or(c.DataPlane, m.Status.DataPlane)
			}
		}
		if c.Problem == "" && c.Member {
			clusters[i].probe(ctx, b, o.ProbeImage, c)
		}
		facts.Clusters = append(facts.Clusters, *c)
	}
	return facts
}

func (b *Broker) readFacts(ctx context.Context) doctor.Broker {
	if b.Problem != nil {
		return doctor.Broker{Problem: b.Problem.Error()}
	}
	out := doctor.Broker{Server: b.Config.Host, Namespace: b.Namespace, Set: b.ClusterSet}
	var (
		members v1alpha1.ClusterList
		leases  coordinationv1.LeaseList
		records v1alpha1.ExportRecordList
	)
	for _, list := range []client.ObjectList{&members, &leases, &records} {
		if err := b.Client.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
			return doctor.Broker{Problem: "the broker at " + b.Config.Host + ": " + objects.ErrorText(err)}
		}
	}
	now := b.clock.now(time.Now())
	for i := range members.Items {
		m := doctor.Member{Cluster: members.Items[i]}
		for j := range leases.Items {
			if lease := &leases.Items[j]; lease.Name == m.Name {
				m.Life = explain.LifeOf(lease, now)
				m.Skew = skewOf(lease, m.Life)
				m.HasCopy = lease.Annotations[v1alpha1.AnnotationDuplicate] != ""
				m.Left = objects.RemovedAt(lease) != ""
			}
		}
		out.Members = append(out.Members, m)
	}
	out.Ignored, out.Held = ignored(members.Items, records.Items), held(records.Items)
	out.Used = UsedAddresses(records.Items)
	out.Kinds, out.KindsProblem = ReadKinds(ctx, b.Client, crds.Broker)
	if missing, err := brokeradmin.MissingFairness(ctx, b.Client, b.Namespace); err != nil {
		out.FairnessProblem = "FlowSchemas and PriorityLevelConfigurations cannot be read: " + objects.ErrorText(err)
	} else {
		out.FairnessMissing = missing
	}
	if ahead, known := b.clock.read(); known {
		out.ClockAhead = &ahead
	}
	return out
}

// UsedAddresses returns the clusterset IPs that records claim, sorted.
func UsedAddresses(records []v1alpha1.ExportRecord) []netip.Addr {
	used := map[netip.Addr]bool{}
	for i := range records {
		for _, addr := range objects.ParseAddresses(records[i].Spec.ClusterSetIPs) {
			used[addr] = true
		}
	}
	return slices.SortedFunc(maps.Keys(used), netip.Addr.Compare)
}

// ignored returns the services of records that their exporters' Cluster objects do not allow: of
// other namespaces, or more than allowed.
func ignored(members []v1alpha1.Cluster, records []v1alpha1.ExportRecord) map[string][]string {
	byID := map[string]*v1alpha1.Cluster{}
	for i := range members {
		byID[members[i].Name] = &members[i]
	}
	slices.SortFunc(records, func(a, b v1alpha1.ExportRecord) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out, published := map[string][]string{}, map[string]int{}
	for i := range records {
		spec := &records[i].Spec
		id := string(spec.ClusterID)
		published[id]++
		if !objects.MayExport(byID[id], spec.ServiceNamespace) || published[id] > objects.LimitsOf(byID[id]).Services {
			out[id] = append(out[id], spec.ServiceNamespace+"/"+spec.ServiceName)
		}
	}
	return out
}

// held returns the services whose withdrawal their cluster holds.
func held(records []v1alpha1.ExportRecord) map[string][]string {
	out := map[string][]string{}
	for i := range records {
		if spec := &records[i].Spec; records[i].Annotations[v1alpha1.AnnotationWithdrawalHeld] != "" {
			out[string(spec.ClusterID)] = append(out[string(spec.ClusterID)], spec.ServiceNamespace+"/"+spec.ServiceName)
		}
	}
	return out
}

// skewOf returns how far a member's clock is ahead of the broker's: the time that the member wrote
// into its lease, less the time at which the broker stored it. It is nil when unknown.
func skewOf(lease *coordinationv1.Lease, life explain.Life) *time.Duration {
	if !life.Joined || life.Last.Equal(lease.Spec.RenewTime.Time) {
		return nil
	}
	skew := lease.Spec.RenewTime.Sub(life.Last)
	return &skew
}

// ReadKinds reads which versions of the CRDs of a set are served, or returns why that cannot be
// read.
func ReadKinds(ctx context.Context, c client.Client, set crds.Set) (kinds []doctor.Kind, problem string) {
	definitions, err := crds.Definitions(set)
	if err != nil {
		return nil, err.Error()
	}
	for _, d := range definitions {
		existing, err := GetIfServed(ctx, c, types.NamespacedName{Name: d.CRD.Name}, &apiextensionsv1.CustomResourceDefinition{})
		if err != nil {
			return nil, "CustomResourceDefinitions cannot be read: " + objects.ErrorText(err)
		}
		kind := doctor.Kind{Name: d.CRD.Name, AnyOf: d.AnyOf, Missing: existing == nil}
		if existing != nil {
			for _, v := range existing.Spec.Versions {
				if v.Served {
					kind.Served = append(kind.Served, v.Name)
				}
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds, ""
}

func (c *Cluster) readFacts(ctx context.Context, o FactOptions) doctor.Cluster {
	out := doctor.Cluster{
		ID: c.Name(), Context: c.Context, Member: c.IsMember(), ClusterSet: c.ClusterSet, MembershipProblem: c.MembershipProblem,
		Removed: c.Removed,
	}
	if c.Problem != nil {
		out.Problem = c.Problem.Error()
		return out
	}
	c.readVersion(&out)
	out.Kinds, out.KindsProblem = ReadKinds(ctx, c.Client, crds.Member)
	if !o.ObjectsOnly {
		out.Denied = deniedOf(ctx, c.Client, userPermissions)
	}
	if c.Membership != nil {
		out.DataPlane = c.Membership.DataPlane
		c.askBroker(ctx, &out, o.ObjectsOnly)
	}
	c.readWorkloads(ctx, &out, o.ObjectsOnly)
	dns := c.readDNS(ctx)
	out.Zone, out.DNSAddresses, out.Corefile, out.CorefileProblem = dns.zone, dns.addresses, dns.corefile, dns.problem
	c.readServiceFacts(ctx, &out)
	if o.ObjectsOnly {
		out.Answer = &explain.Answer{NotAsked: "only objects are read"}
	} else {
		out.Answer = c.askDNS(ctx, out.Asked, o.Servers.of(c))
	}
	if ahead, known := c.clock.read(); known {
		out.ClockAhead = &ahead
	}
	return out
}

func (c *Cluster) readVersion(out *doctor.Cluster) {
	out.Version = "of an unknown version"
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return
	}
	if v, err := d.ServerVersion(); err == nil {
		out.Version = v.GitVersion
		out.Major, _ = strconv.Atoi(v.Major)
		out.Minor, _ = strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	}
}

// askBroker checks whether the broker accepts the credential of this member, and what it allows.
func (c *Cluster) askBroker(ctx context.Context, out *doctor.Cluster, objectsOnly bool) {
	b := OpenBroker(ctx, Connection{Config: c.brokerConfig()}, c.Membership.Namespace, "cluster "+c.ID)
	out.AskedBroker = true
	if b.Problem != nil {
		out.BrokerProblem = b.Problem.Error()
		if b.refused {
			key := types.NamespacedName{Namespace: c.Membership.Namespace, Name: c.Membership.ClusterID}
			if lease, err := GetIfServed(ctx, b.Client, key, &coordinationv1.Lease{}); err == nil && lease != nil {
				out.Removed = cmp.Or(out.Removed, objects.RemovedAt(lease))
			}
		}
		return
	}
	if !objectsOnly {
		out.BrokerDenied = deniedOf(ctx, b.Client, memberPermissions(c.Membership))
	}
}

func (c *Cluster) readWorkloads(ctx context.Context, out *doctor.Cluster, objectsOnly bool) {
	if err := c.Client.List(ctx, &appsv1.DeploymentList{}, client.InNamespace(objects.AgentNamespace), client.Limit(1)); err != nil {
		out.WorkloadsProblem = "the workloads in " + objects.AgentNamespace + " cannot be read: " + objects.ErrorText(err)
		return
	}
	out.Agent, out.DNS, out.Beacon = c.deployment(ctx, agentDeployment), c.deployment(ctx, DNSServer), c.deployment(ctx, objects.BeaconService)
	out.Proxy = c.daemonSet(ctx, proxyDaemonSet)
	if objectsOnly {
		return
	}
	out.Reachability = c.askReachability(ctx)
	if objects.DataPlaneOf(out.DataPlane).RunsProxy {
		state := c.readProxies(ctx)
		out.ProxyErrors, out.ProxyDamage, out.ProxyCutOff = state.failed, state.damaged, state.cutOff
		out.Proxies = state.describe(c.clock.now(time.Now()))
	}
}

// readServiceFacts finds exports that are not published as they should be, and the name that DNS is
// asked for: that of an import, or the zone if there is none.
func (c *Cluster) readServiceFacts(ctx context.Context, out *doctor.Cluster) {
	services := c.readServices(ctx, "")
	for i := range services.Exports {
		if e := &services.Exports[i]; status.ExportProblem(e) != "" {
			out.BadExports = append(out.BadExports, e.Namespace+"/"+e.Name)
		}
	}
	out.Asked = out.Zone
	for i := range services.Imports {
		if si := &services.Imports[i]; objects.IsManagedImport(si) && len(si.Spec.IPs) > 0 {
			out.Asked, out.Expect = objects.DNSName(client.ObjectKeyFromObject(si), out.Zone), si.Spec.IPs
			break
		}
	}
	for i := range services.Imports {
		si := &services.Imports[i]
		held := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionWithdrawalHeld))
		if held != nil && held.Reason == string(v1alpha1.ServiceImportReasonRecordsLost) {
			out.HeldImports = append(out.HeldImports, si.Namespace+"/"+si.Name)
		}
	}
}
