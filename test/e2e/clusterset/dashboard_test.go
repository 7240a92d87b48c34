//go:build linux

package clusterset_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/monitoring/dashboard"
	"github.com/seamark-dev/seamark/test/monitoring/promserver"
)

// dashboardEnv names a file that the drawn dashboard is written to, for docs/plots/dashboard.svg.
const dashboardEnv = "SEAMARK_DASHBOARD_SVG"

// scrapeInterval is short, so that a rate, which needs two scrapes, is there soon.
const scrapeInterval = 2 * time.Second

// A Prometheus server scrapes every daemon of every cluster while services are exported, pods come and go and names are asked for: then every
// query of every panel has something to show, those about failures a zero. The proxy's panels need the data plane nftables.
func everyPanelHasData(w *world) {
	if w.dataPlane != v1alpha1.DataPlaneNFTables {
		return
	}
	w.deploy()
	root, err := kubeparts.Root()
	w.must(err)
	file, err := os.Open(filepath.Join(root, "deploy", "monitoring", "dashboard.json"))
	w.must(err)
	defer file.Close()
	board, err := dashboard.Read(file)
	w.must(err)

	config, targets := w.scrapeAll()
	from := time.Now()
	server, err := promserver.Start(w.Context(), w.TempDir(), config)
	w.must(err)
	defer server.Stop()
	prometheus := dashboard.Prometheus{URL: server.URL}
	span := func() dashboard.Span { return dashboard.Span{From: from, To: time.Now(), Step: scrapeInterval} }
	w.eventually("every daemon is scraped", patience, func() error { return allUp(w.Context(), prometheus, span(), targets) })

	defer w.rest()
	w.beBusy()

	var data dashboard.Data
	var shown dashboard.Span
	w.eventually("every panel has data, and the right ones", patience, func() error {
		shown = span()
		if data, err = prometheus.QueryPanels(w.Context(), board, shown); err != nil {
			w.Fatal(err)
		}
		if missing := board.Missing(data); len(missing) > 0 {
			return fmt.Errorf("nothing to show in: %s", strings.Join(missing, "; "))
		}
		return errors.Join(
			shows(board, data, "Exports ready", w.count("serviceexports")),
			shows(board, data, "Imports ready", w.count("serviceimports")))
	})
	var drawn bytes.Buffer
	w.must(dashboard.Draw(&drawn, board, data, shown))
	w.must(os.WriteFile(cmp.Or(os.Getenv(dashboardEnv), filepath.Join(w.TempDir(), "dashboard.svg")), drawn.Bytes(), 0o644))
}

// count is how many objects of a kind there are in all clusters. Those of the broker are not users' own.
func (w *world) count(kind string) int {
	w.Helper()
	n := 0
	for _, cluster := range w.Clusters() {
		n += len(strings.Fields(w.kubectl(cluster, "get", kind, "-A", "-o", "name", "--field-selector", "metadata.namespace!=seamark-broker")))
	}
	return n
}

func shows(board *dashboard.Dashboard, data dashboard.Data, title string, want int) error {
	got, err := board.Last(data, title)
	if err == nil && got != float64(want) {
		err = fmt.Errorf("panel %q shows %v, and there are %d", title, got, want)
	}
	return err
}

// allUp tells whether so many targets answered their last scrape.
func allUp(ctx context.Context, p dashboard.Prometheus, span dashboard.Span, targets int) error {
	series, err := p.Query(ctx, dashboard.Target{Expr: "sum(up)"}, dashboard.Span{From: span.To, To: span.To, Step: span.Step})
	if err != nil {
		return err
	}
	if len(series) == 0 || series[0].Samples[0].Value != float64(targets) {
		return fmt.Errorf("of %d targets are up: %v", targets, series)
	}
	return nil
}

const berth = `
apiVersion: v1
kind: Service
metadata: {name: berth-$N, namespace: shop, labels: {for: dashboard}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: berth-$N, namespace: shop, labels: {for: dashboard}}
---
`

// beBusy does what people do with a clusterset.
func (w *world) beBusy() {
	w.Helper()
	const berths = 6
	for n := range berths {
		manifest := strings.ReplaceAll(berth, "$N", fmt.Sprint(n))
		for _, cluster := range []string{w.one, w.two} {
			w.must(w.Apply(w.Context(), cluster, manifest))
		}
		name := fmt.Sprintf("berth-%d.shop.svc.clusterset.local", n)
		w.answeredBy("http://"+name, w.one, w.two)
		w.lookup("no-"+name, "A")
	}
	w.scale("2")
	for n := range berths / 2 {
		for _, cluster := range []string{w.one, w.two} {
			w.kubectl(cluster, "-n", "shop", "delete", "serviceexport,service", fmt.Sprintf("berth-%d", n))
		}
	}
	w.scale("1")
}

// scale gives the service so many pods in each cluster that serves.
func (w *world) scale(replicas string) {
	w.Helper()
	for _, cluster := range []string{w.one, w.two} {
		w.kubectl(cluster, "-n", "shop", "scale", "deployment/web", "--replicas", replicas)
		w.must(w.RolledOut(w.Context(), cluster, "shop", "deployment/web"))
	}
}

// rest takes back what beBusy left.
func (w *world) rest() {
	w.Helper()
	for _, cluster := range []string{w.one, w.two} {
		w.kubectl(cluster, "-n", "shop", "delete", "serviceexports,services", "-l", "for=dashboard")
	}
}

// scrapeAll is a configuration for Prometheus that scrapes all daemons of all clusters, and how many they are. The host has no route to
// pods, so the API server of each cluster is asked to pass the request on. Labels are as the chart's ServiceMonitor makes them, and `cluster` is the
// one that people add who collect from several clusters.
func (w *world) scrapeAll() (config string, targets int) {
	w.Helper()
	type object = map[string]any
	var jobs []object
	for _, cluster := range w.Clusters() {
		access, err := w.Config(cluster)
		w.must(err)
		server, tls := w.credentials(access)
		var pods corev1.PodList
		text := w.kubectl(cluster, "-n", "seamark-system", "get", "pods", "-l", "app.kubernetes.io/name=seamark", "-o", "json")
		w.must(json.Unmarshal([]byte(text), &pods))
		var static []object
		for _, pod := range pods.Items {
			static = append(static, object{
				"targets": []string{server},
				"labels": map[string]string{
					"__metrics_path__": fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9441/proxy/metrics", pod.Namespace, pod.Name),
					"job":              "seamark-metrics", "cluster": cluster, "pod": pod.Name, "instance": pod.Status.PodIP + ":9441",
				},
			})
		}
		targets += len(static)
		jobs = append(jobs, object{"job_name": cluster, "scheme": "https", "tls_config": tls, "static_configs": static})
	}
	text, err := yaml.Marshal(object{
		"global":         object{"scrape_interval": scrapeInterval.String(), "scrape_timeout": scrapeInterval.String()},
		"scrape_configs": jobs,
	})
	w.must(err)
	return string(text), targets
}

// credentials writes what it takes to speak to an API server to files, and returns its host and port, and where the files are.
func (w *world) credentials(access *rest.Config) (server string, tls map[string]string) {
	w.Helper()
	w.must(rest.LoadTLSFiles(access))
	dir := w.TempDir()
	tls = map[string]string{}
	for name, content := range map[string][]byte{"ca_file": access.CAData, "cert_file": access.CertData, "key_file": access.KeyData} {
		tls[name] = filepath.Join(dir, name)
		w.must(os.WriteFile(tls[name], content, 0o600))
	}
	return strings.TrimPrefix(access.Host, "https://"), tls
}
