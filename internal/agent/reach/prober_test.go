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
	return runProberWith(t, nil, responders, endpoints...)
}

// runProberWith runs a Prober with sockets that listen opens, nil for those of the process.
func runProberWith(
	t *testing.T, listen func(string) (net.PacketConn, error), responders []*responder, endpoints ...netip.AddrPort,
) running {
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
		Listen:   listen,
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

// slowSocket is a socket of a process that gets no core to read it while it is held.
type slowSocket struct {
	net.PacketConn
	held sync.RWMutex
}

func (s *slowSocket) ReadFrom(into []byte) (int, net.Addr, error) {
	n, from, err := s.PacketConn.ReadFrom(into)
	s.held.RLock()
	defer s.held.RUnlock()
	return n, from, err
}

// Answers that arrived but could not be read yet are no silence, however long that takes.
func TestUnreadAnswersAreNoSilence(t *testing.T) {
	beacons := []*responder{newResponder(t), newResponder(t)}
	var socket *slowSocket
	r := runProberWith(t, func(network string) (net.PacketConn, error) {
		conn, err := net.ListenPacket(network, ":0")
		if network == "udp6" || err != nil {
			return conn, err
		}
		socket = &slowSocket{PacketConn: conn}
		return socket, nil
	}, beacons)
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)
	socket.held.Lock()
	time.Sleep(3 * deadAfter)
	socket.held.Unlock()
	time.Sleep(deadAfter)
	select {
	case c := <-r.changes:
		t.Fatalf("%s (%s), although the beacons answered", c.State, c.Reason)
	default:
	}
	for _, b := range beacons {
		b.setMute(true)
	}
	r.await(objects.Unreachable, objects.ReachNoAnswer)
}

// Where a socket does not receive what it sends to itself, silence counts all the same.
func TestProberWithoutEchoes(t *testing.T) {
	b := newResponder(t)
	r := runProberWith(t, func(network string) (net.PacketConn, error) {
		conn, err := net.ListenPacket(network, ":0")
		return deafSocket{conn}, err
	}, []*responder{b})
	r.await(objects.Reachable, objects.ReachBeaconsAnswer)
	b.setMute(true)
	r.await(objects.Unreachable, objects.ReachNoAnswer)
}

// deafSocket is a socket that cannot send to itself.
type deafSocket struct{ net.PacketConn }

func (s deafSocket) WriteTo(datagram []byte, to net.Addr) (int, error) {
	if to.(*net.UDPAddr).Port == s.LocalAddr().(*net.UDPAddr).Port {
		return len(datagram), nil
	}
	return s.PacketConn.WriteTo(datagram, to)
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
