//go:build linux

package clusterset_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// deploy creates the client in every cluster and the web server in the first two. It exports
// nothing.
func (s *suite) deploy() {
	s.Helper()
	for _, cluster := range s.Clusters() {
		s.must(s.Apply(s.Context(), cluster, testenv.Client))
	}
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.Apply(s.Context(), cluster, testenv.Web(1)))
	}
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.RolledOut(s.Context(), cluster, "shop", "deployment/web"))
	}
	for _, cluster := range s.Clusters() {
		s.kubectl(cluster, "-n", "shop", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")
	}
}

// renewClient replaces the importer's client. The new one has another address, so the kernel tracks
// no attempt of it to connect to an endpoint that is lost. kube-proxy leaves such attempts alone,
// and a connection from the same port would follow them.
func (s *suite) renewClient() {
	s.Helper()
	s.kubectl(s.importer, "-n", "shop", "delete", "pod", "client", "--grace-period=1")
	s.must(s.Apply(s.Context(), s.importer, testenv.Client))
	s.kubectl(s.importer, "-n", "shop", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")
}

// imported is the first case of KEP-1645's test plan: a service exported in one cluster is reached
// from another, by name and through its clusterset IP.
func imported(s *suite) {
	s.deploy()
	if answers := s.lookup(testenv.WebName, "A"); len(answers) > 0 {
		s.Errorf("a service that is not exported has the addresses %v", answers)
	}
	s.seamark("--context", s.first, "export", "service", "web", "-n", "shop", "--wait")
	s.eventually("the name has the clusterset IPs", timeout, func() error {
		ips := strings.Fields(s.kubectl(s.importer, "-n", "shop", "get", "serviceimport", "web",
			"--ignore-not-found", "-o", "jsonpath={.spec.ips[*]}"))
		var answers []string
		for _, kind := range []string{"A", "AAAA"} {
			answers = append(answers, s.lookup(testenv.WebName, kind)...)
		}
		slices.Sort(ips)
		slices.Sort(answers)
		if len(ips) == 0 || !slices.Equal(ips, answers) {
			return fmt.Errorf("the ServiceImport has the IPs %v, DNS answers %v", ips, answers)
		}
		return nil
	})
	s.answeredBy("http://"+testenv.WebName, s.first)
	s.answeredBy("tcp://"+testenv.WebName+":9090", s.first)
	for _, ip := range strings.Fields(s.kubectl(s.importer, "-n", "shop", "get", "serviceimport", "web", "-o", "jsonpath={.spec.ips[*]}")) {
		if strings.Contains(ip, ":") {
			ip = "[" + ip + "]"
		}
		s.answeredBy("http://"+ip, s.first)
	}
	if srv := s.lookup("_http._tcp."+testenv.WebName, "SRV"); len(srv) != 1 || !strings.Contains(srv[0], " 80 "+testenv.WebName) {
		s.Errorf("SRV: %v", srv)
	}
}

// answeredBy waits until all requests from the client are answered, by exactly these clusters.
func (s *suite) answeredBy(target string, clusters ...string) {
	s.Helper()
	slices.Sort(clusters)
	s.eventually(fmt.Sprintf("%s answered by %v", target, clusters), timeout, func() error {
		tally := s.call(target, "--count", "40", "--timeout", "2s")
		var by []string
		for cluster := range tally.Clusters {
			by = append(by, cluster)
		}
		slices.Sort(by)
		if tally.Failed > 0 || !slices.Equal(by, clusters) {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
}

// localNotAffected is the second case: a Service of the same name that is not exported is reached
// only by its cluster.local name.
func localNotAffected(s *suite) {
	s.must(s.Apply(s.Context(), s.importer, testenv.Web(1)))
	s.must(s.RolledOut(s.Context(), s.importer, "shop", "deployment/web"))
	s.answeredBy("http://web.shop.svc.cluster.local", s.importer)
	s.answeredBy("http://"+testenv.WebName, s.first)
	s.kubectl(s.importer, "-n", "shop", "delete", "deployment/web", "service/web", "--wait=false")
}

// both is the third case: two clusters export the service, and each answers about half of the
// requests.
func both(s *suite) {
	s.seamark("--context", s.second, "export", "service", "web", "-n", "shop", "--wait")
	s.answeredBy("http://"+testenv.WebName, s.first, s.second)
	tally := s.call("http://"+testenv.WebName, "--count", "400")
	if share := tally.Clusters[s.first]; tally.Failed > 0 || share < 140 || share > 260 { // six times the standard deviation
		s.Errorf("not an even spread: %+v", tally)
	}
	for seen := range tally.Clients {
		own := s.kubectl(s.importer, "-n", "shop", "get", "pod", "client", "-o", "jsonpath={.status.podIPs[*].ip}")
		if !strings.Contains(own, seen) {
			s.Errorf("the server sees the client address %s, the client has %s", seen, own)
		}
	}
}

const database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: db
          image: $IMAGE
          args: [serve]
          env: [{name: CLUSTER, value: $CLUSTER}]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: http, port: 8080}]
`

// statefulSet checks that the pods of a StatefulSet behind a headless service have names, by
// cluster.
func statefulSet(s *suite) {
	for _, cluster := range []string{s.first, s.second} {
		s.must(s.Apply(s.Context(), cluster, database))
		s.must(s.RolledOut(s.Context(), cluster, "shop", "statefulset/db"))
		s.seamark("--context", cluster, "export", "service", "db", "-n", "shop", "--wait")
	}
	for _, cluster := range []string{s.first, s.second} {
		for _, pod := range []string{"db-0", "db-1"} {
			name := pod + "." + cluster + ".db.shop.svc.clusterset.local"
			ip := s.kubectl(cluster, "-n", "shop", "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
			s.eventually(name, timeout, func() error {
				if answers := s.lookup(name, "A"); !slices.Equal(answers, []string{ip}) {
					return fmt.Errorf("answers %v, want %s", answers, ip)
				}
				return nil
			})
			tally := s.call("http://"+name+":8080", "--count", "3")
			if tally.Clusters[cluster] != 3 || tally.Pods[pod] != 3 {
				s.Errorf("%s: %+v", name, tally)
			}
		}
	}
	if answers := s.lookup("db.shop.svc.clusterset.local", "A"); len(answers) != 4 {
		s.Errorf("the name of the service has the addresses %v, want four", answers)
	}
}

func udp(s *suite) { s.answeredBy("udp://"+testenv.WebName+":9090", s.first, s.second) }

// affinity checks that with session affinity one pod, in either cluster, answers all requests of a
// client.
func affinity(s *suite) {
	patch := `{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}}}`
	for _, cluster := range []string{s.first, s.second} {
		s.kubectl(cluster, "-n", "shop", "patch", "service", "web", "-p", patch)
	}
	s.eventually("one pod answers the client", timeout, func() error {
		tally := s.call("http://"+testenv.WebName, "--count", "40")
		if tally.Failed > 0 || len(tally.Pods) != 1 {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
	for _, cluster := range []string{s.first, s.second} {
		s.kubectl(cluster, "-n", "shop", "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"None"}}`)
	}
	s.answeredBy("http://"+testenv.WebName, s.first, s.second)
}
