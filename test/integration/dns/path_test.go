package dns_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark-dev/seamark/test/controlplane"
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
	text, err := shipped.Corefile(values)
	if err == nil {
		text, err = shipped.Adapt(text, shipped.Outside{Kubeconfig: cp.Kubeconfig(), Port: "0",
			Metrics: freeAddress(t), Health: freeAddress(t), Ready: freeAddress(t)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, "lameduck 5s", "lameduck 0s")
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
