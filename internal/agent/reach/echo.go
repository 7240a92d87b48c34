package reach

import (
	"crypto/subtle"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/beacon/wire"
)

// echoLostAfter is when an echo that was not read counts as lost.
const echoLostAfter = time.Second

// echo finds out whether a socket is being read. A process without a core sends its probes, which
// are due at a time, before it reads the answers to earlier ones; their silence proves nothing
// then. So the socket sends a datagram to itself: when that is read, everything that arrived before
// it has been read, too.
type echo struct {
	to     *net.UDPAddr // the socket's own address
	secret wire.Nonce   // no one else can send an echo
	start  time.Time
	sent   time.Time // when the echo was sent that has not been read yet; zero if there is none
}

const echoSize = wire.NonceSize + 8

// newEcho returns the echo of a socket, nil if the address of the socket is not known.
func newEcho(socket net.PacketConn) *echo {
	local, ok := socket.LocalAddr().(*net.UDPAddr)
	if !ok {
		return nil
	}
	own := local.AddrPort()
	if addr := own.Addr().Unmap(); !addr.IsUnspecified() {
		own = netip.AddrPortFrom(addr, own.Port())
	} else if addr.Is4() {
		own = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), own.Port())
	} else {
		own = netip.AddrPortFrom(netip.IPv6Loopback(), own.Port())
	}
	return &echo{to: net.UDPAddrFromAddrPort(own), secret: newNonce(), start: time.Now()}
}

// next returns the datagram to be sent now, nil if the one before is on its way.
func (e *echo) next(now time.Time) []byte {
	if !e.sent.IsZero() && now.Sub(e.sent) < echoLostAfter {
		return nil
	}
	e.sent = now
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, echoSize), e.secret[:]...), uint64(now.Sub(e.start)))
}

// read returns when a datagram was sent. ok is false if it is no echo of this socket.
func (e *echo) read(datagram []byte) (sent time.Time, ok bool) {
	if len(datagram) != echoSize || subtle.ConstantTimeCompare(datagram[:wire.NonceSize], e.secret[:]) == 0 {
		return time.Time{}, false
	}
	e.sent = time.Time{}
	return e.start.Add(time.Duration(binary.BigEndian.Uint64(datagram[wire.NonceSize:]))), true
}

// askWhatWasRead sends an echo if an answer is overdue in a family.
func (p *Prober) askWhatWasRead(family corev1.IPFamily, socket net.PacketConn, now time.Time) {
	p.mu.Lock()
	overdue := p.machine.Overdue(now, family)
	p.mu.Unlock()
	if overdue {
		p.sendEcho(family, socket, now)
	}
}

func (p *Prober) sendEcho(family corev1.IPFamily, socket net.PacketConn, now time.Time) {
	p.mu.Lock()
	e := p.echoes[family]
	var datagram []byte
	if e != nil {
		datagram = e.next(now)
	}
	p.mu.Unlock()
	if datagram != nil {
		_, _ = socket.WriteTo(datagram, e.to) // sent again if it is not read
	}
}

// readEcho reports whether a datagram is an echo, and what follows from it.
func (p *Prober) readEcho(family corev1.IPFamily, datagram []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.echoes[family]
	if e == nil {
		return false
	}
	sent, ok := e.read(datagram)
	if ok {
		p.machine.ReadUntil(time.Now(), family, sent)
	}
	return ok
}
