package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// oldestMinor is the first Kubernetes 1.x with the ValidatingAdmissionPolicies that protect a
// member's id.
const oldestMinor = 30

func checkAPIServer(f *Facts) []Result {
	var out []Result
	for i := range f.Clusters {
		c := &f.Clusters[i]
		switch {
		case c.Problem != "":
			out = append(out, fail("check the context and its credential: "+c.kubectl("get --raw /readyz"), "%s", c.Problem).at(c.ID))
		case c.Major == 1 && c.Minor > 0 && c.Minor < oldestMinor:
			out = append(out, fail("upgrade the cluster", "Kubernetes %s is older than 1.%d: its admission policies cannot protect the member's id",
				c.Version, oldestMinor).at(c.ID))
		default:
			out = append(out, pass("Kubernetes %s", c.Version).at(c.ID))
		}
	}
	return out
}

func checkPermissions(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		if len(c.Denied) > 0 {
			return warn("run it as a user who may, or have the admin of "+c.ID+" allow it to you",
				"you may not %s: checks that depend on it are skipped", strings.Join(c.Denied, ", nor "))
		}
		return pass("you may read everything that is needed")
	})
}

func checkCRDs(f *Facts) []Result {
	judge := func(kinds []Kind, problem, fix string) Result {
		if problem != "" {
			return skip("%s", problem)
		}
		var bad []string
		for _, k := range kinds {
			switch {
			case k.Missing:
				bad = append(bad, k.Name+" is not installed")
			case !slices.ContainsFunc(k.AnyOf, func(v string) bool { return slices.Contains(k.Served, v) }):
				bad = append(bad, fmt.Sprintf("%s serves %s, not %s", k.Name, strings.Join(k.Served, ", "), strings.Join(k.AnyOf, " or ")))
			}
		}
		if len(bad) > 0 {
			return fail(fix, "%s", strings.Join(bad, "; "))
		}
		return pass("%d CRDs", len(kinds))
	}
	out := each(f, func(c *Cluster) Result {
		if !c.Member {
			return Result{}
		}
		return judge(c.Kinds, c.KindsProblem, "join again, which installs them: seamark join")
	})
	if f.Broker.Problem == "" {
		out = append(out, judge(f.Broker.Kinds, f.Broker.KindsProblem, "the broker's admin runs seamark broker deploy again").at("broker"))
	}
	return out
}

func checkMembership(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		switch {
		case c.Removed != "":
			return fail(c.inviteAgain(), "the cluster was removed from its clusterset at %s: its agent deletes its imports, and its exports are idle",
				c.Removed)
		case !c.Member:
			return fail("join it: seamark join --help", "the cluster is not a member of a clusterset")
		case c.MembershipProblem != "" && len(c.Denied) > 0:
			return skip("member of %s; its credential was not read: %s", c.ClusterSet, c.MembershipProblem)
		case c.MembershipProblem != "":
			return fail("join again with a new invitation (seamark broker invite "+c.ID+" --renew)", "%s", c.MembershipProblem)
		}
		return pass("member of %s as %s", c.ClusterSet, c.ID)
	})
}

func checkBroker(f *Facts) []Result {
	out := each(f, func(c *Cluster) Result {
		switch {
		case !c.Member:
			return Result{}
		case !c.AskedBroker:
			return skip("the member's credential cannot be used from here")
		case c.Removed != "":
			return fail(c.inviteAgain(), "the broker has removed cluster %s (%s)", c.ID, c.Removed)
		case c.BrokerProblem != "":
			return fail("check that the broker's API server runs and can be reached from here and from "+c.ID+
				"; imported services keep working without it, changes wait for it. "+
				"If it rejects the credential, either the credential expired (seamark broker invite "+c.ID+" --renew) or the cluster was "+
				"removed (the same without --renew); join with the new invitation then", "%s", c.BrokerProblem)
		}
		return pass("it answers %s with its own credential", c.ID)
	})
	if f.Broker.Problem != "" && len(out) == 0 {
		out = append(out, fail("choose a member's context, or give --broker-context", "%s", f.Broker.Problem).at("broker"))
	}
	return out
}

// inviteAgain is the cure for a cluster that was removed. Its invitation cannot be renewed.
func (c *Cluster) inviteAgain() string {
	return "to be a member again, join with a new invitation (seamark broker invite " + c.ID + "); otherwise run seamark leave"
}

func checkBrokerPermissions(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		switch {
		case !c.AskedBroker || c.BrokerProblem != "":
			return Result{}
		case len(c.BrokerDenied) > 0:
			return fail("the broker's admin renews the invitation, which restores the roles: seamark broker invite "+c.ID+" --renew",
				"the member may not %s", strings.Join(c.BrokerDenied, ", nor "))
		}
		return pass("the member may publish, import and renew its lease")
	})
}

func checkFairness(f *Facts) []Result {
	b := &f.Broker
	if b.Problem != "" {
		return nil // another check says so
	}
	result := pass("the members have their own share of the API server")
	switch {
	case b.FairnessProblem != "":
		result = skip("%s", b.FairnessProblem)
	case len(b.FairnessMissing) > 0:
		result = warn("an admin of the broker's cluster runs seamark broker deploy again, which installs them",
			"not installed: %s. A noisy member can delay the heartbeats of others", strings.Join(b.FairnessMissing, ", "))
	}
	return []Result{result.at("broker")}
}

func checkRegistration(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	return each(f, func(c *Cluster) Result {
		if !c.Member {
			return Result{}
		}
		if f.Broker.member(c.ID) == nil {
			return fail(c.inviteAgain(), "the broker has no Cluster %s", c.ID)
		}
		return pass("Cluster %s", c.ID)
	})
}

const (
	// skewWarns is the difference between clocks from which times in logs and objects mislead.
	skewWarns = 30 * time.Second
	// skewFails is the difference from which API servers reject credentials as not yet or no longer
	// valid.
	skewFails = 5 * time.Minute
)

func checkClocks(f *Facts) []Result {
	judge := func(ahead *time.Duration, of string) Result {
		const fix = "let the machine follow a time server (chrony, systemd-timesyncd)"
		switch {
		case ahead == nil:
			return skip("its clock is not known")
		case ahead.Abs() >= skewFails:
			return fail(fix, "its clock is %s %s %s: credentials may be rejected", humanAge(*ahead), direction(*ahead), of)
		case ahead.Abs() >= skewWarns:
			return warn(fix, "its clock is %s %s %s; Seamark does not depend on that, but the times in logs and objects mislead",
				humanAge(*ahead), direction(*ahead), of)
		}
		return pass("within %s of %s", skewWarns, of)
	}
	out := each(f, func(c *Cluster) Result { return judge(c.ClockAhead, "this machine's") })
	if f.Broker.Problem != "" {
		return out
	}
	out = append(out, judge(f.Broker.ClockAhead, "this machine's").at("broker"))
	for i := range f.Broker.Members {
		if m := &f.Broker.Members[i]; m.Skew != nil && m.Skew.Abs() >= skewWarns {
			out = append(out, judge(m.Skew, "the broker's (by its agent's heartbeat)").at(m.Name))
		}
	}
	return out
}

func humanAge(d time.Duration) string { return duration.HumanDuration(d.Abs()) }

func direction(d time.Duration) string {
	if d > 0 {
		return "ahead of"
	}
	return "behind"
}

func checkHeartbeat(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return []Result{skip("the broker cannot be read").at("broker")}
	}
	return each(f, func(c *Cluster) Result {
		m := f.Broker.member(c.ID)
		switch {
		case m == nil:
			return Result{}
		case !m.Life.Joined:
			return fail(agentFix(c), "the member has never renewed its lease: its agent has not run, or cannot reach the broker")
		case !m.Life.Alive:
			return fail(agentFix(c), "the last heartbeat was %s ago: the agent does not run, or cannot reach the broker. "+
				"Other clusters stop using this one's endpoints where another cluster serves", duration.HumanDuration(m.Life.Age))
		case m.HasCopy:
			return fail("in the cluster that should not have the id: seamark leave, then join with another --clusterid",
				"two clusters have the id %s and the same kube-system uid, as clusters restored from one backup have. "+
					"One of them publishes and imports nothing", c.ID)
		}
		return pass("%s ago", duration.HumanDuration(m.Life.Age))
	})
}

func agentFix(c *Cluster) string {
	if c.Agent == nil {
		return "start seamark-agent, or install it with seamark join; then read its log"
	}
	return c.kubectl("-n seamark-system logs deployment/seamark-agent")
}

func checkOthers(f *Facts) []Result {
	if f.Broker.Problem != "" {
		return nil
	}
	var silent, never, left []string
	for i := range f.Broker.Members {
		m := &f.Broker.Members[i]
		switch {
		case slices.ContainsFunc(f.Clusters, func(c Cluster) bool { return c.ID == m.Name }):
		case m.Left:
			left = append(left, m.Name)
		case !m.Life.Joined:
			never = append(never, m.Name)
		case !m.Life.Alive:
			silent = append(silent, fmt.Sprintf("%s (%s)", m.Name, duration.HumanDuration(m.Life.Age)))
		}
	}
	switch {
	case len(silent) > 0:
		return []Result{warn("bring them back; remove one that is gone for good: seamark cluster remove ID",
			"silent: %s", strings.Join(silent, ", ")).at("broker")}
	case len(never) > 0:
		return []Result{warn("join them with their invitations, or revoke the invitations: seamark cluster remove ID",
			"invited, but never joined: %s", strings.Join(never, ", ")).at("broker")}
	case len(left) > 0:
		return []Result{warn("free their ids and blocks of clusterset IPs: seamark cluster remove ID; or join them again",
			"left, but still registered: %s", strings.Join(left, ", ")).at("broker")}
	}
	return []Result{pass("%d members", len(f.Broker.Members)).at("broker")}
}

func checkVersions(f *Facts) []Result {
	by := map[string][]string{}
	for i := range f.Broker.Members {
		if m := &f.Broker.Members[i]; m.Status.AgentVersion != "" {
			by[m.Status.AgentVersion] = append(by[m.Status.AgentVersion], m.Name)
		}
	}
	if len(by) == 0 {
		return nil
	}
	if len(by) == 1 {
		for version := range by {
			return []Result{pass("%s", version).at("broker")}
		}
	}
	var parts []string
	for version, members := range by {
		parts = append(parts, version+" in "+strings.Join(members, ", "))
	}
	slices.Sort(parts)
	return []Result{warn("upgrade the older ones; neighbouring versions work together", "%s", strings.Join(parts, "; ")).at("broker")}
}
