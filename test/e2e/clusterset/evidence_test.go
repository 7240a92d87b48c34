//go:build linux

package clusterset_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/sandbox/fault"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// controlPlaneOutage stops the control planes of the cluster with the broker and of another one
// that serves, with their agents. Their pods go on serving, so no request fails and no endpoint is
// dropped, long after their leases have expired.
func controlPlaneOutage(s *suite) {
	s.awaitReached(s.first, s.second)
	have := func() []string { return slices.Concat(s.slicesOf("web", s.first), s.slicesOf("web", s.second)) }
	renewed := func() string {
		return s.kubectl(s.first, "-n", objects.DefaultNamespace, "get", "lease", s.second, "-o", "jsonpath={.spec.renewTime}")
	}
	before := have()
	for _, cluster := range []string{s.second, s.first} {
		s.must(s.StopControlPlane(s.Context(), cluster))
	}
	tally := s.call(webURL, "--duration", outage.String(), "--interval", "20ms")
	if tally.Failed > 0 || tally.Clusters[s.first] == 0 || tally.Clusters[s.second] == 0 {
		s.Errorf("without the control planes of %s and %s: %+v", s.first, s.second, tally)
	}
	s.Logf("%s: %d requests in %s, none failed", s.dataPlane, tally.Requests, *outage)
	if after := have(); !slices.Equal(before, after) {
		s.Errorf("the slices were %v, and are %v", before, after)
	}
	s.heal()
	lease := renewed() // of before the outage, or of a moment ago
	s.eventually("the lease of "+s.second+" is renewed", timeout, func() error {
		if renewed() == lease {
			return errors.New("it is not renewed")
		}
		return nil
	})
	s.awaitReached(s.first, s.second)
	s.answeredBy(webURL, s.first, s.second)
}

// stays checks for a while that the importer uses all clusters.
func (s *suite) stays(d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if list := s.unreachable(); list != "" {
			s.Fatalf("unreachable: %s", list)
		}
	}
}

// badLinks loses and delays packets, and cuts a link every few seconds. Loss and delay change
// nothing. A link that flaps is left once, and used again when it was steady.
func badLinks(s *suite) {
	path := fault.Path{From: s.second, To: s.importer}
	before := s.slicesOf("web", s.second)
	s.must(s.Lose(s.Context(), path, 10))
	s.stays(15 * time.Second)
	s.heal()
	s.must(s.Delay(s.Context(), path, 250*time.Millisecond)) // half a second for a round trip
	s.stays(15 * time.Second)
	s.must(s.Delay(s.Context(), path, 500*time.Millisecond))
	s.stays(15 * time.Second)
	s.heal()
	if after := s.slicesOf("web", s.second); !slices.Equal(before, after) {
		s.Errorf("the slices were %v, and are %v", before, after)
	}
	s.awaitReached(s.second)
	var lists []string
	for range 4 {
		s.must(s.Cut(s.Context(), path))
		s.watchList(3*time.Second, &lists)
		s.heal()
		s.watchList(3*time.Second, &lists)
	}
	if !leftOnce(lists) {
		s.Errorf("while the link flapped, the list of unreachable clusters was %q", lists)
	}
	s.restartAgent()
	s.awaitReached(s.second)
	s.awaitSlices("web", s.second, true)
}

// leftOnce reports whether no cluster was ever removed from the list, or listed again with another
// time. Its families need not be listed at the same moment.
func leftOnce(lists []string) bool {
	for i, list := range lists {
		if i > 0 && !containsAll(strings.Split(list, ","), strings.Split(lists[i-1], ",")) {
			return false
		}
	}
	return len(lists) > 0
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// watchList adds each change of the list of unreachable clusters for a while.
func (s *suite) watchList(d time.Duration, lists *[]string) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		list := s.unreachable()
		if len(*lists) == 0 && list == "" || len(*lists) > 0 && (*lists)[len(*lists)-1] == list {
			continue
		}
		*lists = append(*lists, list)
	}
}

// aloneInTheNetwork cuts the importer off from all others. It keeps what it has itself, and what it
// has of services that it does not serve.
func aloneInTheNetwork(s *suite) {
	mixed := strings.ReplaceAll(`{apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: shop}, spec: {selector: {app: web}, ports: [`+
		`{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: NAME, namespace: shop}}
`, "NAME", "mixed")
	s.must(s.Apply(s.Context(), s.importer, testenv.Web(1)))
	s.must(s.RolledOut(s.Context(), s.importer, "shop", "deployment/web"))
	for _, cluster := range []string{s.importer, s.first} {
		s.must(s.Apply(s.Context(), cluster, mixed))
	}
	url := strings.Replace(webURL, "web.", "mixed.", 1)
	s.answeredBy(url, s.first, s.importer)
	s.awaitReached(s.first, s.second)
	s.must(s.Cut(s.Context(), fault.Path{From: s.importer}))
	s.answeredBy(url, s.importer)
	for _, cluster := range []string{s.first, s.second} {
		if list := s.unreachable(); !strings.Contains(list, cluster+"/") {
			s.Errorf("%s is not among the unreachable clusters: %q", cluster, list)
		}
	}
	// The one that is judged first is left out until the other one cannot be reached either.
	for _, cluster := range []string{s.first, s.second} {
		s.awaitSlices("web", cluster, true)
	}
	s.eventually("the ServiceImport says so", timeout, func() error {
		conditions := s.kubectl(s.importer, "-n", "shop", "get", "serviceimport", "web", "-o", "jsonpath={.status.conditions[*].message}")
		if !strings.Contains(conditions, "cannot be reached") || !strings.Contains(conditions, "are kept") {
			return errors.New(conditions)
		}
		return nil
	})
	s.heal()
	s.restartAgent()
	s.awaitReached(s.first, s.second)
	s.answeredBy(url, s.first, s.importer)
	for _, cluster := range []string{s.importer, s.first} {
		s.kubectl(cluster, "-n", "shop", "delete", "service/mixed", "serviceexport/mixed")
	}
	s.kubectl(s.importer, "-n", "shop", "delete", "service/web", "deployment/web")
}

// blockBeacons drops the packets to the beacons of a cluster, and allow lets them through again.
func (s *suite) blockBeacons(cluster string) (allow func()) {
	s.Helper()
	nft := func(script string) {
		s.Helper()
		cmd := exec.CommandContext(s.Context(), "ip", "netns", "exec", "seamark-"+sandboxName+"-"+cluster, "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("nft: %v: %s", err, out)
		}
	}
	nft(fmt.Sprintf("table inet firewall { chain in { type filter hook prerouting priority -400; iifname eth0 udp dport %d drop; }; }", wire.Port))
	return func() { nft("delete table inet firewall") }
}

// beaconsBlocked closes the beacons' port of a cluster: while its pods can be reached, that changes
// nothing. If it was closed from the start, the lease decides.
func beaconsBlocked(s *suite) {
	s.awaitReached(s.first, s.second)
	allow := s.blockBeacons(s.second)
	s.eventually("endpoints acquit the cluster", timeout, func() error {
		for _, path := range s.reachability(s.second) {
			if path.State != objects.Reachable || path.Reason != objects.ReachEndpointsAnswer {
				return fmt.Errorf("%+v", path)
			}
		}
		return nil
	})
	s.stays(10 * time.Second)
	if tally := s.call(webURL, "--count", "60"); tally.Failed > 0 || tally.Clusters[s.second] == 0 {
		s.Errorf("with the beacons of %s blocked: %+v", s.second, tally)
	}
	s.restartAgent() // the next agent never gets an answer
	s.eventually("no beacon has answered", timeout, func() error {
		paths := s.reachability(s.second)
		for _, path := range paths {
			if path.State != objects.ReachabilityUnknown {
				return fmt.Errorf("%+v", path)
			}
		}
		if len(paths) == 0 {
			return errors.New("no paths")
		}
		return nil
	})
	s.must(s.Cut(s.Context(), fault.Path{From: s.second}))
	start := time.Now()
	s.awaitSlices("web", s.second, false)
	s.Logf("the lease decides %s after the cut", time.Since(start).Round(time.Second))
	if list := s.unreachable(); list != "" {
		s.Errorf("unreachable: %s", list)
	}
	s.heal()
	allow()
	s.awaitReached(s.second)
	s.awaitSlices("web", s.second, true)
}
