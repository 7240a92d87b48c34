package doctor

import (
	"fmt"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// checkBeacons checks the beacons of each cluster, and whether those of others answer it.
func checkBeacons(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		m := f.Broker.member(c.ID)
		switch {
		case !c.Member || (c.Beacon == nil && c.Agent == nil):
			return Result{} // its agent runs elsewhere, and nothing of the chart is installed
		case c.WorkloadsProblem != "":
			return skip("%s", c.WorkloadsProblem)
		case c.Beacon == nil:
			return skip("there is no Deployment seamark-beacon: other clusters can judge this one by its lease only")
		case c.Beacon.Ready == 0:
			return warn(c.describe("beacon"), "none of %d pods is ready: other clusters can judge this one by its lease only", c.Beacon.Want)
		case m != nil && (m.Status.Beacons == nil || len(m.Status.Beacons.Addresses) == 0):
			return warn("see why: "+c.kubectl("-n seamark-system logs deployment/seamark-agent --all-pods"),
				"%d of %d pods are ready, but the broker has none of their addresses", c.Beacon.Ready, c.Beacon.Want)
		}
		if result := c.judgeReachability(); result.Status != "" {
			return result
		}
		if c.Beacon.Ready < c.Beacon.Want {
			return warn(c.describe("beacon"), "%d of %d pods are ready", c.Beacon.Ready, c.Beacon.Want)
		}
		return pass("%d of %d pods are ready, and those of other clusters answer", c.Beacon.Ready, c.Beacon.Want)
	})
}

// judgeReachability returns what is wrong with how the cluster reaches others; nothing if it
// reaches all that publish beacons.
func (c *Cluster) judgeReachability() Result {
	by := map[objects.ReachReason][]string{}
	for _, r := range c.Reachability {
		by[r.Reason] = append(by[r.Reason], fmt.Sprintf("%s (%s)", r.Cluster, r.Family))
	}
	open := fmt.Sprintf("open UDP port %d from the pods of %s to the pods of these clusters: in firewalls, security groups and NetworkPolicies",
		wire.Port, c.ID)
	switch {
	case len(by[objects.ReachNoAnswer]) > 0:
		return fail("restore the network between the clusters' pods", "neither beacons nor endpoints answer any more: %s",
			firstNames(by[objects.ReachNoAnswer]))
	case len(by[objects.ReachEndpointsAnswer]) > 0:
		return warn(open, "beacons do not answer any more, although endpoints do: %s", firstNames(by[objects.ReachEndpointsAnswer]))
	case len(by[objects.ReachNeverAnswered]) > 0:
		return warn(open, "no beacon has answered, so these clusters can be judged by their leases only: %s",
			firstNames(by[objects.ReachNeverAnswered]))
	case len(by[objects.ReachRefused]) > 0:
		return warn("the broker's admin can fix the ranges of a member: spec.endpointRanges of its Cluster",
			"beacons have addresses that their cluster may not publish: %s", firstNames(by[objects.ReachRefused]))
	}
	return Result{}
}
