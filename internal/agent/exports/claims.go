package exports

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Addressing is what was read to decide about the clusterset IPs of a service.
type Addressing struct {
	// Stale are the clusters that have not been heard from.
	Stale map[string]bool
	// Accepts reports whether a clusterset IP may be used for this service: it lies in the
	// clusterset's ranges, and no other service has it.
	Accepts func(netip.Addr) bool
	// Remembered are the clusterset IPs that this cluster last saw of the service: a broker that lost
	// the records gets the service back with the IPs that its clients use.
	Remembered []netip.Addr
	// Offer returns a clusterset IP for the service: the wanted one if no other service has it, else
	// one of this member's block.
	Offer func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error)
	// TakesOver reports whether this member has waited long enough for the exporter with precedence.
	TakesOver bool
}

// Claims are the clusterset IPs that a record claims.
type Claims struct {
	// IPs are in canonical form, IPv4 first.
	IPs []string
	// Reserved reports whether some of IPs come from Offer.
	Reserved bool
	// Shortage is why the service has no clusterset IP although it should have one.
	Shortage error
	// Missing reports whether the service should have a clusterset IP and has none.
	Missing bool
	// Delay is how long this member leaves it to the exporter with precedence to claim a clusterset IP
	// that is missing, counted from when it first saw that.
	Delay time.Duration
}

// claim decides which clusterset IPs the record of this cluster claims: those that the service has,
// so that they outlive whichever exporter leaves, and those that it lacks, if it is this exporter's
// turn. A clusterset IP stays with its service even while it is not used, because the service is
// headless or has fewer families.
func (in Input) claim(merged merge.Result, records []*v1alpha1.ExportRecord) Claims {
	var c Claims
	var ips []netip.Addr
	for _, have := range merge.ClusterSetIPs(records, in.Accepts) {
		ips = append(ips, have.IP)
	}
	if merged.Mode == merge.ModeClusterSetIP && slices.Contains(merged.Clusters, in.ClusterID) {
		for _, family := range merged.Spec.IPFamilies {
			if !hasFamily(ips, family) {
				ips = append(ips, c.allocate(in, merged, family)...)
			}
		}
		c.Missing = len(ips) == 0
	}
	if !c.Missing {
		// One clusterset IP is enough to be reached: a clusterset may have no range for the other family.
		c.Shortage = nil
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	for _, ip := range ips {
		c.IPs = append(c.IPs, ip.String())
	}
	return c
}

// allocate returns a new clusterset IP, none if that is left to another exporter or if there is
// none left.
func (c *Claims) allocate(in Input, merged merge.Result, family corev1.IPFamily) []netip.Addr {
	if merged.FirstLive(in.Stale) != in.ClusterID && !in.TakesOver {
		c.Delay = objects.TakeoverDelay(in.ClusterID, types.NamespacedName{Namespace: in.Export.Namespace, Name: in.Export.Name})
		return nil
	}
	var wanted netip.Addr
	for _, addr := range in.Remembered {
		if objects.FamilyOf(addr) == family && in.Accepts(addr) {
			wanted = addr
		}
	}
	addr, err := in.Offer(family, wanted)
	if err != nil {
		c.Shortage = err
		return nil
	}
	c.Reserved = true
	return []netip.Addr{addr}
}

func hasFamily(ips []netip.Addr, family corev1.IPFamily) bool {
	return slices.ContainsFunc(ips, func(addr netip.Addr) bool { return objects.FamilyOf(addr) == family })
}

// adoptMode sets whether the record uses a clusterset IP. What runs stays, whoever leaves: an
// exporter that does not decide the mode adopts it, and so does one that joins a running service.
// The request of the first exporter holds for the lifetime of the service (spec 5, "Updating
// annotation"). A difference between request and mode is reported as a conflict.
func (in Input) adoptMode(record *v1alpha1.ExportRecord) {
	others := slices.DeleteFunc(slices.Clone(in.Records), func(r *v1alpha1.ExportRecord) bool { return r.Spec.ClusterID == record.Spec.ClusterID })
	old := recordFrom(in.Records, in.ClusterID)
	published := old != nil && old.Spec.ExportedAt.Equal(&record.Spec.ExportedAt)
	if published {
		record.Spec.UseClusterSetIP = old.Spec.UseClusterSetIP
	}
	running := merge.Merge(append(others, record))
	if len(running.Clusters) > 0 && running.Clusters[0] == in.ClusterID {
		if published {
			return // this export decides, and its mode stays
		}
		running = merge.Merge(others)
	}
	switch running.Mode {
	case merge.ModeClusterSetIP:
		record.Spec.UseClusterSetIP = true
	case merge.ModeClassic:
		record.Spec.UseClusterSetIP = false
	}
}

// claimed remembers the clusterset IPs that this cluster's records claimed, as long as their
// services are exported: if a record is deleted on the broker, the service gets the same ones back,
// although this cluster's import may be gone with the record. The zero value has none.
type claimed struct {
	mu  sync.Mutex
	ips map[types.NamespacedName][]netip.Addr
}

func (c *claimed) set(service types.NamespacedName, ips []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ips) == 0 {
		delete(c.ips, service)
		return
	}
	if c.ips == nil {
		c.ips = map[types.NamespacedName][]netip.Addr{}
	}
	c.ips[service] = ips
}

func (c *claimed) of(service types.NamespacedName) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ips[service]
}
