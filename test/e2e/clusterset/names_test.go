//go:build linux

package clusterset_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/internal/objects"
)

// records has one service of each kind. All have the families of their cluster.
const records = `
apiVersion: v1
kind: Service
metadata: {name: vip, namespace: shop}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: legacy, namespace: shop}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: legacy, namespace: shop, annotations: {seamark.dev/use-clusterset-ip: "false"}}
---
apiVersion: v1
kind: Service
metadata: {name: pods, namespace: shop}
spec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: db}
  ports: [{name: http, port: 8080}]
`

// allRecords checks that pods get A, AAAA, SRV and PTR records of every kind of service from their
// ordinary resolver.
func allRecords(s *suite) {
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.Apply(s.Context(), cluster, records))
		for _, service := range []string{"vip", "pods"} {
			s.seamark("--context", cluster, "export", "service", service, "-n", "shop", "--wait")
		}
	}
	const zone = ".shop.svc.clusterset.local"
	fields := func(cluster, object, path string) []string {
		return strings.Fields(s.kubectl(cluster, "-n", "shop", "get", object, "--ignore-not-found", "-o", "jsonpath={"+path+"}"))
	}
	// A clusterset IP. That of a derived Service has its name from the cluster's own DNS.
	vips := func() []string { return fields(s.importer, "serviceimport/vip", ".spec.ips[*]") }
	s.resolves("vip"+zone, vips)
	s.resolvesSRV("_http._tcp.vip"+zone, "80 vip"+zone+".")
	want := "vip" + zone + "."
	if objects.DataPlaneOf(s.dataPlane).DerivesService {
		want = objects.DerivedServiceName("vip") + ".shop.svc.cluster.local."
	}
	for _, ip := range vips() {
		s.reverses(s.importer, ip, want)
	}
	// A classic service: the ClusterIPs of both clusters, which have names in their own cluster.
	s.resolves("legacy"+zone, func() []string {
		return append(fields(s.first, "service/legacy", ".spec.clusterIPs[*]"), fields(s.second, "service/legacy", ".spec.clusterIPs[*]")...)
	})
	s.resolvesSRV("_http._tcp.legacy"+zone, "80 legacy"+zone+".")
	for _, cluster := range []string{s.first, s.second} {
		for _, ip := range fields(cluster, "service/legacy", ".spec.clusterIPs[*]") {
			s.reverses(cluster, ip, "legacy.shop.svc.cluster.local.")
		}
	}
	// A headless service: pods have names of the clusterset in other clusters, and in their own
	// cluster the names that they had before.
	for _, cluster := range []string{s.first, s.second} {
		for _, pod := range []string{"db-0", "db-1"} {
			ips := fields(cluster, "pod/"+pod, ".status.podIPs[*].ip")
			for _, ip := range ips {
				name := strings.NewReplacer(".", "-", ":", "-").Replace(ip) + "." + cluster + ".pods" + zone
				s.resolves(name, func() []string { return []string{ip} })
				s.resolvesSRV("_http._tcp.pods"+zone, "8080 "+name+".")
				s.reverses(s.importer, ip, name+".") // of two names the first in the alphabet
			}
			s.reverses(cluster, ips[0], pod+".db.shop.svc.cluster.local.")
		}
	}
}

// resolves waits until a name has exactly these addresses in the client's resolver.
func (s *suite) resolves(name string, addresses func() []string) {
	s.Helper()
	s.eventually("the addresses of "+name, timeout, func() error {
		want, got := addresses(), slices.Concat(s.lookup(name, "A"), s.lookup(name, "AAAA"))
		slices.Sort(want)
		slices.Sort(got)
		if len(want) == 0 || !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// resolvesSRV waits until an SRV record of a name ends in port and target.
func (s *suite) resolvesSRV(name, want string) {
	s.Helper()
	s.eventually("SRV of "+name, timeout, func() error {
		answers := s.lookup(name, "SRV")
		if !slices.ContainsFunc(answers, func(a string) bool { return strings.HasSuffix(a, want) }) {
			return fmt.Errorf("%v, want one that ends in %q", answers, want)
		}
		return nil
	})
}

// reverses waits until an address has a reverse name, among others, in the client's resolver of a
// cluster.
func (s *suite) reverses(cluster, ip, want string) {
	s.Helper()
	s.eventually("the reverse name of "+netip.MustParseAddr(ip).String()+" in "+cluster, timeout, func() error {
		answers, err := s.Lookup(s.Context(), cluster, "shop", "client", ip, "PTR")
		if err == nil && !slices.Contains(answers, want) {
			err = fmt.Errorf("%v, want %s", answers, want)
		}
		return err
	})
}
