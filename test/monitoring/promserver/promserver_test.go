package promserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/test/monitoring/dashboard"
	"github.com/seamark-dev/seamark/test/monitoring/promserver"
)

func TestServerScrapesAndStops(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ships 3") }))
	defer target.Close()
	address := strings.TrimPrefix(target.URL, "http://")
	config := "scrape_configs: [{job_name: sea, scrape_interval: 100ms, scrape_timeout: 100ms, " +
		"static_configs: [{targets: ['" + address + "']}]}]"
	server, err := promserver.Start(t.Context(), t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	prometheus := dashboard.Prometheus{URL: server.URL}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		now := time.Now()
		span := dashboard.Span{From: now, To: now, Step: time.Second}
		series, err := prometheus.Query(t.Context(), dashboard.Target{Expr: "ships", Legend: "{{job}}"}, span)
		if err != nil {
			t.Fatal(err)
		}
		if len(series) == 1 && series[0].Name == "sea" && series[0].Samples[0].Value == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the target was not scraped: %v", series)
		}
	}
	server.Stop()
	now := time.Now()
	span := dashboard.Span{From: now, To: now, Step: time.Second}
	if _, err := prometheus.Query(t.Context(), dashboard.Target{Expr: "ships"}, span); err == nil {
		t.Error("the server still answers")
	}
}

func TestStartErrorHasTheCause(t *testing.T) {
	_, err := promserver.Start(t.Context(), t.TempDir(), "scrape_configs: [{job_name: ''}]")
	if err == nil || !strings.Contains(err.Error(), "job_name is empty") {
		t.Error(err)
	}
}
