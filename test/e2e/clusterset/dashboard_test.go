//go:build linux

package clusterset_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/monitoring/dashboard"
	"github.com/seamark-dev/seamark/test/monitoring/promserver"
)

// dashboardEnv names a file that the drawn dashboard is written to, for docs/plots/dashboard.svg.
const dashboardEnv = "SEAMARK_DASHBOARD_SVG"

// scrapeInterval is short because a rate needs two scrapes.
const scrapeInterval = 2 * time.Second

// everyPanelHasData has a Prometheus server scrape every daemon of every cluster while services are
// exported, pods are created and deleted, and names are resolved. Then every query of every panel
// must return data; queries about failures return zero. The proxy's panels need the data plane
// nftables.
func everyPanelHasData(s *suite) {
	if s.dataPlane != v1alpha1.DataPlaneNFTables {
		return
	}
	s.deploy()
	root, err := kubeparts.Root()
	s.must(err)
	file, err := os.Open(filepath.Join(root, "deploy", "monitoring", "dashboard.json"))
	s.must(err)
	defer file.Close()
	board, err := dashboard.Read(file)
	s.must(err)

	config, targets := s.scrapeAll()
	from := time.Now()
	server, err := promserver.Start(s.Context(), s.TempDir(), config)
	s.must(err)
	defer server.Stop()
	prometheus := dashboard.Prometheus{URL: server.URL}
	span := func() dashboard.Span { return dashboard.Span{From: from, To: time.Now(), Step: scrapeInterval} }
	s.eventually("every daemon is scraped", timeout, func() error { return allUp(s.Context(), prometheus, span(), targets) })

	defer s.deleteTestServices()
	s.exportAndScale()

	var data dashboard.Data
	var shown dashboard.Span
	s.eventually("every panel has data, and the counts are right", timeout, func() error {
		shown = span()
		if data, err = prometheus.QueryPanels(s.Context(), board, shown); err != nil {
			s.Fatal(err)
		}
		if missing := board.Missing(data); len(missing) > 0 {
			return fmt.Errorf("no data for: %s", strings.Join(missing, "; "))
		}
		return errors.Join(
			shows(board, data, "Exports ready", s.count("serviceexports")),
			shows(board, data, "Imports ready", s.count("serviceimports")))
	})
	var drawn bytes.Buffer
	s.must(dashboard.Draw(&drawn, board, data, shown))
	s.must(os.WriteFile(cmp.Or(os.Getenv(dashboardEnv), filepath.Join(s.TempDir(), "dashboard.svg")), drawn.Bytes(), 0o644))
}

// count returns the number of objects of a kind in all clusters, without those in the broker's
// namespace.
func (s *suite) count(kind string) int {
	s.Helper()
	n := 0
	for _, cluster := range s.Clusters() {
		n += len(strings.Fields(s.kubectl(cluster, "get", kind, "-A", "-o", "name", "--field-selector", "metadata.namespace!=seamark-broker")))
	}
	return n
}

func shows(board *dashboard.Dashboard, data dashboard.Data, title string, want int) error {
	got, err := board.Last(data, title)
	if err == nil && got != float64(want) {
		err = fmt.Errorf("panel %q shows %v, want %d", title, got, want)
	}
	return err
}

// allUp returns an error unless this number of targets answered their last scrape.
func allUp(ctx context.Context, p dashboard.Prometheus, span dashboard.Span, targets int) error {
	series, err := p.Query(ctx, dashboard.Target{Expr: "sum(up)"}, dashboard.Span{From: span.To, To: span.To, Step: span.Step})
	if err != nil {
		return err
	}
	if len(series) == 0 || series[0].Samples[0].Value != float64(targets) {
		return fmt.Errorf("not all of %d targets are up: %v", targets, series)
	}
	return nil
}

const dashboardService = `
apiVersion: v1
kind: Service
metadata: {name: dashboard-$N, namespace: shop, labels: {for: dashboard}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: dashboard-$N, namespace: shop, labels: {for: dashboard}}
---
`

// exportAndScale changes what the panels show: it exports, uses, scales and unexports services.
func (s *suite) exportAndScale() {
	s.Helper()
	const services = 6
	for n := range services {
		manifest := strings.ReplaceAll(dashboardService, "$N", fmt.Sprint(n))
		for _, cluster := range []string{s.first, s.second} {
			s.must(s.Apply(s.Context(), cluster, manifest))
		}
		name := fmt.Sprintf("dashboard-%d.shop.svc.clusterset.local", n)
		s.answeredBy("http://"+name, s.first, s.second)
		s.lookup("no-"+name, "A")
	}
	s.scale("2")
	for n := range services / 2 {
		for _, cluster := range []string{s.first, s.second} {
			s.kubectl(cluster, "-n", "shop", "delete", "serviceexport,service", fmt.Sprintf("dashboard-%d", n))
		}
	}
	s.scale("1")
}

// scale sets the replicas of the web server in each cluster that serves.
func (s *suite) scale(replicas string) {
	s.Helper()
	for _, cluster := range []string{s.first, s.second} {
		s.kubectl(cluster, "-n", "shop", "scale", "deployment/web", "--replicas", replicas)
		s.must(s.RolledOut(s.Context(), cluster, "shop", "deployment/web"))
	}
}

// deleteTestServices deletes the services that exportAndScale left.
func (s *suite) deleteTestServices() {
	s.Helper()
	for _, cluster := range []string{s.first, s.second} {
		s.kubectl(cluster, "-n", "shop", "delete", "serviceexports,services", "-l", "for=dashboard")
	}
}

// scrapeAll returns a Prometheus configuration that scrapes all daemons of all clusters, and the
// number of targets. The host has no route to pods, so requests go through the proxy of each API
// server. The labels are those of the chart's ServiceMonitor, and `cluster`, which a Prometheus
// that collects from several clusters adds.
func (s *suite) scrapeAll() (config string, targets int) {
	s.Helper()
	type object = map[string]any
	var jobs []object
	for _, cluster := range s.Clusters() {
		access, err := s.Config(cluster)
		s.must(err)
		token := strings.TrimSpace(s.kubectl(cluster, "-n", "seamark-system", "create", "token", programmed.ReaderAccount, "--duration", "2h"))
		server := s.relay(access, token)
		var pods corev1.PodList
		const withMetrics = "app.kubernetes.io/name=seamark,app.kubernetes.io/component!=beacon"
		text := s.kubectl(cluster, "-n", "seamark-system", "get", "pods", "-l", withMetrics, "-o", "json")
		s.must(json.Unmarshal([]byte(text), &pods))
		var static []object
		for _, pod := range pods.Items {
			target := pod.Name
			if pod.Labels["app.kubernetes.io/component"] == "proxy" {
				target = "https:" + target
			}
			static = append(static, object{
				"targets": []string{server},
				"labels": map[string]string{
					"__metrics_path__": fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9441/proxy/metrics", pod.Namespace, target),
					"job":              "seamark-metrics", "cluster": cluster, "pod": pod.Name, "instance": pod.Status.PodIP + ":9441",
				},
			})
		}
		targets += len(static)
		jobs = append(jobs, object{"job_name": cluster, "static_configs": static})
	}
	text, err := yaml.Marshal(object{
		"global":         object{"scrape_interval": scrapeInterval.String(), "scrape_timeout": scrapeInterval.String()},
		"scrape_configs": jobs,
	})
	s.must(err)
	return string(text), targets
}

// relay starts a server on loopback that passes requests on to an API server, with a token for the
// proxies' metrics: the API server removes the header Authorization, and older versions of
// Prometheus cannot send others. It returns the address of the server.
func (s *suite) relay(access *rest.Config, token string) string {
	s.Helper()
	target, err := url.Parse(access.Host)
	s.must(err)
	transport, err := rest.TransportFor(access)
	s.must(err)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set(programmed.TokenHeader, token)
		},
		Transport: transport,
	})
	s.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
