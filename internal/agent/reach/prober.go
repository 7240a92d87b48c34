package reach

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

const (
	// refreshEvery is how often the clusters to be probed are asked for.
	refreshEvery = time.Second
	// minSleep bounds how often the machine is asked what to do.
	minSleep = 10 * time.Millisecond
	// maxEndpoints is how many endpoints of a cluster are tried at once, dialTimeout how long.
	maxEndpoints = 4
	dialTimeout  = 2 * time.Second
	// maxDials bounds the connections that are being opened.
	maxDials = 256
)

// Prober probes beacons and tries endpoints. All fields but those that say so are required.
type Prober struct {
	// Families are the address families of this cluster.
	Families []corev1.IPFamily
	// Targets returns what is to be probed, with addresses that have been checked. While that is not
	// known, nothing changes.
	Targets func() (list []Target, known bool)
	// Endpoints returns TCP endpoints of a cluster that may be tried, of different services where
	// possible. Their addresses have been checked.
	Endpoints func(key Key, limit int) []netip.AddrPort
	// Changed is called when states changed, and must not block. Answered is called for each answer.
	Changed  func([]Change)
	Answered func(key Key, latency time.Duration)
	Log      logr.Logger
	// Listen opens the socket of a family ("udp4" or "udp6"), Dial a connection. When nil, those of
	// the process's network are used.
	Listen func(network string) (net.PacketConn, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	machine *Machine // nil before Run and Restore
	echoes  map[corev1.IPFamily]*echo
	dials   chan struct{}
}

// Run probes until ctx ends. Without any socket it reports that and ends.
func (p *Prober) Run(ctx context.Context) error {
	sockets := p.open(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, socket := range sockets {
		defer func() { _ = socket.Close() }()
	}
	p.mu.Lock()
	p.ensureMachine()
	p.dials, p.echoes = make(chan struct{}, maxDials), map[corev1.IPFamily]*echo{}
	for family, socket := range sockets {
		if e := newEcho(socket); e != nil {
			p.echoes[family] = e
		}
	}
	p.mu.Unlock()
	for family, socket := range sockets {
		p.sendEcho(family, socket, time.Now())
		reading.Go(func() { p.read(family, socket) })
	}
	p.loop(ctx, sockets)
	return nil
}

// ensureMachine creates the machine. The lock is held.
func (p *Prober) ensureMachine() {
	if p.machine == nil {
		p.machine = &Machine{NewNonce: newNonce, Random: mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))}
	}
}

// Restore makes clusters unreachable that were so for an earlier process. It must be called before
// Targets returns any.
func (p *Prober) Restore(unreachable reachable.Unreachables) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ensureMachine()
	p.machine.Restore(unreachable)
}

// Undecided reports whether the beacons of a cluster have not had the time to answer yet.
func (p *Prober) Undecided(cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machine == nil || p.machine.Undecided(time.Now(), cluster)
}

func newNonce() (nonce wire.Nonce) {
	_, _ = rand.Read(nonce[:]) // it never fails
	return nonce
}

// open opens one socket for each family.
func (p *Prober) open(ctx context.Context) map[corev1.IPFamily]net.PacketConn {
	listen := p.Listen
	if listen == nil {
		listen = func(network string) (net.PacketConn, error) {
			var config net.ListenConfig
			return config.ListenPacket(ctx, network, ":0")
		}
	}
	sockets := map[corev1.IPFamily]net.PacketConn{}
	for _, family := range p.Families {
		network := "udp4"
		if family == corev1.IPv6Protocol {
			network = "udp6"
		}
		socket, err := listen(network)
		if err != nil {
			p.Log.Error(err, "cannot open a socket for probes: clusters are not probed in this family", "family", family)
			continue
		}
		sockets[family] = socket
	}
	return sockets
}

// loop does what the machine says until ctx ends.
func (p *Prober) loop(ctx context.Context, sockets map[corev1.IPFamily]net.PacketConn) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var refreshed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		var targets []Target
		known := false
		if time.Since(refreshed) >= refreshEvery {
			targets, known = p.Targets()
			refreshed = time.Now()
		}
		p.mu.Lock()
		now := time.Now()
		if known {
			p.machine.SetTargets(now, targets)
		}
		probes, tries, changes, next := p.machine.Advance(now)
		p.mu.Unlock()
		for _, probe := range probes {
			if socket := sockets[objects.FamilyOf(probe.To.Addr())]; socket != nil {
				_, _ = socket.WriteTo(probe.Datagram, net.UDPAddrFromAddrPort(probe.To)) // counts as a lost probe
			}
		}
		for family, socket := range sockets {
			p.askWhatWasRead(family, socket, now)
		}
		for _, key := range tries {
			p.try(ctx, key)
		}
		p.report(changes)
		timer.Reset(max(time.Until(next), minSleep))
	}
}

// read passes answers to the machine until the socket is closed.
func (p *Prober) read(family corev1.IPFamily, socket net.PacketConn) {
	buffer := make([]byte, wire.ProbeSize)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		udp, ok := from.(*net.UDPAddr)
		if err != nil || !ok {
			time.Sleep(minSleep) // the network of this node may be down
			continue
		}
		if p.readEcho(family, buffer[:n]) {
			continue
		}
		source := netip.AddrPortFrom(udp.AddrPort().Addr().Unmap(), udp.AddrPort().Port())
		p.mu.Lock()
		changes, key, latency, ok := p.machine.Answered(time.Now(), source, buffer[:n])
		p.mu.Unlock()
		if ok {
			p.Answered(key, latency)
			p.report(changes)
		}
	}
}

// try connects to a few endpoints of a cluster.
func (p *Prober) try(ctx context.Context, key Key) {
	dial := p.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	for _, endpoint := range p.Endpoints(key, maxEndpoints) {
		select {
		case p.dials <- struct{}{}:
		default:
			return // many clusters are silent at once
		}
		go func() {
			defer func() { <-p.dials }()
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := dial(ctx, "tcp", endpoint.String())
			if err != nil {
				return
			}
			_ = conn.Close()
			p.mu.Lock()
			changes := p.machine.Connected(time.Now(), key)
			p.mu.Unlock()
			p.report(changes)
		}()
	}
}

func (p *Prober) report(changes []Change) {
	if len(changes) > 0 {
		p.Changed(changes)
	}
}

// Snapshot returns the state of all clusters that are probed; none before Run and Restore.
func (p *Prober) Snapshot() []objects.Reachability {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine == nil {
		return nil
	}
	return p.machine.Snapshot(time.Now())
}

// ServeHTTP responds with the snapshot, as a JSON list of objects.Reachability.
func (p *Prober) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	list := p.Snapshot()
	if list == nil {
		list = []objects.Reachability{}
	}
	_ = json.NewEncoder(w).Encode(list) // fails only if the client is gone
}
