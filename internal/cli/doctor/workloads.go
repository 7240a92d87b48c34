package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

// maxNames is how many names a result lists; it counts the rest.
const maxNames = 5

func checkAgent(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		m := f.Broker.member(c.ID)
		switch {
		case !c.Member:
			return Result{}
		case c.WorkloadsProblem != "":
			return skip("%s", c.WorkloadsProblem)
		case c.Agent == nil && m != nil && m.Life.Alive:
			return skip("there is no Deployment seamark-agent, but its heartbeat arrives: it runs outside the cluster")
		case c.Agent == nil:
			return fail("install it (seamark join), or start seamark-agent where it should run",
				"there is no Deployment seamark-agent in seamark-system")
		case c.Agent.Ready == 0:
			return fail(c.describe("agent"), "none of %d pods is ready: nothing is exported or imported", c.Agent.Want)
		case c.Agent.Ready < c.Agent.Want:
			return warn(c.describe("agent"), "%d of %d pods are ready", c.Agent.Ready, c.Agent.Want)
		}
		return pass("%d of %d pods are ready", c.Agent.Ready, c.Agent.Want)
	})
}

func (c *Cluster) describe(component string) string {
	return c.kubectl("-n seamark-system describe pods -l app.kubernetes.io/component=%s", component)
}

func checkExports(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		if !c.Member {
			return Result{}
		}
		if len(c.BadExports) == 0 {
			return pass("all are published")
		}
		namespace, name, _ := strings.Cut(c.BadExports[0], "/") //nolint:forbidigo // a name, not a message
		return warn(fmt.Sprintf("find out why: seamark explain %s -n %s", name, namespace),
			"not published: %s", firstNames(c.BadExports))
	})
}

// firstNames lists at most maxNames of the names.
func firstNames(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		names = append(slices.Clone(names[:maxNames]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func checkDNSServer(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		switch {
		case !c.Member:
			return Result{}
		case c.WorkloadsProblem != "":
			return skip("%s", c.WorkloadsProblem)
		case c.DNS == nil:
			return warn("install it: seamark join does",
				"there is no Deployment seamark-dns: names in %s are not answered, unless by another DNS server", c.zone())
		case c.DNS.Ready == 0:
			return fail(c.describe("dns"), "none of %d pods is ready: names of the clusterset are not answered", c.DNS.Want)
		case c.DNS.Ready < c.DNS.Want:
			return warn(c.describe("dns"), "%d of %d pods are ready", c.DNS.Ready, c.DNS.Want)
		}
		return pass("%d of %d pods are ready", c.DNS.Ready, c.DNS.Want)
	})
}

func checkForward(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		if !c.Member {
			return Result{}
		}
		if c.CorefileProblem != "" {
			return skip("%s", c.CorefileProblem)
		}
		if problem, fix := explain.Forwarding(c.Corefile, c.zone(), c.DNSAddresses); problem != "" {
			return fail(fix, "%s", problem)
		}
		if missing := notForwarded(f, c); len(missing) > 0 {
			return warn("join again, which adds them (seamark join)",
				"%s goes to %s, but reverse names in %s do not: a member joined since, or changed its ranges",
				c.zone(), strings.Join(c.DNSAddresses, ", "), strings.Join(missing, ", "))
		}
		return pass("%s goes to %s", c.zone(), strings.Join(c.DNSAddresses, ", "))
	})
}

// notForwarded returns the ranges whose reverse names a cluster's DNS should forward and has no
// rule for.
func notForwarded(f *Facts, c *Cluster) (missing []string) {
	var members []v1alpha1.Cluster
	var own []netip.Prefix
	for i := range f.Broker.Members {
		m := &f.Broker.Members[i]
		if m.Name == c.ID {
			for _, ranges := range [][]v1alpha1.CIDR{m.Status.PodCIDRs, m.Status.ServiceCIDRs, m.Status.NodeCIDRs} {
				own = append(own, objects.ParsePrefixes(ranges)...)
			}
		}
		if !m.Left {
			members = append(members, m.Cluster)
		}
	}
	for _, r := range objects.ForwardedRanges(f.Broker.Set, members, c.ID, own) {
		if slices.ContainsFunc(corefile.ReverseZones([]netip.Prefix{r}), func(zone string) bool {
			_, forwarded := corefile.Forwards(c.Corefile, zone)
			return !forwarded && !corefile.Answers(c.Corefile, zone)
		}) {
			missing = append(missing, r.String())
		}
	}
	return missing
}

func checkAnswer(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		a := c.Answer
		switch {
		case !c.Member:
			return Result{}
		case a == nil:
			return skip("not asked")
		case a.NotAsked != "":
			return skip("not asked: %s", a.NotAsked)
		case a.Problem != "":
			return fail("check that seamark-dns is ready, and that the DNS server that was asked forwards "+c.zone()+" to it",
				"%s does not answer: %s", a.Server, a.Problem)
		case len(c.Expect) > 0 && !slices.ContainsFunc(a.Addresses, func(x string) bool { return slices.Contains(c.Expect, x) }):
			return fail("if the server that was asked is the cluster's own DNS, "+c.zone()+" is not forwarded (see dns-forward); "+
				"otherwise read the log of seamark-dns",
				"%s answers %s for %s, which should be %s", a.Server, answerText(a), c.Asked, strings.Join(c.Expect, ", "))
		case a.Code != "NOERROR" && a.Code != "NXDOMAIN":
			return fail("read the log of seamark-dns: "+c.kubectl("-n seamark-system logs deployment/seamark-dns"),
				"%s answers %s for %s", a.Server, a.Code, c.Asked)
		}
		return pass("%s answers %s for %s", a.Server, answerText(a), c.Asked)
	})
}

// answerText returns the addresses of an answer, or its response code.
func answerText(a *explain.Answer) string {
	if len(a.Addresses) == 0 {
		return a.Code
	}
	return strings.Join(a.Addresses, ", ")
}

func checkDataPlane(f *Facts) []Result {
	return each(f, func(c *Cluster) Result {
		plane := objects.DataPlaneOf(c.DataPlane)
		switch {
		case !c.Member:
			return Result{}
		case c.DataPlane == "":
			return skip("not known which it is: neither the membership nor the broker can be read")
		case plane.DerivesService && c.Proxy != nil && c.Proxy.Ready < c.Proxy.Want:
			return warn(c.describe("proxy")+"; where it cannot run: seamark join --set proxy.failover=false",
				"the cluster's own Services; seamark-proxy, which takes over while a cluster is unreachable, "+
					"is ready on %d of %d nodes", c.Proxy.Ready, c.Proxy.Want)
		case plane.DerivesService && c.Proxy != nil:
			return pass("the cluster's own Services (kube-proxy or its replacement); seamark-proxy, which takes over while a cluster is "+
				"unreachable, is ready on all %d nodes", c.Proxy.Want)
		case plane.DerivesService:
			return pass("the cluster's own Services (kube-proxy or its replacement)")
		case !plane.RunsProxy:
			return pass("%s: %s", plane.Name, plane.Summary)
		case c.WorkloadsProblem != "":
			return skip("%s", c.WorkloadsProblem)
		case c.Proxy == nil:
			return fail(fmt.Sprintf("install it: seamark join --dataplane %s", plane.Name),
				"the data plane is %s, but there is no DaemonSet seamark-proxy", plane.Name)
		case c.Proxy.Ready < c.Proxy.Want:
			return fail(c.describe("proxy")+"; the log names what the kernel lacks of nf_tables, nft_numgen and nft_nat. "+
				"If kernels lack them: join again with --dataplane service",
				"seamark-proxy is ready on %d of %d nodes: on the others clusterset IPs do not work", c.Proxy.Ready, c.Proxy.Want)
		case len(c.ProxyDamage) > 0:
			return fail("run doctor again: seamark-proxy restores its table now; if this comes back, find the program that changes it: "+
				"nft monitor on the node", "another program changed table inet seamark on %s", firstNames(c.ProxyDamage))
		case len(c.ProxyCutOff) > 0:
			return warn(c.kubectl("-n seamark-system logs daemonset/seamark-proxy")+", and check the network of these nodes",
				"seamark-proxy cannot reach the API server from %s: changes of services do not arrive there", firstNames(c.ProxyCutOff))
		case c.ProxyErrors > 0:
			return warn(c.kubectl("-n seamark-system logs daemonset/seamark-proxy"),
				"%d transactions with the kernel failed so far; each is followed by a full sync (%s)", c.ProxyErrors, c.Proxies)
		}
		return pass("seamark-proxy is ready on %d of %d nodes, so their kernels have what it needs; %s",
			c.Proxy.Ready, c.Proxy.Want, c.Proxies)
	})
}

func checkRemotePod(f *Facts) []Result {
	var out []Result
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Problem != "" || !c.Member {
			continue
		}
		if len(c.Probes) == 0 {
			out = append(out, skip("%s", c.ProbeSkipped).at(c.ID))
		}
		for _, p := range c.Probes {
			if p.Reached {
				out = append(out, pass("%s of %s answers", p.Address, p.Cluster).at(c.ID))
				continue
			}
			out = append(out, fail("pods must reach each other between clusters: check the routes for the pod ranges both ways, "+
				"network policies, firewalls and address-ranges", "%s of %s cannot be reached from a pod: %s", p.Address, p.Cluster, p.Detail).
				at(c.ID))
		}
	}
	return out
}
