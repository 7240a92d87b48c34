package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui"
	uifleet "github.com/seamark-dev/seamark/internal/ui/fleet"
	"github.com/seamark-dev/seamark/internal/ui/server"
	"github.com/seamark-dev/seamark/internal/ui/watch"
	"github.com/seamark-dev/seamark/test/browser"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// clusterset is a real clusterset, whose agents run, with its page.
type clusterset struct {
	t       testing.TB
	fleet   *fleet.Fleet
	configs map[string]*rest.Config
	url     string
}

func newClusterset(t testing.TB, f *fleet.Fleet, config func(*fleet.Member) *rest.Config) *clusterset {
	t.Helper()
	t.Cleanup(f.Stop)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	c := &clusterset{t: t, fleet: f, configs: map[string]*rest.Config{}}
	options := uifleet.Options{BrokerNamespace: objects.DefaultNamespace, Questions: watch.Questions{Forward: true, Token: true}}
	for _, m := range f.Members {
		c.configs[m.ID] = config(m)
		options.Clusters = append(options.Clusters, uifleet.Target{Context: m.ID, Config: config(m)})
	}
	l, err := server.Listen(t.Context(), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	c.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ui.Follow(ctx, ui.Options{Listener: l, Token: token}, options) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *clusterset) open(path string) *browser.Tab {
	c.t.Helper()
	tab := browser.Open(c.t, c.url+path+"#token="+token)
	tab.Ready()
	return tab
}

// serve creates a service with two ready endpoints in a member and exports it.
func (c *clusterset) serve(m *fleet.Member, ns, name string, change ...func(*corev1.Service)) {
	c.t.Helper()
	m.Serve(c.t, fleet.NewService(ns, name, change...), "10.1.0.1", "10.1.0.2")
	m.Export(c.t, ns, name)
}

// report explains a service as the command does, from the API servers themselves.
func (c *clusterset) report(ns, name string) explain.Report {
	var clusters []*survey.Cluster
	for _, m := range c.fleet.Members {
		clusters = append(clusters, &survey.Cluster{Context: m.ID, Connection: survey.Connection{Config: c.configs[m.ID]}})
	}
	survey.Identify(c.t.Context(), clusters)
	broker := survey.FindBroker(c.t.Context(), clusters, objects.DefaultNamespace)
	return explain.Explain(survey.ReadService(c.t.Context(), clusters, broker, types.NamespacedName{Namespace: ns, Name: name}, nil))
}

// limit is the time in which the page must show what explain finds.
func limit(t testing.TB) time.Duration {
	t.Helper()
	factor := 1.0
	if text := os.Getenv(harness.TimeoutFactorEnv); text != "" {
		var err error
		if factor, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	return time.Duration(factor * 5 * float64(time.Second))
}

// named waits until explain finds a code, and then until the page names it, in the matrix and in
// the view of the service.
func (c *clusterset) named(tab *browser.Tab, ns, name, code string) {
	c.t.Helper()
	harness.Eventually(c.t, "explain finds "+code, func() error {
		for _, f := range c.report(ns, name).Findings {
			if f.Code == code {
				return nil
			}
		}
		return errors.New("not yet")
	})
	found := time.Now()
	tab.Until("the matrix names "+code, fmt.Sprintf(
		`[...document.querySelectorAll(".row:not([hidden])")].some((r) =>
			r.querySelector(".name").textContent === %q && r.querySelector(".text").textContent.includes(%q))`,
		ns+"/"+name, code))
	c.inTime(code, found)
	view := c.open("/service/" + ns + "/" + name)
	view.Shows(".finding[data-code="+code+"] .cure", "do: ")
}

// inTime checks how long after a moment a fault was on the page.
func (c *clusterset) inTime(fault string, since time.Time) {
	c.t.Helper()
	took := time.Since(since)
	c.t.Logf("%s: on the page after %s", fault, took.Round(10*time.Millisecond))
	if took > limit(c.t) {
		c.t.Errorf("%s was on the page after %s", fault, took)
	}
}

// healthy waits until the page shows a service without trouble.
func healthy(tab *browser.Tab, ns, name string) {
	tab.Until(name+" is healthy", fmt.Sprintf(
		`[...document.querySelectorAll(".row:not([hidden])")].some((r) =>
			r.querySelector(".name").textContent === %q && r.dataset.verdict === "1")`, ns+"/"+name))
}

// The faults that an engineer meets, made on a real clusterset, are on the page by name soon after
// explain finds them.
func TestFaults(t *testing.T) {
	cps := harness.Fresh(t, 3)
	f, err := fleet.New(t.Context(), cps[0], cps[1:], fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := newClusterset(t, f, func(m *fleet.Member) *rest.Config { return m.CP.Config() })
	east, west := f.Members[0], f.Members[1]
	ns := fleet.NewNamespace(t, east, west)
	tab := c.open("/services?all=1")
	c.serve(east, ns, "web")
	healthy(tab, ns, "web")
	tab.Shows(".cell-line, .row .text", "exported by east")

	east.Export(t, ns, "nothing")
	c.named(tab, ns, "nothing", "no-service")

	east.Create(t, fleet.NewService(ns, "far", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	}))
	east.Export(t, ns, "far")
	c.named(tab, ns, "far", "external-name")

	for _, name := range []string{"ports", "types"} {
		c.serve(east, ns, name)
		healthy(tab, ns, name)
	}
	c.serve(west, ns, "ports", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{fleet.Port("http", 8080)} })
	c.named(tab, ns, "ports", "port-conflict")
	c.serve(west, ns, "types", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	c.named(tab, ns, "types", "type-conflict")

	alone := fleet.NewNamespace(t, east)
	c.serve(east, alone, "web")
	c.named(tab, alone, "web", "namespace-missing")

	west.Create(t, fleet.NewService(ns, objects.DerivedServiceName("taken")))
	c.serve(east, ns, "taken")
	c.named(tab, ns, "taken", "derived-service-foreign")

	c.serve(east, ns, "tired")
	healthy(tab, ns, "tired")
	notReady(t, east, ns, "tired")
	c.named(tab, ns, "tired", "no-ready-endpoints")

	west.Create(t,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: objects.AgentNamespace, Name: survey.DNSServer}, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{fleet.Port("dns", 53)},
		}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{
			"Corefile": ".:53 {\n    kubernetes cluster.local\n    forward . /etc/resolv.conf\n}\n",
		}})
	c.named(tab, ns, "web", "dns-not-forwarded")
	tab.Screenshot("faults")

	faultsOfClusters(c, tab, ns)
	clusters := c.open("/clusters")
	clusters.Shows("tr[data-cluster=east]", "alive")
	clusters.Screenshot("clusters-real")
	c.open("/service/" + ns + "/ports").Screenshot("service-real")
}

// faultsOfClusters stops an agent, cuts a cluster off, and then the broker.
func faultsOfClusters(c *clusterset, tab *browser.Tab, ns string) {
	c.t.Helper()
	east, west := c.fleet.Members[0], c.fleet.Members[1]
	east.Stop()
	c.named(tab, ns, "web", "agent-silent")
	tab.Shows("#timeline li", "the heartbeat of east has stopped")
	if err := east.Start(); err != nil {
		c.t.Fatal(err)
	}
	tab.Shows("#timeline li", "the heartbeat of east reaches the broker")

	cut := time.Now() // requests that get no answer are all there is to notice
	west.CP.CutOff()
	tab.Shows("#notices", "A cluster does not answer: west (last seen ")
	tab.Shows(".row .text", "unknown in west")
	c.inTime("cluster cut off", cut)
	tab.Screenshot("cluster-cut-off")
	west.CP.Reconnect()
	tab.Until("the notice goes", `!document.getElementById("notices").textContent.includes("west")`)

	cut = time.Now()
	c.fleet.Broker.CutOff()
	tab.Shows("#notices", "The broker does not answer, last seen ")
	c.inTime("broker away", cut)
	if n := count(tab); n < 5 {
		c.t.Errorf("%d services are shown", n)
	}
	c.fleet.Broker.Reconnect()
	tab.Until("the notice goes", `!document.getElementById("notices").textContent.includes("broker")`)
	tab.Shows("#timeline li", "the broker answers")
}

// notReady makes the endpoints of a service not ready.
func notReady(t testing.TB, m *fleet.Member, ns, name string) {
	t.Helper()
	slice := fleet.NewSlice(fleet.NewService(ns, name), "abc")
	fleet.Update(t, m, ns, slice.Name, slice, func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Conditions.Ready = ptr.To(false)
		}
	})
}

// Ten viewers cost the API servers as much as one: the page asks, and not its viewers.
func TestViewersCostNothing(t *testing.T) {
	cps := harness.Fresh(t, 2)
	f, err := fleet.New(t.Context(), cps[0], cps[1:], fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	c := newClusterset(t, f, func(m *fleet.Member) *rest.Config {
		config := rest.CopyConfig(m.CP.Config())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return counting{next, &requests}
		})
		return config
	})
	ns := fleet.NewNamespace(t, f.Members[0])
	c.serve(f.Members[0], ns, "web")
	healthy(c.open("/services?all=1"), ns, "web")
	// The page asks once in two seconds and more seldom, so each window has several rounds.
	window := func() int64 {
		before := requests.Load()
		time.Sleep(8 * time.Second)
		return requests.Load() - before
	}
	one := window()
	for range 9 {
		c.open("/services")
	}
	ten := window()
	t.Logf("requests in 8 s: %d with one viewer, %d with ten", one, ten)
	if ten > one+one/2+5 {
		t.Errorf("%d requests with one viewer, %d with ten", one, ten)
	}
}

type counting struct {
	next  http.RoundTripper
	count *atomic.Int64
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.next.RoundTrip(req)
}
