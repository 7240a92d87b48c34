// Package dns_test queries real servers over real sockets about objects in a real API server. The
// servers run in this process, in the same way as in seamark-dns, so the race detector covers them.
package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/internal/dns/server"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
)

// localCluster is the id of the cluster whose DNS is tested.
const localCluster = "east"

func TestMain(m *testing.M) {
	dnsprocess.RunIfChild()
	server.Configure()
	dnsserver.Quiet = true
	harness.Main(m)
}

var (
	preparing   sync.Once
	errPrepared error
)

// cluster returns the control plane that all tests share: that of a member with an id.
func cluster(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	cp := harness.Clusters(t, 1)[0]
	preparing.Do(func() { errPrepared = prepare(context.Background(), clientOf(t, cp)) })
	if errPrepared != nil {
		t.Fatal(errPrepared)
	}
	return cp
}

// clusterNamespace returns the shared control plane with a new namespace on it and a client.
func clusterNamespace(t testing.TB) (cp *controlplane.ControlPlane, namespace string, c client.Client) {
	t.Helper()
	cp = cluster(t)
	return cp, harness.Namespace(t, cp), clientOf(t, cp)
}

// prepare installs on an API server what a member has.
func prepare(ctx context.Context, c client.Client) error {
	if _, err := crds.Install(ctx, c, crds.Member); err != nil {
		return err
	}
	return c.Create(ctx, &aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: aboutv1beta1.PropertyClusterID},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: localCluster},
	})
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := harness.Scheme()
	if err := aboutv1beta1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
})

// clientOf returns a client that bypasses the outages of a test.
func clientOf(t testing.TB, cp *controlplane.ControlPlane) client.Client {
	t.Helper()
	c, err := client.New(cp.DirectConfig(), client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dnsServer is a running server.
type dnsServer struct {
	t        testing.TB
	instance *caddy.Instance
	udp, tcp string
}

// start runs a server for the zone and all reverse zones with some options of the plugin, and stops
// it at the end of the test.
func start(t testing.TB, cp *controlplane.ControlPlane, options ...string) *dnsServer {
	t.Helper()
	return startCorefile(t, corefile(cp, "clusterset.local in-addr.arpa ip6.arpa", options...))
}

// corefile returns a Corefile with one server block on a free port.
func corefile(cp *controlplane.ControlPlane, zones string, options ...string) string {
	keys := strings.Join(strings.Fields(zones), ":0 ") + ":0"
	return fmt.Sprintf("%s {\n bind 127.0.0.1\n clusterset %s {\n  kubeconfig %s\n  %s\n }\n}\n", keys, zones, cp.Kubeconfig(),
		strings.Join(options, "\n  "))
}

func startCorefile(t testing.TB, text string) *dnsServer {
	t.Helper()
	s, err := tryCorefile(t, text)
	if err != nil {
		t.Fatalf("starting a server: %v\n%s", err, text)
	}
	return s
}

// startMutex is held while a server starts, because CoreDNS keeps its setup in package variables.
var startMutex sync.Mutex

func tryCorefile(t testing.TB, text string) (*dnsServer, error) {
	t.Helper()
	startMutex.Lock()
	defer startMutex.Unlock()
	instance, err := caddy.Start(input(text))
	if err != nil {
		return nil, err
	}
	s := &dnsServer{t: t}
	s.use(instance)
	t.Cleanup(s.stop)
	return s, nil
}

func input(text string) caddy.Input {
	return caddy.CaddyfileInput{Contents: []byte(text), Filepath: "Corefile", ServerTypeName: "dns"}
}

func (s *dnsServer) use(instance *caddy.Instance) {
	s.instance = instance
	s.udp, s.tcp = instance.Servers()[0].LocalAddr().String(), instance.Servers()[0].Addr().String()
}

// reload gives a running server another Corefile. After an error the server goes on with the one it
// had.
func (s *dnsServer) reload(text string) error {
	startMutex.Lock()
	defer startMutex.Unlock()
	instance, err := s.instance.Restart(input(text))
	s.use(instance)
	return err
}

// stop stops the server. A second call does nothing.
func (s *dnsServer) stop() {
	if s.instance == nil {
		return
	}
	err := errors.Join(s.instance.Stop(), errors.Join(s.instance.ShutdownCallbacks()...))
	s.instance = nil
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.t.Errorf("stopping a server: %v", err)
	}
}

// newQuery returns a query; change may alter the message.
func newQuery(name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	for _, c := range change {
		c(m)
	}
	return m
}

// withEDNS announces a buffer of more than 512 bytes.
func withEDNS(m *dns.Msg) { m.SetEdns0(1232, false) }

// exchange sends a message over a network and returns the reply.
func (s *dnsServer) exchange(network string, m *dns.Msg) (*dns.Msg, error) {
	address := s.udp
	if network == "tcp" {
		address = s.tcp
	}
	c := &dns.Client{Net: network, Timeout: 2 * time.Second}
	reply, _, err := c.Exchange(m, address)
	return reply, err
}

// query returns the reply to a query over UDP and fails the test if there is none.
func (s *dnsServer) query(name string, qtype uint16) *dns.Msg {
	s.t.Helper()
	reply, err := s.exchange("udp", newQuery(name, qtype))
	if err != nil {
		s.t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	return reply
}

// recordTexts returns records as sorted texts with single blanks.
func recordTexts(rrs []dns.RR) []string {
	out := make([]string, 0, len(rrs))
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	slices.Sort(out)
	return out
}

// row is a query and its complete answer.
type row struct {
	name   string
	qtype  uint16
	rcode  int
	answer []string // nil: none, and then the SOA in the authority section
	extra  []string
}

// check waits until each row is answered, over UDP and over TCP.
func (s *dnsServer) check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		for _, network := range []string{"udp", "tcp"} {
			harness.Eventually(t, fmt.Sprintf("%s %s over %s", r.name, dns.TypeToString[r.qtype], network), func() error {
				reply, err := s.exchange(network, newQuery(r.name, r.qtype, withEDNS))
				if err != nil {
					return err
				}
				// Without EDNS the answer is the same, as far as it fits into 512 bytes.
				plain, err := s.exchange(network, newQuery(r.name, r.qtype))
				if err == nil && !plain.Truncated && len(plain.Extra) == len(r.extra) { // additional records may be left out
					err = r.compare(plain)
				}
				return errors.Join(err, r.compare(reply))
			})
		}
	}
}

// compare returns how a reply differs from the row.
func (r row) compare(m *dns.Msg) error {
	answer, extra := slices.Sorted(slices.Values(r.answer)), slices.Sorted(slices.Values(r.extra))
	switch {
	case m.Rcode != r.rcode:
		return fmt.Errorf("%s, want %s", dns.RcodeToString[m.Rcode], dns.RcodeToString[r.rcode])
	case !slices.Equal(recordTexts(m.Answer), answer):
		return fmt.Errorf("answer %q, want %q", recordTexts(m.Answer), answer)
	case !slices.Equal(recordTexts(m.Extra), extra):
		return fmt.Errorf("additional %q, want %q", recordTexts(m.Extra), extra)
	}
	if r.rcode == dns.RcodeRefused || r.rcode == dns.RcodeServerFailure {
		if m.Authoritative || len(m.Ns) > 0 {
			return fmt.Errorf("a refusal is authoritative: %v", m)
		}
		return nil
	}
	if !m.Authoritative {
		return errors.New("not authoritative")
	}
	if soa := soaOf(m); (soa != nil) != (len(answer) == 0) {
		return fmt.Errorf("authority section %v of an answer of %d records", m.Ns, len(answer))
	} else if soa != nil && (soa.Minttl != 5 || soa.Hdr.Ttl != 5) {
		return fmt.Errorf("SOA with a TTL other than 5: %s", soa)
	}
	return nil
}

func soaOf(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}
