package faults_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/fleet"
)

// wire is one member's own way to the broker, which can be cut without touching the others'. While cut it swallows what
// comes, as a network that drops packets does.
type wire struct {
	listener net.Listener
	backend  string

	mu   sync.Mutex
	cut  bool
	ends map[net.Conn]net.Conn
}

// ownWire makes a member reach the broker through a wire of its own and starts its agent anew.
func ownWire(t *testing.T, f *fleet.Fleet, m *fleet.Member) *wire {
	t.Helper()
	server, err := url.Parse(f.Broker.Config().Host)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: listener, backend: server.Host, ends: map[net.Conn]net.Conn{}}
	go w.accept()
	reroute(t, m, "https://"+listener.Addr().String())
	t.Cleanup(func() {
		reroute(t, m, f.Broker.Config().Host)
		_ = listener.Close()
		w.heal()
	})
	return w
}

func reroute(t *testing.T, m *fleet.Member, server string) {
	t.Helper()
	m.Stop()
	fleet.Update(t, m, objects.AgentNamespace, objects.MembershipSecret, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["server"] = []byte(server) })
	start(t, m)
}

func (w *wire) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.backend)
		if err != nil {
			_ = in.Close()
			continue
		}
		w.mu.Lock()
		w.ends[in] = out
		w.mu.Unlock()
		go w.pump(in, out)
		go w.pump(out, in)
	}
}

func (w *wire) pump(to io.Writer, from io.ReadCloser) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			_ = from.Close()
			if c, ok := to.(io.Closer); ok {
				_ = c.Close()
			}
			return
		}
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if !cut {
			_, _ = to.Write(buffer[:n]) // a closed end is found by the next read
		}
	}
}

func (w *wire) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
}

// heal lets bytes pass again. Connections of before are reset: they have lost some.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
	for in, out := range w.ends {
		_ = in.Close()
		_ = out.Close()
	}
	clear(w.ends)
}
