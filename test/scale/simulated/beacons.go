package simulated

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
	"github.com/seamark-dev/seamark/internal/objects"
)

// beaconAddress returns where the beacon of the cluster answers. There is one: the cores that
// probes of further ones need are not there for a thousand members.
func (m *Member) beaconAddress() netip.Addr {
	ip := m.pods.Addr().As4()
	ip[3] += 2 // the first one is the node's
	return netip.AddrFrom4(ip)
}

// beaconSlice returns the slice by which the agent finds the beacons of its cluster.
func (m *Member) beaconSlice() client.Object {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: objects.AgentNamespace, Name: objects.BeaconService,
			Labels: map[string]string{discoveryv1.LabelServiceName: objects.BeaconService},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{m.beaconAddress().String()}, NodeName: ptr.To("node")}},
	}
}

// answer returns what a beacon of the cluster answers to a probe: nothing while the cluster is
// lost.
func (m *Member) answer(probe []byte) (answer []byte, ok bool) {
	if m.lost.Load() {
		return nil, false
	}
	identity := m.identity.Load()
	if identity == nil {
		secret := &corev1.Secret{}
		name := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.BeaconSecret}
		if err := m.Client.Get(context.Background(), name, secret); err != nil {
			return nil, false // the agent has not written it yet
		}
		key, valid := wire.ParseKey(secret.Data[wire.KeyFile])
		if !valid {
			return nil, false
		}
		read := wire.NewIdentity(m.ID, key)
		identity = &read
		m.identity.Store(identity)
	}
	return identity.Answer(probe)
}

// network connects the beacons of all members with their agents, in memory. Its zero value is
// ready.
type network struct {
	beacons sync.Map      // *Member by netip.Addr
	ports   atomic.Uint32 // those of the sockets so far
}

func (n *network) add(m *Member) { n.beacons.Store(m.beaconAddress(), m) }

// listenFor returns a function that opens a socket from which a member can probe beacons.
func (n *network) listenFor(m *Member) func(string) (net.PacketConn, error) {
	return func(string) (net.PacketConn, error) {
		own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n.ports.Add(1)))
		return &socket{network: n, member: m, own: own, answers: make(chan datagram, 64), closed: make(chan struct{})}, nil
	}
}

// Hears reports whether a beacon of another member has answered a probe of this one.
func (m *Member) Hears(other *Member) bool {
	_, heard := m.heard.Load(other.beaconAddress())
	return heard
}

// dial refuses all connections: there are no pods.
func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("simulated pods accept no connections")
}

type datagram struct {
	from net.Addr
	data []byte
}

// socket is a net.PacketConn on a network. It has no deadlines.
type socket struct {
	network *network
	member  *Member        // that probes
	own     netip.AddrPort // at which it receives what it sends to itself
	answers chan datagram
	closed  chan struct{}
	closing sync.Once
}

// WriteTo implements net.PacketConn. The answer, if there is one, can be read at once. Like a real
// socket, one that is not read loses datagrams.
func (s *socket) WriteTo(data []byte, to net.Addr) (int, error) {
	address, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, net.InvalidAddrError("no UDP address: " + to.String())
	}
	if address.AddrPort() == s.own {
		s.receive(datagram{to, slices.Clone(data)})
	} else if member, known := s.network.beacons.Load(address.AddrPort().Addr().Unmap()); known {
		if answer, ok := member.(*Member).answer(data); ok {
			s.receive(datagram{to, answer})
		}
	}
	return len(data), nil
}

func (s *socket) receive(d datagram) {
	select {
	case s.answers <- d:
	default:
	}
}

// ReadFrom implements net.PacketConn.
func (s *socket) ReadFrom(into []byte) (int, net.Addr, error) {
	select {
	case <-s.closed:
		return 0, nil, net.ErrClosed
	case d := <-s.answers:
		if address, ok := d.from.(*net.UDPAddr); ok {
			s.member.heard.Store(address.AddrPort().Addr().Unmap(), true)
		}
		return copy(into, d.data), d.from, nil
	}
}

// Close implements net.PacketConn.
func (s *socket) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return nil
}

// LocalAddr implements net.PacketConn.
func (s *socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.own) }

// SetDeadline implements net.PacketConn.
func (s *socket) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline implements net.PacketConn.
func (s *socket) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline implements net.PacketConn.
func (s *socket) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
