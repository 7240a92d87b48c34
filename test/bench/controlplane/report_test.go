package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/test/bench/report"
)

func TestRequestsAreReadFromMetrics(t *testing.T) {
	metrics, err := os.Open(filepath.Join("testdata", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Close()
	got, err := parseRequests(metrics)
	if err != nil {
		t.Fatal(err)
	}
	want := map[request]int64{
		{"POST", "endpointslices"}:       8, // refused requests count, too
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
		t.Error("a value that is no number was accepted")
	}
}

func TestOwnRequestsAreCountedAsServersCountThem(t *testing.T) {
	for path, want := range map[string]bool{
		"GET /apis/discovery.k8s.io/v1/namespaces/bench/endpointslices":            true,
		"GET /apis/discovery.k8s.io/v1/namespaces/bench/endpointslices?watch=true": false,
		"GET /apis/discovery.k8s.io/v1/namespaces/bench/endpointslices/web":        false,
		"GET /apis/multicluster.x-k8s.io/v1beta1/namespaces/b/serviceimports/web":  true,
		"GET /api/v1/namespaces/bench/services":                                    false,
		"POST /api/v1/namespaces/bench/services":                                   true,
	} {
		verb, url, _ := strings.Cut(path, " ")
		req, err := http.NewRequestWithContext(t.Context(), verb, "https://server"+url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := isCountedRequest(req); got != want {
			t.Errorf("%s: counted %t, want %t", path, got, want)
		}
	}
}

func TestRequestsOfNodesAreKnown(t *testing.T) {
	for kind, want := range map[request]bool{
		{"PATCH", "pods/status"}: true, {"POST", "events"}: true, {"POST", "services"}: false, {"PUT", "serviceexports/status"}: false,
	} {
		if got := kind.isOfNodes(); got != want {
			t.Errorf("%s: %t, want %t", kind, got, want)
		}
	}
}

func TestReportMarksRowsOverBudget(t *testing.T) {
	r := &report.Report{Peers: []string{"bare chain"}}
	addTotal(r, "fast", time.Second, time.Second, 2, "")
	addTotal(r, "slow", 5*time.Second, time.Second, 2, "why")
	addExpectedZero(r, "writes", counts{"broker": {{"PUT", "serviceimports"}: 2, {"own", ""}: -2}})
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.00 ×  ≤ 2 ×   ok", "5.00 ×  ≤ 2 ×   OVER", "- slow: why", "1 budget was MISSED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

// The budget is for what agents send. What API servers send to themselves for it has a row of its
// own.
func TestRequestsOfAPIServersAreApart(t *testing.T) {
	r := &report.Report{}
	addRequests(r, "export", 10, 3, counts{
		"exporter": {{"POST", "services"}: 10, {"POST", "ipaddresses"}: 10, {"POST", "serviceexports"}: 10, {"own", ""}: -10},
		"importer": {{"POST", "services"}: 10, {"POST", "ipaddresses"}: 10, {"PUT", "serviceimports/status"}: 11},
	})
	if len(r.Rows) != 2 || r.Rows[0].Value != 3.1 || !r.Rows[0].Over || r.Rows[1].Value != 2 {
		t.Errorf("%+v", r.Rows)
	}
	r = &report.Report{}
	addRequests(r, "export", 10, 3, counts{"exporter": {{"POST", "endpointslices"}: 30}})
	if len(r.Rows) != 1 || r.Rows[0].Value != 3 || r.Rows[0].Over {
		t.Errorf("%+v", r.Rows)
	}
}
