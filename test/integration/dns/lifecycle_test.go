package dns_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
)

// freshCluster returns a prepared control plane for one test, with a service web in a namespace.
func freshCluster(t *testing.T) (*controlplane.ControlPlane, string) {
	t.Helper()
	cp := harness.Fresh(t, 1)[0]
	c := clientOf(t, cp)
	if err := prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ns := harness.Namespace(t, cp)
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, clusterSetIP(ns, "web", []string{"243.2.0.1"}, port("http", 80)), db,
		imported(db, "west", "1", endpoint("10.2.0.1", named("db-0"))))
	return cp, ns
}

// httpGet returns the status and body of a page.
func httpGet(url string) (status int, body string, err error) {
	client := &http.Client{Timeout: 2 * time.Second}
	reply, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

// Until all objects have been read, every query fails and the server is not ready. After that all
// names exist at once.
func TestNothingIsDeniedBeforeItIsKnown(t *testing.T) {
	cp, ns := freshCluster(t)
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	readiness := dnsprocess.FreeAddress(t)
	text := strings.TrimSuffix(corefile(cp, "clusterset.local in-addr.arpa"), "}\n") + " ready " + readiness + "\n}\n"
	s := startCorefile(t, text)
	names := []string{"web." + ns + ".svc.clusterset.local", "no." + ns + ".svc.clusterset.local", "clusterset.local",
		"1.0.2.243.in-addr.arpa"}
	for _, name := range names {
		for _, qtype := range []uint16{a, srv, dns.TypeSOA} {
			if reply := s.query(name, qtype); reply.Rcode != dns.RcodeServerFailure || len(reply.Ns) > 0 {
				t.Errorf("%s %s before the objects were read: %v", name, dns.TypeToString[qtype], reply)
			}
		}
	}
	if status, _, err := httpGet("http://" + readiness + "/ready"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d, %v", status, err)
	}

	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "an answer, and no denial before it", func() error {
		reply, err := s.exchange("udp", newQuery(names[0], a))
		if err != nil {
			return err
		}
		switch reply.Rcode {
		case dns.RcodeSuccess:
			return nil
		case dns.RcodeServerFailure:
			return errors.New("not yet")
		}
		t.Fatalf("an answer before the objects were read: %v", reply)
		return nil
	})
	if reply := s.query("db-0.west.db."+ns+".svc.clusterset.local", a); len(reply.Answer) != 1 {
		t.Errorf("the first answer came before all objects were read: %v", reply)
	}
	harness.Eventually(t, "ready", func() error {
		status, body, err := httpGet("http://" + readiness + "/ready")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// A starting server never denies an existing name.
func TestRestartDeniesNothing(t *testing.T) {
	cp, ns := freshCluster(t)
	for range 5 {
		s := start(t, cp)
		if reply := s.query("web."+ns+".svc.clusterset.local", a); len(reply.Answer) != 1 {
			t.Fatalf("the first answer after a start: %v", reply)
		}
		s.stop()
	}
}

// While the API server is unreachable, all names stay and a metric reports it. Once it is back,
// changes arrive again.
func TestLostAPIServer(t *testing.T) {
	cp, ns := freshCluster(t)
	page := dnsprocess.FreeAddress(t)
	text := strings.TrimSuffix(corefile(cp, "clusterset.local"), "}\n") + " prometheus " + page + "\n}\n"
	s := startCorefile(t, text)
	want := []row{
		{"web." + ns + ".svc.clusterset.local", a, success, []string{"web." + ns + ".svc.clusterset.local. 5 IN A 243.2.0.1"}, nil},
		{"db." + ns + ".svc.clusterset.local", a, success, []string{"db." + ns + ".svc.clusterset.local. 5 IN A 10.2.0.1"}, nil},
		{"no." + ns + ".svc.clusterset.local", a, nxdomain, nil, nil},
	}
	s.check(t, want)
	waitForConnected(t, page, "1")
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	waitForConnected(t, page, "0")
	s.check(t, want)
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, clientOf(t, cp), clusterSetIP(ns, "new", []string{"243.2.0.2"}))
	s.check(t, append(want, row{"new." + ns + ".svc.clusterset.local", a, success,
		[]string{"new." + ns + ".svc.clusterset.local. 5 IN A 243.2.0.2"}, nil}))
	waitForConnected(t, page, "1")
}

func waitForConnected(t *testing.T, page, want string) {
	t.Helper()
	harness.Eventually(t, "seamark_dns_api_connected is "+want, func() error {
		_, body, err := httpGet("http://" + page + "/metrics")
		if err == nil && !strings.Contains(body, "\nseamark_dns_api_connected "+want+"\n") {
			err = errors.New("it is not")
		}
		return err
	})
}

// A reload while the API server is unreachable fails, and the server goes on with the objects it
// has.
func TestReloadWithoutAPIServerKeepsWhatIsKnown(t *testing.T) {
	cp, ns := freshCluster(t)
	text := corefile(cp, "clusterset.local")
	s := startCorefile(t, text)
	want := []row{{"web." + ns + ".svc.clusterset.local", a, success, []string{"web." + ns + ".svc.clusterset.local. 5 IN A 243.2.0.1"}, nil}}
	s.check(t, want)
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := s.reload(text); err == nil || !strings.Contains(err.Error(), "stays in use") {
		t.Errorf("reload without an API server: %v", err)
	}
	s.check(t, want)

	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.reload(text); err != nil {
		t.Fatalf("reload: %v", err)
	}
	s.check(t, want)
}

// A service that changes its kind keeps its name, although slices of a service with a clusterset IP
// are stored without content.
func TestKindChanges(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	si := clusterSetIP(ns, "svc", []string{"243.2.1.1"}, port("http", 80))
	slice := imported(si, "west", "1", endpoint("10.2.1.1", named("p-0")))
	create(t, c, si, slice)
	name := "svc." + ns + ".svc.clusterset.local"
	s := start(t, cp)
	answered := func(ips ...string) []row { return answersOf(name, ips...) }
	for range 3 {
		s.check(t, answered("243.2.1.1"))
		stop := watchDenials(t, s, name)
		si.Spec.Type, si.Spec.IPs = headless(ns, "svc").Spec.Type, nil
		update(t, c, si)
		s.check(t, append(answered("10.2.1.1"), row{"p-0.west." + name, a, success, []string{"p-0.west." + name + ". 5 IN A 10.2.1.1"}, nil}))
		slice.Endpoints = append(slice.Endpoints, endpoint("10.2.1.2"))
		update(t, c, slice)
		s.check(t, answered("10.2.1.1", "10.2.1.2"))
		slice.Endpoints = slice.Endpoints[:1]
		update(t, c, slice)
		s.check(t, answered("10.2.1.1"))
		si.Spec.Type, si.Spec.IPs = clusterSetIP(ns, "svc", nil).Spec.Type, []string{"243.2.1.1"}
		update(t, c, si)
		s.check(t, answered("243.2.1.1"))
		stop()
	}
	// A slice that arrives before its import, and one that moves to another service.
	late := headless(ns, "late", port("http", 80))
	early := imported(late, "west", "1", endpoint("10.2.1.9"))
	create(t, c, early, late)
	name = "late." + ns + ".svc.clusterset.local"
	s.check(t, answered("10.2.1.9"))
	other := headless(ns, "other", port("http", 80))
	create(t, c, other)
	early.Labels = imported(other, "west", "1").Labels
	update(t, c, early)
	s.check(t, []row{{name, a, nxdomain, nil, nil}})
	name = "other." + ns + ".svc.clusterset.local"
	s.check(t, answered("10.2.1.9"))
}

// Slices behind a clusterset IP are not even sent to the DNS server, by their label. A service that
// becomes headless keeps its previous answer until the agent has taken the label from its slices.
func TestSlicesBehindClusterSetIPsAreNotRead(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	si := clusterSetIP(ns, "svc", []string{"243.2.3.1"}, port("http", 80))
	first, second := imported(si, "west", "1", endpoint("10.2.3.1")), imported(si, "north", "1", endpoint("10.2.3.2"))
	hide := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.Labels[v1alpha1.LabelClusterSetIP] = ""
		return s
	}
	create(t, c, si, hide(first), hide(second))
	name := "svc." + ns + ".svc.clusterset.local"
	s := start(t, cp)
	answered := func(ips ...string) []row { return answersOf(name, ips...) }
	s.check(t, answered("243.2.3.1"))
	stop := s.queryContinuously(name, a, func(reply *dns.Msg) bool {
		complete := len(reply.Answer) == 1 && reply.Answer[0].(*dns.A).A.String() == "243.2.3.1" || len(reply.Answer) == 2
		if !complete {
			t.Errorf("neither the old nor the new answer: %v", reply)
		}
		return complete
	})
	si.Spec.Type, si.Spec.IPs = headless(ns, "svc").Spec.Type, nil
	update(t, c, si)
	// The last query of another name shows that the change has arrived.
	create(t, c, clusterSetIP(ns, "after", []string{"243.2.3.2"}, port("http", 80)))
	harness.Eventually(t, "the change has arrived", func() error {
		return wantAddresses(s, "after."+ns+".svc.clusterset.local", "243.2.3.2")
	})
	s.check(t, answered("243.2.3.1"))
	for _, slice := range []*discoveryv1.EndpointSlice{first, second} {
		delete(slice.Labels, v1alpha1.LabelClusterSetIP)
		update(t, c, slice)
	}
	s.check(t, answered("10.2.3.1", "10.2.3.2"))
	stop()

	update(t, c, hide(first)) // as if it were behind a clusterset IP: it is not delivered
	s.check(t, answered("10.2.3.2"))
	si.Spec.Type, si.Spec.IPs = clusterSetIP(ns, "svc", nil).Spec.Type, []string{"243.2.3.1"}
	update(t, c, si)
	s.check(t, answered("243.2.3.1"))
}

// watchDenials queries a name until the function it returns is called, and fails the test if the
// name is ever denied.
func watchDenials(t *testing.T, s *dnsServer, name string) (done func()) {
	t.Helper()
	return s.queryContinuously(name, a, func(reply *dns.Msg) bool {
		if reply.Rcode != dns.RcodeSuccess {
			t.Errorf("%s was denied: %v", name, reply)
		}
		return reply.Rcode == dns.RcodeSuccess
	})
}

// queryContinuously sends a query over and over until check returns false for a reply or the
// function it returns is called, which waits until no query is under way.
func (s *dnsServer) queryContinuously(name string, qtype uint16, check func(*dns.Msg) bool) (stop func()) {
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if reply, err := s.exchange("udp", newQuery(name, qtype)); err == nil && !check(reply) {
				return
			}
		}
	})
	return func() {
		close(end)
		running.Wait()
	}
}

// The zone of this server's node is found by the node's name.
func TestZoneOfTheNode(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + ns, Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	db := headless(ns, "db", port("pg", 5432))
	create(t, c, node, db, imported(db, "west", "1", endpoint("10.2.2.1", inZone("b")), endpoint("10.2.2.2", inZone("a"))))
	t.Setenv("NODE_NAME", node.Name)
	s := start(t, cp, "locality headless")
	name := "db." + ns + ".svc.clusterset.local"
	s.waitForAddresses(t, name, 2)
	harness.Eventually(t, "the zone of the node first", s.alwaysFirst(name, "10.2.2.2"))
}

// Answers are consistent during changes: each comes from one state of the service. The race
// detector runs too.
func TestAnswersUnderConstantChange(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	db := headless(ns, "db", port("pg", 5432))
	slice := imported(db, "west", "1", endpoint("10.2.3.1", named("p")), endpoint("10.2.3.101", named("p")))
	create(t, c, db, slice)
	s := start(t, cp)
	name := "db." + ns + ".svc.clusterset.local"
	s.waitForAddresses(t, name, 2)
	check := func(reply *dns.Msg) bool {
		if reply.Question[0].Qtype != a {
			return true
		}
		// Both addresses of a state differ by a hundred in their last byte.
		if len(reply.Answer) != 2 {
			t.Errorf("half a state: %v", reply)
			return false
		}
		x, y := reply.Answer[0].(*dns.A).A.To4()[3], reply.Answer[1].(*dns.A).A.To4()[3]
		if max(x, y)-min(x, y) != 100 {
			t.Errorf("a mixture of states: %v", reply)
			return false
		}
		return true
	}
	for _, q := range []struct {
		name  string
		qtype uint16
	}{{name, a}, {"_pg._tcp." + name, srv}, {"p.west." + name, a}, {"1.3.2.10.in-addr.arpa", dns.TypePTR}} {
		defer s.queryContinuously(q.name, q.qtype, check)()
	}
	for i := range 60 {
		last := 1 + i%90
		slice.Endpoints = []discoveryv1.Endpoint{
			endpoint(fmt.Sprintf("10.2.3.%d", last), named("p")), endpoint(fmt.Sprintf("10.2.3.%d", last+100), named("p")),
		}
		update(t, c, slice)
	}
}

// answersOf returns the answer to a query for the addresses of a name.
func answersOf(name string, ips ...string) []row {
	r := row{name: name, qtype: a}
	for _, ip := range ips {
		r.answer = append(r.answer, name+". 5 IN A "+ip)
	}
	return []row{r}
}
