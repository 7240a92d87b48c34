package dns_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/dnsprocess"
	"github.com/seamark-dev/seamark/test/harness"
	"github.com/seamark-dev/seamark/test/shipped"
)

// Frequent replies are written as bytes, which costs half of packing a message. That they are shows
// in their names: compressed in bytes, written out in packed messages.
func TestFrequentRepliesAreBytes(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	web := clusterSetIP(ns, "web", []string{"243.5.1.1"}, port("http", 80))
	create(t, c, web)
	asShipped := shippedCorefile(t, cp, nil)
	for name, test := range map[string]struct {
		corefile string
		bytes    bool
	}{
		"as shipped":    {asShipped, true},
		"alone":         {corefile(cp, "clusterset.local"), true},
		"log":           {addPlugins(corefile(cp, "clusterset.local"), "log"), false},
		"cache":         {addPlugins(corefile(cp, "clusterset.local"), "cache 5"), false},
		"loadbalance":   {addPlugins(corefile(cp, "clusterset.local"), "loadbalance"), false},
		"later plugins": {addPlugins(corefile(cp, "clusterset.local"), "errors", "whoami", "forward . 127.0.0.1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startCorefile(t, test.corefile)
			if err := wantAddresses(s, "web."+ns+".svc.clusterset.local", "243.5.1.1"); err != nil {
				t.Fatal(err)
			}
			raw := s.exchangeRaw(newQuery("web."+ns+".svc.clusterset.local", a))
			message := new(dns.Msg)
			if err := message.Unpack(raw); err != nil {
				t.Fatal(err)
			}
			if isBytes := len(raw) < message.Len(); isBytes != test.bytes {
				t.Errorf("written as bytes: %v, want %v (%d bytes, %d when packed)", isBytes, test.bytes, len(raw), message.Len())
			}
		})
	}
}

// shippedCorefile returns the Corefile of the chart with some values, for a server outside a pod.
func shippedCorefile(t *testing.T, cp *controlplane.ControlPlane, values map[string]any) string {
	t.Helper()
	return shippedOnPort(t, cp, "0", values)
}

func shippedOnPort(t *testing.T, cp *controlplane.ControlPlane, port string, values map[string]any) string {
	t.Helper()
	text, err := shipped.Corefile(values)
	if err == nil {
		text, err = shipped.Adapt(text, shipped.Outside{Kubeconfig: cp.Kubeconfig(), Port: port,
			Metrics: dnsprocess.FreeAddress(t), Health: dnsprocess.FreeAddress(t), Ready: dnsprocess.FreeAddress(t)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, "lameduck 10s", "lameduck 0s")
}

// The shipped server follows its ConfigMap: a Corefile that changes is used, and one with a mistake
// is not.
func TestChangedCorefileIsReloaded(t *testing.T) {
	cp, ns, c := clusterNamespace(t)
	create(t, c, clusterSetIP(ns, "web", []string{"243.5.2.1"}, port("http", 80)))
	var first string
	s, path := startProcess(t, func(port string) string {
		text := shippedOnPort(t, cp, port, map[string]any{"dns": map[string]any{"ttl": 7}})
		first = strings.Replace(text, "    reload\n", "    reload 2s 1s\n", 1) // the shortest interval that CoreDNS takes
		if first == text {
			t.Fatalf("the chart's server does not reload:\n%s", text)
		}
		return first
	})
	hasTTL := func(want uint32) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("a TTL of %d", want), func() error {
			reply, err := s.exchange("udp", newQuery("web."+ns+".svc.clusterset.local", a))
			if err == nil && (len(reply.Answer) != 1 || reply.Answer[0].Header().Ttl != want) {
				err = errors.New(reply.String())
			}
			return err
		})
	}
	hasTTL(7)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(first, "ttl 7", "ttl soon", 1))
	stop := watchDenials(t, s, "web."+ns+".svc.clusterset.local")
	time.Sleep(4 * time.Second) // the subject of the test: longer than the interval
	hasTTL(7)
	stop()
	write(strings.Replace(first, "ttl 7", "ttl 8", 1))
	hasTTL(8)
}

func addPlugins(corefile string, lines ...string) string {
	return strings.TrimSuffix(corefile, "}\n") + " " + strings.Join(lines, "\n ") + "\n}\n"
}

// exchangeRaw returns the bytes of the reply to a query over UDP.
func (s *dnsServer) exchangeRaw(m *dns.Msg) []byte {
	s.t.Helper()
	query, err := m.Pack()
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := net.Dial("udp", s.udp)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write(query); err != nil {
		s.t.Fatal(err)
	}
	reply := make([]byte, 4096)
	n, err := conn.Read(reply)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply[:n]
}
