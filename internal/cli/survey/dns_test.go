package survey

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// nameServer answers one name over UDP and TCP on loopback.
func nameServer(t *testing.T, name, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		reply := new(dns.Msg)
		switch {
		case question.Question[0].Name != name:
			reply.SetRcode(question, dns.RcodeNameError)
		case question.Question[0].Qtype == dns.TypeA:
			reply.SetReply(question)
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(address)}}
		default:
			reply.SetReply(question)
		}
		_ = w.WriteMsg(reply)
	})
	for _, s := range []*dns.Server{{Listener: listener, Handler: handler}, {PacketConn: packets, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return listener.Addr().String()
}

func TestQuery(t *testing.T) {
	address := nameServer(t, "web.shop.svc.clusterset.local.", "10.96.0.7")
	a := query(t.Context(), "udp", address, "it", "web.shop.svc.clusterset.local.")
	if a.Code != "NOERROR" || len(a.Addresses) != 1 || a.Addresses[0] != "10.96.0.7" || a.Server != "it" || a.Problem != "" {
		t.Errorf("%+v", a)
	}
	if a := query(t.Context(), "tcp", address, "it", "other.shop.svc.clusterset.local."); a.Code != "NXDOMAIN" || len(a.Addresses) != 0 {
		t.Errorf("%+v", a)
	}
	if a := query(t.Context(), "tcp", "127.0.0.1:1", "it", "x."); a.Problem == "" {
		t.Errorf("%+v", a)
	}
	c := &Cluster{}
	if a := c.askDNS(t.Context(), "web.shop.svc.clusterset.local", address); len(a.Addresses) != 1 || a.Server != address {
		t.Errorf("%+v", a)
	}
}

// forwarding is an API server as far as port-forward goes: the real protocol, to a port of this
// machine.
func forwarding(t *testing.T, path, to string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != path {
			http.Error(w, "no such pod", http.StatusNotFound)
			return
		}
		if _, err := httpstream.Handshake(req, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(stream httpstream.Stream, _ <-chan struct{}) error {
			if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
				go carry(stream, to)
			}
			return nil
		})
		if conn != nil {
			<-conn.CloseChan()
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func carry(stream httpstream.Stream, to string) {
	defer func() { _ = stream.Close() }()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, _ = io.Copy(stream, conn)
}

// DNS in a pod is asked through the API server, so that it can be asked from wherever that can be
// reached.
func TestForward(t *testing.T) {
	address := nameServer(t, "web.shop.svc.clusterset.local.", "10.96.0.7")
	server := forwarding(t, "/prefix/api/v1/namespaces/seamark-system/pods/seamark-dns-1/portforward", address)
	c := &Cluster{Connection: Connection{Config: &rest.Config{Host: server.URL + "/prefix"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "seamark-system", Name: "seamark-dns-1"}}
	local, stop, err := c.forward(t.Context(), pod, dnsPort)
	if err != nil {
		t.Fatal(err)
	}
	a := query(t.Context(), "tcp", local, "pod", "web.shop.svc.clusterset.local.")
	stop()
	if a.Problem != "" || len(a.Addresses) != 1 || a.Addresses[0] != "10.96.0.7" {
		t.Errorf("%+v", a)
	}
	if a := query(t.Context(), "tcp", local, "pod", "web.shop.svc.clusterset.local."); a.Problem == "" {
		t.Error("the port is still open after stop")
	}
	pod.Name = "other"
	if _, _, err := c.forward(t.Context(), pod, dnsPort); err == nil || !strings.Contains(err.Error(), "no such pod") {
		t.Errorf("%v", err)
	}
}
