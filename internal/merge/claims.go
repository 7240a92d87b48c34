package merge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// Claim is a clusterset IP of a service.
type Claim struct {
	IP netip.Addr
	// Cluster is the exporter whose claim decided: that of the oldest record.
	Cluster string
}

// ClusterSetIPs returns the clusterset IPs of a service, at most one per family, IPv4 first. The
// claim of the oldest record counts. That is the age of the record on the broker, which its member
// cannot choose, and not the age of the export. accept reports whether a clusterset IP may be used
// for this service.
func ClusterSetIPs(records []*v1alpha1.ExportRecord, accept func(netip.Addr) bool) []Claim {
	var out []Claim
	for _, r := range slices.SortedFunc(slices.Values(records), byAge) {
		for _, text := range r.Spec.ClusterSetIPs {
			addr, err := netip.ParseAddr(text)
			decided := slices.ContainsFunc(out, func(c Claim) bool { return c.IP.Is4() == addr.Is4() })
			if err == nil && !decided && accept(addr) {
				out = append(out, Claim{IP: addr, Cluster: string(r.Spec.ClusterID)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Claim) int { return a.IP.Compare(b.IP) })
	return out
}

// FirstClaimant returns the record whose service has a clusterset IP, given all records that claim
// it: that of the member whose block it is from, else the oldest. Two services claim the same one
// only if members disagree about their blocks, or if one of them is malicious. Without records it
// returns nil.
func FirstClaimant(records []*v1alpha1.ExportRecord, blockOwner string) *v1alpha1.ExportRecord {
	if len(records) == 0 {
		return nil
	}
	return slices.MinFunc(records, func(a, b *v1alpha1.ExportRecord) int {
		return cmp.Or(
			-compareBool(string(a.Spec.ClusterID) == blockOwner, string(b.Spec.ClusterID) == blockOwner),
			byAge(a, b), cmp.Compare(a.Name, b.Name))
	})
}

// byAge orders records by their age on the broker. A record that is not there yet comes last.
func byAge(a, b *v1alpha1.ExportRecord) int {
	return cmp.Or(
		compareBool(a.CreationTimestamp.IsZero(), b.CreationTimestamp.IsZero()),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Spec.ClusterID, b.Spec.ClusterID))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// FirstLive returns the first cluster by precedence that is not stale, or the first of all if all
// are.
func (r Result) FirstLive(stale map[string]bool) string {
	for _, c := range r.Clusters {
		if !stale[c] {
			return c
		}
	}
	return r.Clusters[0]
}
