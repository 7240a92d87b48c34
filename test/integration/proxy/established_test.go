package proxy_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/proxy"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/test/netbed"
)

// echoPort is where echo listens.
const echoPort = 7

// echo sends back all that it gets, until the test ends.
func (env *testEnv) echo(at *netbed.Namespace, address netip.Addr) {
	env.t.Helper()
	var l net.Listener
	err := at.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(address, echoPort).String())
		return err
	})
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
}

// dial opens a connection from the client pod that lasts until the test ends.
func (env *testEnv) dial(to netip.AddrPort) net.Conn {
	env.t.Helper()
	var c net.Conn
	err := env.client.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), 10*time.Second)
		return err
	})
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { _ = c.Close() })
	return c
}

// checkEcho sends a byte and waits until it comes back.
func (env *testEnv) checkEcho(what string, c net.Conn) {
	env.t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := c.Write([]byte("?"))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil {
		env.t.Errorf("%s: %v", what, err)
	}
}

// ip runs iproute2 in a namespace.
func (env *testEnv) ip(at *netbed.Namespace, command string) {
	env.t.Helper()
	err := at.Do(func() error {
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			err = errors.Join(err, errors.New(string(out)))
		}
		return err
	})
	if err != nil {
		env.t.Fatalf("ip %s: %v", command, err)
	}
}

// Packets of an established connection are not refused, although their destination is a clusterset
// IP: before the rules were there, the connection reached a server with that address, and the
// kernel could not be made to forget it. New connections to the address go to the service and are
// refused when it is deleted.
func TestOnlyNewConnectionsAreRefused(t *testing.T) {
	env := newTestEnv(t)
	remote, err := env.node.AddRemotePod("remote")
	if err != nil {
		t.Fatal(err)
	}
	env.ip(remote.Namespace, "address add "+vip4.String()+"/32 dev eth0")
	env.ip(remote.Namespace, "route add "+env.client.IPv4.String()+"/32 via 10.88.0.1")
	env.ip(env.node.Namespace, "route add "+vip4.String()+"/32 via "+remote.IPv4.String())
	env.echo(remote.Namespace, vip4)
	// The kernel tracks connections only where rules need it, as those of kube-proxy do.
	env.nft("add table inet other; add chain inet other c { type filter hook forward priority 0; }; add rule inet other c ct state new accept")
	to := netip.AddrPortFrom(vip4, echoPort)
	established := env.dial(to)
	env.checkEcho("without rules", established)

	flows := &brokenFlows{err: errors.New("no buffer space available")}
	env.syncer = proxy.NewSyncer(kernel.Open(env.node.FD(), env.masquerade), flows, env.log())
	env.syncer.SetRanges(clusterSetRanges)
	sync := func() {
		t.Helper()
		if _, err := env.syncer.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	env.set(onEchoPort(), slicesOf("here", env.pods)...)
	sync()
	env.checkEcho("the address belongs to a service", established)
	if a, err := env.client.TCP(to); err != nil || a.Server == remote.Name {
		t.Errorf("a new connection reached %q: %v", a.Server, err)
	}
	env.syncer.Set(serviceName, time.Time{}, model.Result{})
	sync()
	env.checkEcho("the service is deleted", established)
	env.checkRefused("a new connection after the service was deleted", to)
}

func onEchoPort() *mcsv1beta1.ServiceImport {
	return service(func(si *mcsv1beta1.ServiceImport) {
		for i := range si.Spec.Ports {
			si.Spec.Ports[i].Port = echoPort
		}
	})
}

// The kernel does not translate packets that do not fit into their connection: one that was late,
// for example. Refusing them would end the connection. Neither does deleting the service.
func TestInvalidPacketsEndNoConnection(t *testing.T) {
	env := newTestEnv(t)
	env.syncer.SetRanges(clusterSetRanges)
	env.echo(env.pods[0].Namespace, env.pods[0].IPv4)
	slices := slicesOf("here", env.pods[:1])
	for _, s := range slices {
		for i := range s.Ports {
			*s.Ports[i].Port = echoPort
		}
	}
	env.program(onEchoPort(), slices...)
	c := env.dial(netip.AddrPortFrom(vip4, echoPort))
	for _, when := range []string{"the service exists", "the service is deleted"} {
		raw := env.rawSocket()
		env.checkEcho(when, c)
		if err := raw.sendOutOfWindow(c); err != nil {
			t.Fatal(err)
		}
		env.checkEcho(when+", after an invalid packet", c)
		env.syncer.Set(serviceName, time.Time{}, model.Result{})
		env.sync()
	}
}

// rawSocket receives all TCP segments that the client pod gets.
type rawSocket struct{ *net.IPConn }

func (env *testEnv) rawSocket() rawSocket {
	env.t.Helper()
	var s rawSocket
	err := env.client.Do(func() (err error) {
		s.IPConn, err = net.ListenIP("ip4:tcp", &net.IPAddr{IP: env.client.IPv4.AsSlice()})
		return err
	})
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { _ = s.Close() })
	return s
}

// sendOutOfWindow sends a segment of a connection whose sequence number is far outside of the
// window, and whose acknowledgement is right: a reset in reply would have a number that the client
// accepts. The connection must have got something.
func (s rawSocket) sendOutOfWindow(c net.Conn) error {
	local, remote := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	buf := make([]byte, 1500)
	for {
		_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := s.ReadFromIP(buf) // without the IP header
		if err != nil {
			return err
		}
		got := buf[:n]
		const header, payload = 20, 1
		length := int(got[12]>>4) * 4
		if n < header || binary.BigEndian.Uint16(got[2:]) != local.Port() || n-length != payload {
			continue // another connection, or no data
		}
		segment := make([]byte, header)
		binary.BigEndian.PutUint16(segment[0:], local.Port())
		binary.BigEndian.PutUint16(segment[2:], remote.Port())
		const far = 1 << 28
		binary.BigEndian.PutUint32(segment[4:], binary.BigEndian.Uint32(got[8:])+far)
		binary.BigEndian.PutUint32(segment[8:], binary.BigEndian.Uint32(got[4:])+payload)
		segment[12], segment[13] = header/4<<4, 0x10 // ACK
		binary.BigEndian.PutUint16(segment[14:], 1024)
		binary.BigEndian.PutUint16(segment[16:], checksum(local.Addr(), remote.Addr(), segment))
		_, err = s.WriteToIP(segment, &net.IPAddr{IP: remote.Addr().AsSlice()})
		return err
	}
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// checksum returns that of a TCP segment (RFC 9293, 3.1).
func checksum(from, to netip.Addr, segment []byte) uint16 {
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, syscall.IPPROTO_TCP, 0, byte(len(segment)))
	var sum uint32
	for _, part := range [][]byte{pseudo, segment} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
