package netbed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Answer is what a server replied: its name, and the client's address as it saw it.
type Answer struct {
	Server string
	Client netip.Addr
}

// timeout bounds one connection. It is long because handshakes are slow on a busy machine; a
// refused connection is recognized by its error, not by time.
const timeout = 10 * time.Second

// ServeTCP answers connections to a port with name and the client's address and closes them. It
// stops when the namespace or the returned listener is closed.
func (n *Namespace) ServeTCP(name string, at netip.AddrPort) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				fmt.Fprint(c, name+" "+hostOf(c.RemoteAddr()))
				_ = c.Close()
			}()
		}
	}()
	return l, nil
}

// ServeUDP answers every datagram with name and the client's address.
func (n *Namespace) ServeUDP(name string, at netip.AddrPort) (net.PacketConn, error) {
	var c net.PacketConn
	err := n.Do(func() (err error) {
		c, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(name+" "+hostOf(from)), from)
		}
	}()
	return c, nil
}

func hostOf(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	return ap.Addr().Unmap().String()
}

// DialTCP connects and reads the answer. Call it from a thread of the client's namespace: see Do
// and Go.
func DialTCP(to netip.AddrPort) (Answer, error) {
	return dialTCP(to, timeout)
}

func dialTCP(to netip.AddrPort, timeout time.Duration) (Answer, error) {
	c, err := net.DialTimeout("tcp", to.String(), timeout)
	if err != nil {
		return Answer{}, err
	}
	return readAnswer(c)
}

func readAnswer(c net.Conn) (Answer, error) {
	_ = c.SetDeadline(time.Now().Add(timeout))
	text, err := io.ReadAll(c)
	if err := errors.Join(err, c.Close()); err != nil {
		return Answer{}, err
	}
	return parseAnswer(string(text))
}

func parseAnswer(text string) (Answer, error) {
	server, client, ok := strings.Cut(text, " ")
	addr, err := netip.ParseAddr(client)
	if !ok || err != nil {
		return Answer{}, fmt.Errorf("answer %q is not a name and an address", text)
	}
	return Answer{server, addr}, nil
}

// TCP connects once from the namespace.
func (n *Namespace) TCP(to netip.AddrPort) (Answer, error) { return n.TCPWithin(to, timeout) }

// UDPFlow is a UDP client that keeps its socket, and so its tracked connection.
type UDPFlow struct{ conn net.Conn }

// UDP opens a flow from the namespace.
func (n *Namespace) UDP(to netip.AddrPort) (*UDPFlow, error) {
	f := &UDPFlow{}
	err := n.Do(func() (err error) {
		f.conn, err = net.Dial("udp", to.String())
		return err
	})
	return f, err
}

// UDPOnce sends a datagram from a socket of its own and waits for the answer.
func (n *Namespace) UDPOnce(to netip.AddrPort) (Answer, error) {
	flow, err := n.UDP(to)
	if err != nil {
		return Answer{}, err
	}
	answer, err := flow.Exchange()
	return answer, errors.Join(err, flow.Close())
}

// Exchange sends a datagram and waits for the answer, sending again if it takes long. A refused
// port gives an error at once.
func (f *UDPFlow) Exchange() (Answer, error) {
	buf := make([]byte, 128)
	var err error
	for started := time.Now(); time.Since(started) < timeout; {
		if _, err = f.conn.Write([]byte("?")); err != nil {
			return Answer{}, err
		}
		_ = f.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		var n int
		if n, err = f.conn.Read(buf); err == nil {
			return parseAnswer(string(buf[:n]))
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return Answer{}, err
		}
	}
	return Answer{}, err
}

// Close ends the flow.
func (f *UDPFlow) Close() error { return f.conn.Close() }

// Relay makes the server behind a URL on a loopback port of this process's own namespace reachable
// under the same port inside the namespace, until the returned listener is closed.
func (n *Namespace) Relay(server string) (net.Listener, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", server, err)
	}
	at := net.JoinHostPort("127.0.0.1", parsed.Port())
	var l net.Listener
	err = n.Do(func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", at, err)
	}
	go func() {
		for {
			inside, err := l.Accept()
			if err != nil {
				return
			}
			go relay(inside, at)
		}
	}()
	return l, nil
}

func relay(inside net.Conn, to string) {
	outside, err := net.Dial("tcp", to)
	if err != nil {
		_ = inside.Close()
		return
	}
	go func() {
		_, _ = io.Copy(outside, inside)
		_ = outside.Close()
	}()
	_, _ = io.Copy(inside, outside)
	_ = inside.Close()
}

// Send sends a datagram without waiting for an answer.
func (f *UDPFlow) Send() error {
	_, err := f.conn.Write([]byte("?"))
	return err
}

// TCPWithin is TCP with another timeout for the connection.
func (n *Namespace) TCPWithin(to netip.AddrPort, limit time.Duration) (Answer, error) {
	var a Answer
	err := n.Do(func() (err error) {
		a, err = dialTCP(to, limit)
		return err
	})
	return a, err
}

// Connect connects and closes without waiting for an answer, and returns how long the connection
// took. Call it from a thread of the client's namespace. The connection is reset, so that its port
// and memory are free at once.
func Connect(to netip.AddrPort) (time.Duration, error) {
	started := time.Now()
	c, err := net.DialTimeout("tcp", to.String(), timeout)
	took := time.Since(started)
	if err != nil {
		return took, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return took, c.Close()
}

// At returns a port of a pod, in IPv4.
func At(p *Pod, port uint16) netip.AddrPort { return netip.AddrPortFrom(p.IPv4, port) }
