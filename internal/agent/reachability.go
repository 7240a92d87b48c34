package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/member"
	"github.com/seamark-dev/seamark/internal/agent/reach"
	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// sampledServices is how many services of a cluster are looked at for endpoints to try.
const sampledServices = 16

// addReachability adds what publishes the beacons of this cluster and probes those of others.
func (a *agent) addReachability(ctx context.Context) error {
	var err error
	if a.beacons, err = member.WatchBeacons(ctx, a.manager.GetCache(), a.requestStatus); err != nil {
		return err
	}
	a.sources = &importSources{own: a.membership.ClusterID, byCluster: map[string]map[types.NamespacedName]bool{}}
	if _, err = member.Watch(ctx, a.manager.GetCache(), &mcsv1beta1.ServiceImport{}, a.sources.observe); err != nil {
		return err
	}
	p, log := a.prober, a.Log.WithName("reach")
	p.Families, p.Targets, p.Endpoints, p.Log = a.facts.Families, a.probeTargets(), a.endpointsToTry, log
	p.Changed = a.reportReachability(a.manager.GetEventRecorder("seamark-agent").Eventf)
	p.Answered = func(key reach.Key, latency time.Duration) {
		a.metrics.ProbeLatency.WithLabelValues(key.Cluster).Observe(latency.Seconds())
	}
	return a.manager.Add(manager.RunnableFunc(p.Run))
}

// requestStatus never blocks: one pending request is enough.
func (a *agent) requestStatus() {
	select {
	case a.statusChanged <- struct{}{}:
	default:
	}
}

// ownBeacons returns what this cluster publishes about its beacons: nothing if it never had any.
func (a *agent) ownBeacons(ctx context.Context, published *v1alpha1.Beacons) (*v1alpha1.Beacons, error) {
	if a.beacons == nil {
		return published, nil
	}
	list := a.beacons.Addresses()
	key, err := member.EnsureBeaconKey(ctx, a.localDirect, a.membership.ClusterID, published, len(list) > 0)
	if len(list) == 0 {
		// A cluster that is installed without beacons has no Secret for them either: no error.
		return withoutAddresses(published), nil
	}
	if err != nil {
		return published, err
	}
	return &v1alpha1.Beacons{Port: wire.Port, Key: key, Addresses: list}, nil
}

func withoutAddresses(b *v1alpha1.Beacons) *v1alpha1.Beacons {
	if b == nil {
		return nil
	}
	return &v1alpha1.Beacons{Port: b.Port, Key: b.Key}
}

// addressCheck returns the check for addresses of other clusters, the same as for endpoints.
func (a *agent) addressCheck() imports.AddressCheck {
	return imports.AddressCheck{
		ClusterID: a.membership.ClusterID, ServiceRanges: *a.serviceRanges.Load(), IsNodeAddress: a.nodes.IsAddress, WhyNot: a.clusters.WhyNot,
	}
}

// probeTargets returns a function that returns the beacons of all clusters from which this one
// imports. It logs addresses that are refused, once.
func (a *agent) probeTargets() func() []reach.Target {
	refused := map[reach.Key]string{}
	return func() []reach.Target {
		if !a.state.Connected() {
			return nil // neither the members nor this cluster's own addresses are known yet
		}
		check := a.addressCheck()
		var out []reach.Target
		clusters := a.sources.clusters()
		for _, id := range clusters {
			for _, family := range a.facts.Families {
				target, why := targetOf(a.clusters.Get(id), reach.Key{Cluster: id, Family: family}, check.WhyRefused)
				if why != "" && why != refused[target.Key] {
					a.Log.WithName("reach").Info("beacons of a cluster are not probed", "member", id, "family", family, "refused", why)
				}
				refused[target.Key] = why
				out = append(out, target)
			}
		}
		maps.DeleteFunc(refused, func(key reach.Key, _ string) bool {
			if slices.Contains(clusters, key.Cluster) {
				return false
			}
			a.metrics.ProbeLatency.DeleteLabelValues(key.Cluster)
			return true
		})
		return out
	}
}

// targetOf returns the beacons that a cluster publishes in one family. refused is why some of them
// are left out.
func targetOf(
	cluster *v1alpha1.Cluster, key reach.Key, whyRefused func(addr netip.Addr, source string) string,
) (target reach.Target, refused string) {
	target.Key = key
	if cluster == nil || cluster.Status.Beacons == nil {
		return target, ""
	}
	published := cluster.Status.Beacons
	secret, ok := wire.ParseKey(published.Key)
	if !ok || published.Port < 1024 || published.Port > 65535 {
		return target, ""
	}
	identity := wire.NewIdentity(key.Cluster, secret)
	for _, address := range published.Addresses[:min(len(published.Addresses), 2*objects.MaxBeacons)] {
		addr, err := netip.ParseAddr(address.IP)
		if err != nil || objects.FamilyOf(addr) != key.Family {
			continue
		}
		if why := whyRefused(addr, key.Cluster); why != "" {
			refused = fmt.Sprintf("%s %s", addr, why)
			continue
		}
		target.Beacons = append(target.Beacons, reach.Beacon{Address: netip.AddrPortFrom(addr, uint16(published.Port)), Identity: identity})
	}
	target.Refused = refused != "" && len(target.Beacons) == 0
	return target, refused
}

// endpointsToTry returns endpoints of a cluster, of several services that are imported from it.
func (a *agent) endpointsToTry(key reach.Key, limit int) []netip.AddrPort {
	check := a.addressCheck()
	var services [][]*discoveryv1.EndpointSlice
	for _, service := range a.sources.servicesOf(key.Cluster, sampledServices) {
		found, err := index.BrokerSlices(context.Background(), a.broker.GetClient(), service)
		if err != nil {
			continue // nothing to try is no evidence
		}
		services = append(services, slices.DeleteFunc(objects.AdmittedSlices(found, a.clusters.Get), func(s *discoveryv1.EndpointSlice) bool {
			return s.Labels[mcsv1beta1.LabelSourceCluster] != key.Cluster
		}))
	}
	return reach.ChooseEndpoints(services, key.Family, limit, func(addr netip.Addr) bool { return check.WhyRefused(addr, key.Cluster) == "" })
}

// eventf is the method of an event recorder.
type eventf func(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)

// reportReachability returns a function that logs changes and records an event for each.
func (a *agent) reportReachability(record eventf) func([]reach.Change) {
	agent := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: "seamark-agent"},
	}
	return func(changes []reach.Change) {
		for _, c := range changes {
			a.Log.WithName("reach").Info("the reachability of a member changed", "member", c.Cluster, "family", c.Family,
				"state", c.State, "reason", c.Reason, "before", c.Before, "lasted", c.Lasted.Round(time.Millisecond))
			kind := corev1.EventTypeNormal
			if c.State == objects.Unreachable {
				kind = corev1.EventTypeWarning
			}
			record(agent, nil, kind, reachEvents[c.State], "Probe", "cluster %s (%s) is %s: %s", c.Cluster, c.Family, c.State, c.Reason)
		}
	}
}

var reachEvents = map[objects.ReachState]string{
	objects.Reachable: "ClusterReachable", objects.Unreachable: "ClusterUnreachable", objects.ReachabilityUnknown: "ReachabilityUnknown",
}

// importSources knows from which clusters this one imports which services.
type importSources struct {
	own string

	mu        sync.Mutex
	byCluster map[string]map[types.NamespacedName]bool
}

func (s *importSources) observe(si *mcsv1beta1.ServiceImport, deleted bool) {
	if !objects.IsManagedImport(si) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	service := client.ObjectKeyFromObject(si)
	for cluster, services := range s.byCluster {
		if delete(services, service); len(services) == 0 {
			delete(s.byCluster, cluster)
		}
	}
	if deleted {
		return
	}
	for _, c := range si.Status.Clusters {
		if c.Cluster == s.own {
			continue
		}
		if s.byCluster[c.Cluster] == nil {
			s.byCluster[c.Cluster] = map[types.NamespacedName]bool{}
		}
		s.byCluster[c.Cluster][service] = true
	}
}

// clusters returns the clusters from which this one imports, sorted.
func (s *importSources) clusters() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byCluster))
}

// servicesOf returns some services of a cluster.
func (s *importSources) servicesOf(cluster string, limit int) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []types.NamespacedName
	for service := range s.byCluster[cluster] { // in random order
		if len(out) == limit {
			break
		}
		out = append(out, service)
	}
	return out
}
