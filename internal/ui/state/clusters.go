package state

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/objects"
)

// MaxPool is the largest size of a pool that is counted: an IPv6 block holds more than a page needs
// to say.
const MaxPool = 1 << 24

// ClusterFacts is what the page knows of the clusters beside the report of status.
type ClusterFacts struct {
	// Read are the clusters that the page looks into, with the time at which each answered last.
	Read map[string]time.Time
	// Kubernetes is the version of API servers, by cluster.
	Kubernetes map[string]string
	// Used are the clusterset IPs in use, sorted.
	Used []netip.Addr
	// Checks are the last results of doctor.
	Checks []doctor.Result
}

// NewClusters arranges what status and doctor found about the clusters. before are the clusters of
// the previous snapshot: members that only a broker knows which does not answer are kept.
func NewClusters(report *status.Report, facts *ClusterFacts, before []Cluster) []Cluster {
	var out []Cluster
	for _, m := range report.Clusters {
		c := Cluster{Member: m, Kubernetes: facts.Kubernetes[m.ID], Pool: poolOf(m.Blocks, facts.Used)}
		seen, read := facts.Read[m.ID]
		c.Read = read
		if read && m.Problem != "" && !seen.IsZero() {
			c.LastSeen = &seen
		}
		for _, r := range facts.Checks {
			if r.Where == m.ID && (r.Status == doctor.Warn || r.Status == doctor.Fail) {
				c.Checks = append(c.Checks, r)
			}
		}
		out = append(out, c)
	}
	if report.Broker.Problem != "" {
		out = keepClusters(out, before)
	}
	slices.SortFunc(out, func(a, b Cluster) int { return cmp.Compare(a.ID, b.ID) })
	for i := range out {
		out[i].Verdict = out[i].verdict(report.Reachability)
	}
	return out
}

// keepClusters adds the clusters that only the broker knows, and what the broker said of the
// others, from the previous snapshot.
func keepClusters(out, before []Cluster) []Cluster {
	for _, last := range before {
		at := slices.IndexFunc(out, func(c Cluster) bool { return c.ID == last.ID })
		if at < 0 {
			last.State = status.Unknown
			out = append(out, last)
			continue
		}
		c := &out[at]
		c.LastHeartbeat, c.AgentVersion, c.DataPlane = last.LastHeartbeat, last.AgentVersion, last.DataPlane
		c.Blocks, c.Namespaces, c.Pool = last.Blocks, last.Namespaces, last.Pool
		c.Endpoints, c.ReadyEndpoints, c.Exports = last.Endpoints, last.ReadyEndpoints, max(c.Exports, last.Exports)
	}
	return out
}

// verdict sums up a cluster: what does not answer is unknown; otherwise the worst of its heartbeat,
// its checks, and whether other clusters reach it.
func (c *Cluster) verdict(paths []status.Path) Verdict {
	if c.Problem != "" {
		return Unknown
	}
	verdict := OK
	switch c.State {
	case status.Silent:
		verdict = Fail
	case status.Unknown:
		verdict = Unknown
	case status.Alive, status.Invited:
	}
	for _, check := range c.Checks {
		if check.Status == doctor.Fail {
			verdict = worse(verdict, Fail)
		} else {
			verdict = worse(verdict, Warn)
		}
	}
	for _, p := range paths {
		if (p.Cluster == c.ID || p.From == c.ID) && p.State == objects.Unreachable {
			verdict = worse(verdict, Warn)
		}
	}
	return verdict
}

// poolOf counts the IPv4 addresses of blocks, or those of IPv6 if there are no others.
func poolOf(blocks []string, used []netip.Addr) *Pool {
	var four, six []netip.Prefix
	for _, text := range blocks {
		switch p, err := netip.ParsePrefix(text); {
		case err != nil:
		case p.Addr().Is4():
			four = append(four, p)
		default:
			six = append(six, p)
		}
	}
	if len(four) == 0 {
		four = six
	}
	if len(four) == 0 {
		return nil
	}
	inUse, size := doctor.PoolUse(four, used)
	return &Pool{Used: inUse, Size: int(min(size, MaxPool))}
}

// MaxPaths is how many paths are shown: where agents of many clusters were asked, those with
// trouble.
const MaxPaths = 5000

// NewPaths arranges who reaches whom: trouble first, and at most MaxPaths.
func NewPaths(report *status.Report) []Path {
	out := make([]Path, 0, len(report.Reachability))
	for i := range report.Reachability {
		out = append(out, Path{Path: report.Reachability[i], Why: report.Reachability[i].Why()})
	}
	rank := map[objects.ReachState]int{objects.Unreachable: 0, objects.SilentButServing: 1, objects.ReachabilityUnknown: 2, objects.Reachable: 3}
	slices.SortStableFunc(out, func(a, b Path) int {
		return cmp.Or(cmp.Compare(rank[a.State], rank[b.State]), cmp.Compare(a.From, b.From), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Family, b.Family))
	})
	return out[:min(len(out), MaxPaths)]
}
