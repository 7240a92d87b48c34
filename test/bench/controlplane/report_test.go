package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

const metrics = `# HELP apiserver_request_total [STABLE] Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="discovery.k8s.io",resource="endpointslices",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="discovery.k8s.io",resource="endpointslices",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="multicluster.x-k8s.io",resource="serviceimports",scope="resource",subresource="status",verb="PUT",version="v1beta1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 1e+06
apiserver_request_total{code="0",component="apiserver",dry_run="",group="discovery.k8s.io",resource="endpointslices",scope="cluster",subresource="",verb="WATCH",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="namespaces",scope="resource",subresource="",verb="GET",version="v1"} 5
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="services",scope="cluster",subresource="",verb="LIST",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="seamark.dev",resource="exportrecords",scope="namespace",subresource="",verb="LIST",version="v1alpha1"} 2
apiserver_request_sli_duration_seconds_count{verb="POST"} 12
`

func TestRequestsAreReadFromMetrics(t *testing.T) {
	got, err := parseRequests(strings.NewReader(metrics))
	if err != nil {
		t.Fatal(err)
	}
	want := map[request]int64{
		{"POST", "endpointslices"}:       8, // refused ones count too
		{"PUT", "serviceimports/status"}: 3,
		{"LIST", "exportrecords"}:        2,
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for kind, n := range want {
		if got[kind] != n {
			t.Errorf("%s: %d, want %d", kind, got[kind], n)
		}
	}
	if _, err := parseRequests(strings.NewReader(`apiserver_request_total{verb="GET"} many`)); err == nil {
		t.Error("nonsense was read")
	}
}

func TestReportSaysWhatIsOverBudget(t *testing.T) {
	r := &report.Report{Peers: []string{"bare chain"}}
	addTotal(r, "fast", time.Second, time.Second, 2, "")
	addTotal(r, "slow", 5*time.Second, time.Second, 2, "why")
	addNone(r, "writes", counts{"broker": {{"PUT", "serviceimports"}: 2, {"own", ""}: -2}})
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.00 ×  ≤ 2 ×   ok", "5.00 ×  ≤ 2 ×   OVER", "- slow: why", "1 budgets were MISSED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
