package reach

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/objects"
)

// responder answers probes for east on loopback while it is not mute.
type responder struct {
	socket net.PacketConn
	mu     sync.Mutex
	mute   bool
}

func newResponder(t *testing.T) *responder { return newResponderAt(t, "127.0.0.1:0") }

func newResponderAt(t *testing.T, address string) *responder {
	t.Helper()
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	r := &responder{socket: socket}
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.mu.Lock()
			mute := r.mute
			r.mu.Unlock()
			if answer, ok := eastID.Answer(buffer[:max(n, 0)]); ok && !mute {
				_, _ = socket.WriteTo(answer, from)
			}
		}
	}()
	return r
}

func (r *responder) setMute(mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = mute
}

// running is a Prober with real sockets and the changes that it reported.
type running struct {
	*testing.T
	*Prober
	changes chan Change
}

func runProber(t *testing.T, responders []*responder, endpoints ...netip.AddrPort) running {
	t.Helper()
	target := Target{Key: east}
	for _, r := range responders {
		address := netip.MustParseAddrPort(r.socket.LocalAddr().String())
		target.Family = objects.FamilyOf(address.Addr())
		target.Beacons = append(target.Beacons, Beacon{address, eastID})
	}
	r := running{t, nil, make(chan Change, 100)}
	r.Prober = &Prober{
		Families:  []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		Targets:   func() ([]Target, bool) { return []Target{target}, true },
		Endpoints: func(_ Key, limit int) []netip.AddrPort { return endpoints[:min(limit, len(endpoints))] },
		Changed: func(list []Change) {
			for _, c := range list {
				r.changes <- c
			}
		},
		Answered: func(Key, time.Duration) {},
		Log:      logr.Discard(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Prober.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r running) await(state objects.ReachState, reason objects.ReachReason) {
	r.Helper()
	select {
	case c := <-r.changes:
		if c.State != state || c.Reason != reason {
			r.Fatalf("%s (%s), want %s (%s)", c.State, c.Reason, state, reason)
		}
	case <-time.After(time.Minute):
		r.Fatalf("still %+v, want %s", r.Snapshot(), state)
	}
}

func TestProberOnRealSockets(t *testing.T) {
	responders := []*responder{newResponder(t), newResponder(t), newResponder(t)}
	r := runProber(t, responders)
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)
	for _, b := range responders {
		b.setMute(true)
	}
	r.await(objects.Unreachable, objects.ReachNoAnswer)
	for _, b := range responders {
		b.setMute(false)
	}
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)

	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, nil)
	var list []objects.Reachability
	if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Cluster != "east" || list[0].State != objects.Reachable || list[0].Latency <= 0 || list[0].Beacons != 3 {
		t.Errorf("%s", recorder.Body)
	}
}

func TestProberOnIPv6(t *testing.T) {
	b := newResponderAt(t, "[::1]:0")
	r := runProber(t, []*responder{b})
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)
	b.setMute(true)
	r.await(objects.Unreachable, objects.ReachNoAnswer)
}

// Beacons stop, but an endpoint accepts connections; then it stops as well.
func TestProberTriesEndpoints(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{}, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
			accepted <- struct{}{}
		}
	}()
	b := newResponder(t)
	r := runProber(t, []*responder{b}, netip.MustParseAddrPort(listener.Addr().String()))
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)
	b.setMute(true)
	for range 3 {
		<-accepted
	}
	if got := r.Snapshot(); got[0].State != objects.Reachable {
		t.Errorf("%+v although an endpoint accepts connections", got)
	}
	listener.Close()
	r.await(objects.Unreachable, objects.ReachNoAnswer)
}

// Without a socket nothing is probed, and nothing else fails.
func TestProberWithoutSockets(t *testing.T) {
	p := &Prober{
		Families: []corev1.IPFamily{corev1.IPv6Protocol}, Log: logr.Discard(),
		Targets: func() ([]Target, bool) { return []Target{{Key: east}}, true },
		Listen:  func(string) (net.PacketConn, error) { return nil, errors.New("no IPv6 here") },
		Changed: func([]Change) {}, Answered: func(Key, time.Duration) {},
	}
	if p.Snapshot() != nil {
		t.Error("a state before it runs")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	if got := p.Snapshot(); len(got) != 1 || got[0].State != objects.ReachabilityUnknown {
		t.Errorf("%+v", got)
	}
}
