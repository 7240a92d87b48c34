package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// What peers got wrong at scale: a watch for each exported service, a list of everything at each scrape, a metric series for each
// address. Thirty services must cost no more watches than one, a scrape no request at all, and no series of its own.
func TestCostsDoNotGrowWithServices(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(context.Background(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west := f.Members[0], f.Members[1]
	address := freeAddress(t)
	west.StartProcess(t)
	east.StartProcess(t, "--metrics-bind-address="+address)
	ns := fleet.NewNamespace(t, east, west)
	serve := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			name := fmt.Sprintf("svc-%d", i)
			east.Serve(t, fleet.NewService(ns, name), fmt.Sprintf("10.1.0.%d", i+1))
			east.Export(t, ns, name)
		}
		for i := from; i < to; i++ {
			name := fmt.Sprintf("svc-%d", i)
			exportedAndReady(t, east, ns, name)
			for _, m := range f.Members { // both, so that both have opened every watch
				imported(t, m, ns, name, map[string][]string{"east": {fmt.Sprintf("10.1.0.%d", i+1)}})
			}
		}
	}
	serve(0, 1)
	watchesBefore, seriesBefore := watches(t, cps), series(scrape(t, address))
	serve(1, 30)
	for kind, after := range watches(t, cps) {
		if before := watchesBefore[kind]; after > before {
			t.Errorf("%v watches with one service, %v with thirty: %s", before, after, kind)
		}
	}
	text := scrape(t, address)
	if after := series(text); after > seriesBefore+20 { // buckets and codes that had not come up before
		t.Errorf("%d metric series with one service, %d with thirty", seriesBefore, after)
	}
	for _, value := range regexp.MustCompile(`="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if _, err := netip.ParseAddr(value[1]); err == nil || strings.HasPrefix(value[1], "svc-") {
			t.Errorf("a metric has the label value %q: there may be any number of those", value[1])
		}
	}
	for metric, atLeast := range map[string]float64{
		`seamark_exports{state="ready"}`: 30, `seamark_exports{state="pending"}`: 0, `seamark_export_conflicts{state="conflict"}`: 0,
		`seamark_imports{state="ready"}`: 30, `seamark_propagation_seconds_count{hop="publish"}`: 30, `seamark_propagation_seconds_count{hop="import"}`: 1,
		`seamark_api_writes_total{kind="ExportRecord",server="broker",verb="create"}`: 30, `seamark_broker_connected`: 1, `seamark_stale_clusters`: 0,
		`seamark_clusterset_ip_pool_used{block="243.0.0.0/16"}`: 30, `seamark_clusterset_ip_pool_size{block="243.0.0.0/16"}`: 65534,
		`seamark_lease_age_seconds{cluster="west"}`: 0, `seamark_queue_depth{reconciler="export"}`: 0,
	} {
		if got, ok := value(text, metric); !ok || got < atLeast || (atLeast == 0 && !strings.Contains(metric, "age") && got > 0) {
			t.Errorf("%s is %v (there: %v), want %v", metric, got, ok, atLeast)
		}
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

// value is that of one series of a scrape.
func value(text, metric string) (float64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, metric+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

func series(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// watches counts, on each API server, those of the kinds that services are made of. Others come and go by themselves: API servers
// watch the parameters of policies, for example, some time after the policies came.
func watches(t *testing.T, cps []*controlplane.ControlPlane) map[string]float64 {
	t.Helper()
	ofServices := regexp.MustCompile(`resource="(endpointslices|services|serviceexports|serviceimports|exportrecords)".*verb="WATCH"`)
	open := map[string]float64{}
	for i, cp := range cps {
		total(t, []*controlplane.ControlPlane{cp}, func(line string) bool {
			labels, count, _ := strings.Cut(line, "} ")
			if strings.HasPrefix(line, "apiserver_longrunning_requests{") && ofServices.MatchString(line) {
				n, _ := strconv.ParseFloat(strings.TrimSpace(count), 64)
				open[fmt.Sprintf("server %d: %s", i, labels)] = n
			}
			return false
		})
	}
	return open
}

func lists(t *testing.T, cps []*controlplane.ControlPlane) float64 {
	t.Helper()
	return total(t, cps, func(line string) bool {
		return strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="LIST"`) &&
			(strings.Contains(line, "seamark.dev") || strings.Contains(line, "multicluster") || strings.Contains(line, `resource="endpointslices"`))
	})
}

func total(t *testing.T, cps []*controlplane.ControlPlane, counts func(string) bool) float64 {
	t.Helper()
	sum := 0.0
	for _, cp := range cps {
		clientset, err := kubernetes.NewForConfig(cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
		if err != nil {
			t.Fatalf("read the API server's metrics: %v", err)
		}
		lines := bufio.NewScanner(strings.NewReader(string(raw)))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line := lines.Text(); counts(line) {
				var value float64
				if _, err := fmt.Sscanf(line[strings.LastIndexByte(line, ' ')+1:], "%g", &value); err != nil {
					t.Fatalf("read %q: %v", line, err)
				}
				sum += value
			}
		}
	}
	return sum
}
