package doctor

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/dns/corefile"
	"github.com/seamark-dev/seamark/internal/objects"
)

// healthy is a clusterset of two with nothing wrong in east.
func healthy() Facts {
	block, err := corefile.Block(corefile.Forward{Reverse: []string{"2.10.in-addr.arpa", "243.in-addr.arpa"}, Servers: []string{"10.96.0.53"}})
	if err != nil {
		panic(err)
	}
	return Facts{
		Clusters: []Cluster{{
			ID: "east", Context: "east", Version: "v1.36.3", Major: 1, Minor: 36, ClockAhead: ptr.To(time.Second),
			Member: true, ClusterSet: "set", AskedBroker: true,
			Kinds:     []Kind{{Name: "serviceexports.multicluster.x-k8s.io", AnyOf: []string{"v1beta1"}, Served: []string{"v1alpha1", "v1beta1"}}},
			DataPlane: v1alpha1.DataPlaneService, Agent: &explain.Workload{Ready: 2, Want: 2}, DNS: &explain.Workload{Ready: 2, Want: 2},
			Beacon:       &explain.Workload{Ready: 3, Want: 3},
			Reachability: []objects.Reachability{{Cluster: "west", Family: "IPv4", State: objects.Reachable, Reason: objects.ReachBeaconsAnswer}},
			DNSAddresses: []string{"10.96.0.53"}, Corefile: ".:53 {\n}\n" + block,
			Asked: "web.shop.svc.clusterset.local", Expect: []string{"10.96.0.7"},
			Answer: &explain.Answer{Server: "pod seamark-dns-1", Code: "NOERROR", Addresses: []string{"10.96.0.7"}},
			Probes: []Probe{{Cluster: "west", Address: "10.2.0.1 port 80", Reached: true}},
		}},
		Broker: Broker{
			Server: "https://broker", ClockAhead: ptr.To(time.Duration(0)),
			Kinds: []Kind{{Name: "clustersets.seamark.dev", AnyOf: []string{"v1alpha1"}, Served: []string{"v1alpha1"}}},
			Set: &v1alpha1.ClusterSet{Spec: v1alpha1.ClusterSetSpec{
				ClusterSetIP: v1alpha1.ClusterSetIPSettings{Ranges: []v1alpha1.CIDR{"243.0.0.0/8"}},
			}},
			Members: []Member{
				member("east", "10.1.0.0/16", "10.96.0.0/16", "243.0.0.0/30"),
				member("west", "10.2.0.0/16", "10.97.0.0/16", "243.1.0.0/16"),
			},
		},
	}
}

func member(id string, pods, services, block v1alpha1.CIDR) Member {
	return Member{
		Cluster: v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: id},
			Spec:       v1alpha1.ClusterSpec{ClusterSetIPBlocks: []v1alpha1.CIDR{block}},
			Status: v1alpha1.ClusterStatus{
				AgentVersion: "v1", PodCIDRs: []v1alpha1.CIDR{pods}, ServiceCIDRs: []v1alpha1.CIDR{services},
				Beacons: &v1alpha1.Beacons{Addresses: []v1alpha1.BeaconAddress{{IP: "10.1.0.1"}}},
			},
		},
		Life: explain.Life{Joined: true, Alive: true, Age: 2 * time.Second},
	}
}

func TestHealthy(t *testing.T) {
	r := Examine(healthy())
	if r.Failed+r.Warned+r.Skipped > 0 || r.Passed < len(Checks) {
		t.Errorf("%+v", r)
	}
	var text bytes.Buffer
	Write(&text, r, false, explain.Plain)
	const line = "PASS  dns-forward          east: clusterset.local goes to 10.96.0.53\n"
	if !strings.Contains(text.String(), line) || strings.Contains(text.String(), "do:") {
		t.Errorf("%s", &text)
	}
	text.Reset()
	Write(&text, r, true, explain.Plain)
	if strings.Contains(text.String(), "PASS") {
		t.Errorf("%s", &text)
	}
}

// Each thing that can be wrong changes the result of the check that is about it, and has a fix
// unless the check was skipped.
func TestChecks(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(f *Facts)
		code, where string
		status      Status
		says        string
	}{
		"unreachable": {func(f *Facts) {
			f.Clusters[0] = Cluster{ID: "east", Problem: "connection refused"}
		}, "api-server", "east", Fail, "connection refused"},
		"old": {func(f *Facts) { f.Clusters[0].Minor = 29 }, "api-server", "east", Fail, "older than 1.30"},
		"no permission": {func(f *Facts) {
			f.Clusters[0].Denied = []string{"list pods", "get secrets"}
		}, "permissions", "east", Warn, "list pods, nor get secrets"},
		"kind missing": {func(f *Facts) { f.Clusters[0].Kinds[0].Missing = true }, "crds", "east", Fail, "not installed"},
		"kind too old": {func(f *Facts) {
			f.Clusters[0].Kinds[0].Served = []string{"v1alpha1"}
		}, "crds", "east", Fail, "serves v1alpha1, not v1beta1"},
		"no fairness": {func(f *Facts) { f.Broker.FairnessMissing = []string{"FlowSchema a", "FlowSchema b"} }, "broker-fairness", "broker", Warn,
			"not installed: FlowSchema a, FlowSchema b."},
		"fairness not readable": {func(f *Facts) { f.Broker.FairnessProblem = "not allowed" }, "broker-fairness", "broker", Skip, "not allowed"},
		"kinds not readable":    {func(f *Facts) { f.Broker.KindsProblem = "not allowed" }, "crds", "broker", Skip, "not allowed"},
		"no member":             {func(f *Facts) { f.Clusters[0].Member = false }, "membership", "east", Fail, "not a member"},
		"membership broken":     {func(f *Facts) { f.Clusters[0].MembershipProblem = "no token" }, "membership", "east", Fail, "no token"},
		"membership not read": {func(f *Facts) {
			f.Clusters[0].MembershipProblem, f.Clusters[0].Denied = "not allowed", []string{"get secrets"}
		}, "membership", "east", Skip, "not read"},
		"broker away": {func(f *Facts) {
			f.Clusters[0].BrokerProblem = "no answer in time"
		}, "broker", "east", Fail, "no answer in time"},
		"broker not asked": {func(f *Facts) { f.Clusters[0].AskedBroker = false }, "broker", "east", Skip, "cannot be used from here"},
		"broker denies": {func(f *Facts) {
			f.Clusters[0].BrokerDenied = []string{"update leases east"}
		}, "broker-permissions", "east", Fail, "update leases east"},
		"removed, and its agent rests": {func(f *Facts) {
			f.Clusters[0].Removed = "noon"
		}, "membership", "east", Fail, "removed from its clusterset at noon"},
		"removed, as the broker says": {func(f *Facts) {
			f.Clusters[0].BrokerProblem, f.Clusters[0].Removed = "not allowed", "noon"
		}, "broker", "east", Fail, "has removed cluster east (noon)"},
		"removed":       {func(f *Facts) { f.Broker.Members = f.Broker.Members[1:] }, "registration", "east", Fail, "no Cluster east"},
		"duplicated":    {func(f *Facts) { f.Broker.Members[0].HasCopy = true }, "heartbeat", "east", Fail, "restored from one backup"},
		"clock off":     {func(f *Facts) { f.Clusters[0].ClockAhead = ptr.To(time.Minute) }, "clocks", "east", Warn, "60s ahead of"},
		"clock far off": {func(f *Facts) { f.Broker.ClockAhead = ptr.To(-time.Hour) }, "clocks", "broker", Fail, "60m behind"},
		"agent's clock": {func(f *Facts) {
			f.Broker.Members[1].Skew = ptr.To(time.Hour)
		}, "clocks", "west", Fail, "by its agent's heartbeat"},
		"silent": {func(f *Facts) {
			f.Broker.Members[0].Life = explain.Life{Joined: true, Age: time.Hour}
		}, "heartbeat", "east", Fail, "60m ago"},
		"never joined": {func(f *Facts) { f.Broker.Members[0].Life = explain.Life{} }, "heartbeat", "east", Fail, "never renewed"},
		"other silent": {func(f *Facts) {
			f.Broker.Members[1].Life = explain.Life{Joined: true, Age: time.Hour}
		}, "other-members", "broker", Warn, "west (60m)"},
		"other only invited": {func(f *Facts) {
			f.Broker.Members[1].Life = explain.Life{}
		}, "other-members", "broker", Warn, "never joined: west"},
		"other left": {func(f *Facts) {
			f.Broker.Members[1].Life, f.Broker.Members[1].Left = explain.Life{}, true
		}, "other-members", "broker", Warn, "left, but still registered: west"},
		"agent elsewhere": {func(f *Facts) { f.Clusters[0].Agent = nil }, "agent", "east", Skip, "runs outside the cluster"},
		"no agent": {func(f *Facts) {
			f.Clusters[0].Agent = nil
			f.Broker.Members[0].Life.Alive = false
		}, "agent", "east", Fail, "no Deployment seamark-agent"},
		"agent broken": {func(f *Facts) { f.Clusters[0].Agent.Ready = 0 }, "agent", "east", Fail, "none of 2"},
		"agent half":   {func(f *Facts) { f.Clusters[0].Agent.Ready = 1 }, "agent", "east", Warn, "1 of 2"},
		"versions": {func(f *Facts) {
			f.Broker.Members[1].Status.AgentVersion = "v2"
		}, "agent-versions", "broker", Warn, "v1 in east; v2 in west"},
		"bad exports": {func(f *Facts) {
			f.Clusters[0].BadExports = []string{"a/b", "a/c", "a/d", "a/e", "a/f", "a/g"}
		}, "exports", "east", Warn, "a/f, and 1 more"},
		"no dns":     {func(f *Facts) { f.Clusters[0].DNS = nil }, "dns-server", "east", Warn, "no Deployment seamark-dns"},
		"dns broken": {func(f *Facts) { f.Clusters[0].DNS.Ready = 0 }, "dns-server", "east", Fail, "none of 2"},
		"not forwarded": {func(f *Facts) {
			f.Clusters[0].Corefile = ".:53 {\n}\n"
		}, "dns-forward", "east", Fail, "does not forward clusterset.local"},
		"forwarded elsewhere": {func(f *Facts) {
			f.Clusters[0].DNSAddresses = []string{"10.96.0.99"}
		}, "dns-forward", "east", Fail, "not to seamark-dns (10.96.0.99)"},
		"a new member's reverse names": {func(f *Facts) {
			f.Broker.Members = append(f.Broker.Members, member("north", "10.3.0.0/16", "10.98.0.0/16", "243.2.0.0/16"))
		}, "dns-forward", "east", Warn, "reverse names in 10.3.0.0/16 do not"},
		"forward damaged": {func(f *Facts) { f.Clusters[0].Corefile = "# BEGIN seamark\n" }, "dns-forward", "east", Fail, "damaged"},
		"no coredns": {func(f *Facts) {
			f.Clusters[0].CorefileProblem = "no ConfigMap"
		}, "dns-forward", "east", Skip, "no ConfigMap"},
		"dns not asked": {func(f *Facts) {
			f.Clusters[0].Answer = &explain.Answer{NotAsked: "no pod"}
		}, "dns-answer", "east", Skip, "no pod"},
		"dns silent": {func(f *Facts) {
			f.Clusters[0].Answer = &explain.Answer{Server: "x", Problem: "timeout"}
		}, "dns-answer", "east", Fail, "timeout"},
		"dns does not know": {func(f *Facts) {
			f.Clusters[0].Answer = &explain.Answer{Server: "x", Code: "NXDOMAIN"}
		}, "dns-answer", "east", Fail, "should be 10.96.0.7"},
		"dns fails": {func(f *Facts) {
			f.Clusters[0].Expect = nil
			f.Clusters[0].Answer = &explain.Answer{Server: "x", Code: "SERVFAIL"}
		}, "dns-answer", "east", Fail, "SERVFAIL"},
		"pods overlap": {func(f *Facts) {
			f.Broker.Members[1].Status.PodCIDRs = []v1alpha1.CIDR{"10.1.128.0/17"}
		}, "address-ranges", "east and west", Fail, "10.1.0.0/16 and 10.1.128.0/17"},
		"pods on services": {func(f *Facts) {
			f.Broker.Members[1].Status.ServiceCIDRs = []v1alpha1.CIDR{"10.1.0.0/16"}
		}, "address-ranges", "east and west", Fail, "pods of east overlap Services of west"},
		"services overlap": {func(f *Facts) {
			f.Broker.Members[1].Status.ServiceCIDRs = []v1alpha1.CIDR{"10.96.0.0/16"}
		}, "address-ranges", "east and west", Warn, "their Services overlap"},
		"ranges unknown": {func(f *Facts) { f.Broker.Members[1].Status.PodCIDRs = nil }, "address-ranges", "broker", Skip, "west"},
		"vips on pods": {func(f *Facts) {
			f.Broker.Members[0].Status.PodCIDRs[0] = "243.9.0.0/16"
		}, "clusterset-ip-ranges", "east", Fail, "overlap pods"},
		"block twice": {func(f *Facts) {
			f.Broker.Members[0].Spec.ClusterSetIPBlocks[0] = "243.1.0.0/16"
		}, "clusterset-ip-ranges", "east and west", Fail, "same block"},
		"block in a block": {func(f *Facts) {
			f.Broker.Members[0].Spec.ClusterSetIPBlocks = []v1alpha1.CIDR{"243.4.0.0/16", "243.1.0.0/24", "243.0.0.0/24"}
			f.Broker.Members[1].Spec.ClusterSetIPBlocks = []v1alpha1.CIDR{"243.4.7.0/24", "243.8.0.0/16"}
		}, "clusterset-ip-ranges", "east and west", Fail, "same block: 243.4.0.0/16 and 243.4.7.0/24"},
		"second block full too": {func(f *Facts) {
			f.Broker.Members[0].Spec.ClusterSetIPBlocks = []v1alpha1.CIDR{"243.0.0.0/30", "243.0.7.0/30"}
			f.Broker.Used = addrs("243.0.7.2", "243.0.0.1", "243.1.0.1", "243.0.7.1", "243.0.0.2")
		}, "clusterset-ip-pool", "east", Fail, "all 4 clusterset IPs of block 243.0.0.0/30, 243.0.7.0/30"},
		"second block free": {func(f *Facts) {
			f.Broker.Members[0].Spec.ClusterSetIPBlocks = []v1alpha1.CIDR{"243.0.0.0/30", "243.0.7.0/30"}
			f.Broker.Used = addrs("243.0.0.1", "243.0.0.2")
		}, "clusterset-ip-pool", "broker", Pass, "2 in use"},
		"block outside": {func(f *Facts) {
			f.Broker.Members[0].Spec.ClusterSetIPBlocks[0] = "242.1.0.0/16"
		}, "clusterset-ip-ranges", "east", Fail, "outside"},
		"pool full": {func(f *Facts) {
			f.Broker.Used = addrs("243.0.0.1", "243.0.0.2")
		}, "clusterset-ip-pool", "east", Fail, "all 2 clusterset IPs"},
		"no proxy": {func(f *Facts) {
			f.Clusters[0].DataPlane = v1alpha1.DataPlaneNFTables
		}, "data-plane", "east", Fail, "no DaemonSet"},
		"proxy broken": {func(f *Facts) { nftables(f, 1, 0) }, "data-plane", "east", Fail, "1 of 3 nodes"},
		"proxy errors": {func(f *Facts) { nftables(f, 3, 2) }, "data-plane", "east", Warn, "2 transactions"},
		"proxy cut off": {func(f *Facts) {
			nftables(f, 3, 0)
			f.Clusters[0].ProxyCutOff = []string{"n1", "n2"}
		}, "data-plane", "east", Warn, "cannot reach the API server from n1, n2"},
		"proxy damaged": {func(f *Facts) {
			nftables(f, 3, 1)
			f.Clusters[0].ProxyDamage = []string{"n1: chain pick4-3 has other rules"}
		}, "data-plane", "east", Fail, "another program changed table inet seamark on n1: chain pick4-3 has other rules"},
		"proxy for failovers broken": {func(f *Facts) {
			nftables(f, 2, 0)
			f.Clusters[0].DataPlane = v1alpha1.DataPlaneService
		}, "data-plane", "east", Warn, "2 of 3 nodes"},
		"without proxy for failovers": {func(f *Facts) {
			f.Clusters[0].DataPlane = v1alpha1.DataPlaneService
		}, "data-plane", "east", Pass, "or its replacement)"},
		"proxy for failovers well": {func(f *Facts) {
			nftables(f, 3, 0)
			f.Clusters[0].DataPlane = v1alpha1.DataPlaneService
		}, "data-plane", "east", Pass, "is ready on all 3 nodes"},
		"proxy well":                {func(f *Facts) { nftables(f, 3, 0) }, "data-plane", "east", Pass, "3 of 3 nodes"},
		"data plane unknown":        {func(f *Facts) { f.Clusters[0].DataPlane = "" }, "data-plane", "east", Skip, "not known"},
		"workloads not read":        {func(f *Facts) { f.Clusters[0].WorkloadsProblem = "not allowed" }, "agent", "east", Skip, "not allowed"},
		"installed without beacons": {func(f *Facts) { f.Clusters[0].Beacon = nil }, "beacons", "east", Skip, "by its lease only"},
		"no beacon ready":           {func(f *Facts) { f.Clusters[0].Beacon.Ready = 0 }, "beacons", "east", Warn, "none of 3 pods is ready"},
		"a beacon not ready":        {func(f *Facts) { f.Clusters[0].Beacon.Ready = 2 }, "beacons", "east", Warn, "2 of 3 pods are ready"},
		"beacons not published": {func(f *Facts) {
			f.Broker.Members[0].Status.Beacons = nil
		}, "beacons", "east", Warn, "the broker has none of their addresses"},
		"beacons not read": {func(f *Facts) { f.Clusters[0].WorkloadsProblem = "not allowed" }, "beacons", "east", Skip, "not allowed"},
		"beacons behind a firewall": {func(f *Facts) {
			f.Clusters[0].Reachability[0].Reason = objects.ReachNeverAnswered
		}, "beacons", "east", Warn, "by their leases only: west (IPv4)"},
		"port closed later": {func(f *Facts) {
			f.Clusters[0].Reachability[0].Reason = objects.ReachEndpointsAnswer
		}, "beacons", "east", Warn, "although endpoints do: west (IPv4)"},
		"cut off": {func(f *Facts) {
			f.Clusters[0].Reachability[0].Reason = objects.ReachNoAnswer
		}, "beacons", "east", Fail, "neither beacons nor endpoints answer any more: west (IPv4)"},
		"beacons refused": {func(f *Facts) {
			f.Clusters[0].Reachability[0].Reason = objects.ReachRefused
		}, "beacons", "east", Warn, "may not publish: west (IPv4)"},
		"pod not reached": {func(f *Facts) {
			f.Clusters[0].Probes[0].Reached = false
		}, "remote-pod", "east", Fail, "10.2.0.1 port 80 of west"},
		"not probed": {func(f *Facts) {
			f.Clusters[0].Probes, f.Clusters[0].ProbeSkipped = nil, "no image"
		}, "remote-pod", "east", Skip, "no image"},
		"broker away, no lease": {func(f *Facts) { f.Broker = Broker{Problem: "away"} }, "heartbeat", "broker", Skip, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			test.change(&f)
			found := false
			for _, r := range Examine(f).Results {
				if r.Code != test.code || r.Where != test.where || r.Status != test.status {
					continue
				}
				found = true
				if !strings.Contains(r.Detail, test.says) {
					t.Errorf("it says %q, want %q", r.Detail, test.says)
				}
				if (r.Status == Fail || r.Status == Warn) != (r.Fix != "") {
					t.Errorf("%s with fix %q", r.Status, r.Fix)
				}
			}
			if !found {
				t.Errorf("no %s of %s at %s: %+v", test.status, test.code, test.where, Examine(f).Results)
			}
		})
	}
}

// A cluster whose names are in another zone: every text that names the zone names that one.
func TestZone(t *testing.T) {
	const zone = "mesh.example"
	for name, test := range map[string]struct {
		change    func(c *Cluster)
		code      string
		status    Status
		says, fix string
	}{
		"forwarded": {func(c *Cluster) {
			c.Corefile = zone + " 243.in-addr.arpa 2.10.in-addr.arpa {\n  forward . 10.96.0.53\n}\n"
		}, "dns-forward", Pass, "mesh.example goes to 10.96.0.53", ""},
		"only the default zone": {func(*Cluster) {}, "dns-forward", Fail, "does not forward mesh.example", "mesh.example:53 {"},
		"no dns":                {func(c *Cluster) { c.DNS = nil }, "dns-server", Warn, "names in mesh.example are not answered", ""},
		"dns silent": {func(c *Cluster) {
			c.Answer = &explain.Answer{Server: "x", Problem: "timeout"}
		}, "dns-answer", Fail, "timeout", "forwards mesh.example"},
		"dns does not know": {func(c *Cluster) {
			c.Answer = &explain.Answer{Server: "x", Code: "NXDOMAIN"}
		}, "dns-answer", Fail, "NXDOMAIN", "mesh.example is not forwarded"},
	} {
		f := healthy()
		c := &f.Clusters[0]
		c.Zone, c.Asked = zone, "web.shop.svc."+zone
		test.change(c)
		r := Examine(f)
		i := slices.IndexFunc(r.Results, func(r Result) bool { return r.Code == test.code })
		if got := r.Results[i]; got.Status != test.status || !strings.Contains(got.Detail, test.says) || !strings.Contains(got.Fix, test.fix) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, result := range r.Results {
			if strings.Contains(result.Detail+result.Fix, "clusterset.local") {
				t.Errorf("%s: the default zone is named: %+v", name, result)
			}
		}
	}
}

func nftables(f *Facts, ready int32, errors int) {
	c := &f.Clusters[0]
	c.DataPlane, c.Proxy, c.ProxyErrors = v1alpha1.DataPlaneNFTables, &explain.Workload{Ready: ready, Want: 3}, errors
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParseAddr(text)
	}
	return out
}

// The cure for beacons that do not answer names the port.
func TestBeaconsCureNamesThePort(t *testing.T) {
	f := healthy()
	f.Clusters[0].Reachability[0].Reason = objects.ReachNeverAnswered
	for _, r := range Examine(f).Results {
		const want = "open UDP port 9446 from the pods of east to the pods of these clusters: in firewalls, security groups and NetworkPolicies"
		if r.Code == "beacons" && r.Fix != want {
			t.Errorf("%q, want %q", r.Fix, want)
		}
	}
}
