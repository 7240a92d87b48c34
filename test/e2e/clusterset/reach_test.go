//go:build linux

package clusterset_test

import (
	"fmt"
	"slices"
	"strings"
)

const shopName = "web.shop.svc.clusterset.local"

const client = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: client, image: $IMAGE, args: [pause]}
`

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: $IMAGE
          args: [serve]
          env: [{name: CLUSTER, value: $CLUSTER}]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports:
    - {name: http, port: 80, targetPort: 8080}
    - {name: stream, port: 9090}
    - {name: packets, port: 9090, protocol: UDP}
`

// deploy puts the client into every cluster and the service into the first two. Nothing is exported yet.
func (w *world) deploy() {
	w.Helper()
	for _, cluster := range w.Clusters() {
		w.must(w.Apply(w.Context(), cluster, client))
	}
	for _, cluster := range []string{w.one, w.two} {
		w.must(w.Apply(w.Context(), cluster, web))
	}
	for _, cluster := range []string{w.one, w.two} {
		w.must(w.RolledOut(w.Context(), cluster, "shop", "deployment/web"))
	}
	for _, cluster := range w.Clusters() {
		w.kubectl(cluster, "-n", "shop", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")
	}
}

// KEP-1645's test plan, first: a service exported in one cluster is reached from another, by name and through its clusterset IP.
func imported(w *world) {
	w.deploy()
	if answers := w.lookup(shopName, "A"); len(answers) > 0 {
		w.Errorf("a service that nobody exported has the addresses %v", answers)
	}
	w.seamark("--context", w.one, "export", "service", "web", "-n", "shop", "--wait")
	w.eventually("the name has the clusterset IPs", patience, func() error {
		ips := strings.Fields(w.kubectl(w.three, "-n", "shop", "get", "serviceimport", "web", "--ignore-not-found", "-o", "jsonpath={.spec.ips[*]}"))
		var answers []string
		for _, kind := range []string{"A", "AAAA"} {
			answers = append(answers, w.lookup(shopName, kind)...)
		}
		slices.Sort(ips)
		slices.Sort(answers)
		if len(ips) == 0 || !slices.Equal(ips, answers) {
			return fmt.Errorf("ips %v, answers %v", ips, answers)
		}
		return nil
	})
	w.answeredBy("http://"+shopName, w.one)
	w.answeredBy("tcp://"+shopName+":9090", w.one)
	for _, ip := range strings.Fields(w.kubectl(w.three, "-n", "shop", "get", "serviceimport", "web", "-o", "jsonpath={.spec.ips[*]}")) {
		if strings.Contains(ip, ":") {
			ip = "[" + ip + "]"
		}
		w.answeredBy("http://"+ip, w.one)
	}
	if srv := w.lookup("_http._tcp."+shopName, "SRV"); len(srv) != 1 || !strings.Contains(srv[0], " 80 "+shopName) {
		w.Errorf("SRV: %v", srv)
	}
}

// answeredBy waits until requests from the client are all answered, by exactly these clusters.
func (w *world) answeredBy(target string, clusters ...string) {
	w.Helper()
	slices.Sort(clusters)
	w.eventually(fmt.Sprintf("%s answered by %v", target, clusters), patience, func() error {
		tally := w.call(target, "--count", "40", "--timeout", "2s")
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

// Second: a Service of the same name that is not exported is used by its own cluster's name, and by that alone.
func localNotAffected(w *world) {
	w.must(w.Apply(w.Context(), w.three, web))
	w.must(w.RolledOut(w.Context(), w.three, "shop", "deployment/web"))
	w.answeredBy("http://web.shop.svc.cluster.local", w.three)
	w.answeredBy("http://"+shopName, w.one)
	w.kubectl(w.three, "-n", "shop", "delete", "deployment/web", "service/web", "--wait=false")
}

// Third: exported by two clusters, both answer, and each about as often.
func both(w *world) {
	w.seamark("--context", w.two, "export", "service", "web", "-n", "shop", "--wait")
	w.answeredBy("http://"+shopName, w.one, w.two)
	tally := w.call("http://"+shopName, "--count", "400")
	if share := tally.Clusters[w.one]; tally.Failed > 0 || share < 140 || share > 260 { // six times the standard deviation
		w.Errorf("not an even spread: %+v", tally)
	}
	for seen := range tally.Clients {
		if own := w.kubectl(w.three, "-n", "shop", "get", "pod", "client", "-o", "jsonpath={.status.podIPs[*].ip}"); !strings.Contains(own, seen) {
			w.Errorf("the server sees %s, the client has %s", seen, own)
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

// Pods of a StatefulSet behind a headless service have names of their own, by cluster.
func statefulSet(w *world) {
	for _, cluster := range []string{w.one, w.two} {
		w.must(w.Apply(w.Context(), cluster, database))
		w.must(w.RolledOut(w.Context(), cluster, "shop", "statefulset/db"))
		w.seamark("--context", cluster, "export", "service", "db", "-n", "shop", "--wait")
	}
	for _, cluster := range []string{w.one, w.two} {
		for _, pod := range []string{"db-0", "db-1"} {
			name := pod + "." + cluster + ".db.shop.svc.clusterset.local"
			ip := w.kubectl(cluster, "-n", "shop", "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
			w.eventually(name, patience, func() error {
				if answers := w.lookup(name, "A"); !slices.Equal(answers, []string{ip}) {
					return fmt.Errorf("answers %v, want %s", answers, ip)
				}
				return nil
			})
			tally := w.call("http://"+name+":8080", "--count", "3")
			if tally.Clusters[cluster] != 3 || tally.Pods[pod] != 3 {
				w.Errorf("%s: %+v", name, tally)
			}
		}
	}
	if answers := w.lookup("db.shop.svc.clusterset.local", "A"); len(answers) != 4 {
		w.Errorf("the service's own name has %v", answers)
	}
}

func udp(w *world) { w.answeredBy("udp://"+shopName+":9090", w.one, w.two) }

// A client that asks for affinity stays with one pod, through whatever cluster that is in.
func affinity(w *world) {
	patch := `{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}}}`
	for _, cluster := range []string{w.one, w.two} {
		w.kubectl(cluster, "-n", "shop", "patch", "service", "web", "-p", patch)
	}
	w.eventually("one pod answers the client", patience, func() error {
		tally := w.call("http://"+shopName, "--count", "40")
		if tally.Failed > 0 || len(tally.Pods) != 1 {
			return fmt.Errorf("%+v", tally)
		}
		return nil
	})
	for _, cluster := range []string{w.one, w.two} {
		w.kubectl(cluster, "-n", "shop", "patch", "service", "web", "-p", `{"spec":{"sessionAffinity":"None"}}`)
	}
	w.answeredBy("http://"+shopName, w.one, w.two)
}
