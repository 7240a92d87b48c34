package agent_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// Lessons of other projects: a watch for each exported service, a list of everything at each
// scrape, a metric series for each address. Thirty services must need no more watches and metric
// series than one, and a scrape must cause no list request.
func TestCostsDoNotGrowWithServices(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west := f.Members[0], f.Members[1]
	address, atImporter := freeAddress(t), freeAddress(t)
	west.StartProcess(t, "--metrics-bind-address="+atImporter)
	east.StartProcess(t, "--metrics-bind-address="+address)
	ns := fleet.NewNamespace(t, east, west)
	export := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			name := fmt.Sprintf("svc-%d", i)
			east.Serve(t, fleet.NewService(ns, name), fmt.Sprintf("10.1.0.%d", i+1))
			east.Export(t, ns, name)
		}
		for i := from; i < to; i++ {
			name := fmt.Sprintf("svc-%d", i)
			east.AwaitExported(t, ns, name)
			for _, m := range f.Members { // both agents have opened all watches then
				m.AwaitImport(t, ns, name, map[string][]string{"east": {fmt.Sprintf("10.1.0.%d", i+1)}})
			}
		}
	}
	export(0, 1)
	awaitWatches(t, cps)
	seriesBefore := countSeries(scrape(t, address))
	export(1, 30)
	awaitWatches(t, cps)
	text := scrape(t, address)
	if after := countSeries(text); after > seriesBefore+20 { // buckets and status codes that are new
		t.Errorf("%d metric series with one service, %d with thirty", seriesBefore, after)
	}
	for _, value := range regexp.MustCompile(`="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if _, err := netip.ParseAddr(value[1]); err == nil || strings.HasPrefix(value[1], "svc-") {
			t.Errorf("a metric has the label value %q, of which there can be any number", value[1])
		}
	}
	for metric, atLeast := range map[string]float64{
		`seamark_exports{state="ready"}`: 30, `seamark_exports{state="pending"}`: 0, `seamark_export_conflicts{state="conflict"}`: 0,
		`seamark_imports{state="ready"}`:                                              30,
		`seamark_propagation_seconds_count{hop="publish"}`:                            30,
		`seamark_api_writes_total{kind="ExportRecord",server="broker",verb="create"}`: 30,
		`seamark_broker_connected`:                                                    1, `seamark_stale_clusters`: 0,
		`seamark_clusterset_ip_pool_used{block="243.0.0.0/18"}`: 30, `seamark_clusterset_ip_pool_size{block="243.0.0.0/18"}`: 16382,
		`seamark_lease_age_seconds{cluster="east"}`: 0, `seamark_queue_depth{reconciler="export"}`: 0,
	} {
		if got, ok := seriesValue(text, metric); !ok || got < atLeast || (atLeast == 0 && !strings.Contains(metric, "age") && got > 0) {
			t.Errorf("%s is %v (found: %t), want %v", metric, got, ok, atLeast)
		}
	}
	// The exporter defers its own imports, which then are not measured.
	const imported = `seamark_propagation_seconds_count{hop="import"}`
	if got, _ := seriesValue(scrape(t, atImporter), imported); got < 1 {
		t.Errorf("in the importer %s is %v", imported, got)
	}
	listsBefore := lists(t, cps)
	for range 5 {
		scrape(t, address)
	}
	if after := lists(t, cps); after != listsBefore {
		t.Errorf("five scrapes made %v list requests", after-listsBefore)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	var text string
	harness.Eventually(t, "scrape the agent", func() error {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		text = string(body)
		return err
	})
	return text
}

// seriesValue returns the value of one series of a scrape.
func seriesValue(text, metric string) (float64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, metric+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// countSeries returns the number of series of a scrape.
func countSeries(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// serviceResources are the resources that services consist of.
var serviceResources = []string{"endpointslices", "services", "serviceexports", "serviceimports", "exportrecords"}

// wantWatches are the open watches of serviceResources, by the API server. The first is the
// broker's too, and both agents read the broker. Each API server itself watches Services and their
// slices.
var wantWatches = []map[string]float64{
	{"endpointslices": 4, "services": 2, "serviceexports": 1, "serviceimports": 3, "exportrecords": 2},
	{"endpointslices": 2, "services": 2, "serviceexports": 1, "serviceimports": 1},
}

// awaitWatches waits until all watches are open, and fails if there are more. An API server ends
// watches now and then, and agents open them again a little later.
func awaitWatches(t *testing.T, cps []*controlplane.ControlPlane) {
	t.Helper()
	harness.Eventually(t, "all watches are open", func() error {
		open := watches(t, cps)
		if !slices.EqualFunc(open, wantWatches, maps.Equal) {
			return fmt.Errorf("open watches by server and resource: %v, want %v", open, wantWatches)
		}
		return nil
	})
}

// watches returns the number of open watches of each API server, by their resource. It counts only
// watches of serviceResources: API servers open others by themselves, for example of the parameters
// of policies some time after these were created.
func watches(t *testing.T, cps []*controlplane.ControlPlane) []map[string]float64 {
	t.Helper()
	open := make([]map[string]float64, len(cps))
	for i, cp := range cps {
		open[i] = map[string]float64{}
		for _, s := range harness.Metric(t, cp, "apiserver_longrunning_requests") {
			if s.Labels["verb"] == "WATCH" && s.Value > 0 && slices.Contains(serviceResources, s.Labels["resource"]) {
				open[i][s.Labels["resource"]] += s.Value
			}
		}
	}
	return open
}

// lists returns how many list requests the API servers have served for the resources that only
// agents list.
func lists(t *testing.T, cps []*controlplane.ControlPlane) float64 {
	t.Helper()
	sum := 0.0
	for _, cp := range cps {
		for _, s := range harness.Metric(t, cp, "apiserver_request_total") {
			group := s.Labels["group"]
			ofAgents := strings.Contains(group, "seamark.dev") || strings.Contains(group, "multicluster") || s.Labels["resource"] == "endpointslices"
			if s.Labels["verb"] == "LIST" && ofAgents {
				sum += s.Value
			}
		}
	}
	return sum
}
