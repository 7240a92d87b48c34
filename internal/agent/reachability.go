package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	a.addFailover()
	p, log := a.prober, a.Log.WithName("reach")
	p.Families, p.Targets, p.Endpoints, p.Log = a.facts.Families, a.probeTargets(), a.endpointsToTry, log
	announce := a.reportReachability(a.manager.GetEventRecorder("seamark-agent").Eventf)
	p.Changed = func(changes []reach.Change) {
		states := make([]objects.Reachability, len(changes))
		for i, c := range changes {
			states[i] = c.Reachability
		}
		a.failover.Report(states...) // before it is announced: clients wait for it
		announce(changes)
	}
	p.Answered = func(key reach.Key, latency time.Duration) {
		a.metrics.ProbeLatency.WithLabelValues(key.Cluster).Observe(latency.Seconds())
	}
	return errors.Join(a.manager.Add(manager.RunnableFunc(p.Run)), a.manager.Add(manager.RunnableFunc(a.failover.Run)))
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
// imports, in the families of what it imports. It logs addresses that are refused, once. They are
// not known before the members, this cluster's own addresses, its imports and the unreachable
// clusters of an earlier leader are.
func (a *agent) probeTargets() func() ([]reach.Target, bool) {
	refused := map[reach.Key]string{}
	return func() ([]reach.Target, bool) {
		if !a.state.Known() || !a.sourcesKnown() || !a.unreachableRestored.Load() {
			return nil, false
		}
		check := a.addressCheck()
		var out []reach.Target
		clusters := a.sources.clusters()
		for _, id := range clusters {
			for _, family := range a.facts.Families {
				key := reach.Key{Cluster: id, Family: family}
				if !a.sources.has(key) {
					continue // no verdict is needed, and no endpoint could acquit the cluster
				}
				target, why := targetOf(a.clusters.Get(id), key, check.WhyRefused)
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
		return out, true
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
	for _, service := range a.sources.servicesOf(key, sampledServices) {
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
