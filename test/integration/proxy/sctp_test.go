package proxy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seamark-dev/seamark/test/netbed"
)

// If the kernel has SCTP, it must work through a VIP. If not, opening a socket must fail for that
// reason, and the kernel must still accept the rules for the service's SCTP port.
func TestSCTP(t *testing.T) {
	env := newTestEnv(t)
	env.program(service(), slicesOf("here", env.pods[:1])...)
	for name, ipv6 := range families {
		pod := env.pods[0]
		listener, err := sctpListen(pod.Namespace, netip.AddrPortFrom(pod.IP(ipv6), targetPort))
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			t.Logf("%s: this kernel has no SCTP: %v", name, err)
			if got := env.connect(ipv6).Server; got != "a" {
				t.Errorf("%s: TCP of the same service reached %q", name, got)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		received, err := sctpAsk(env.client.Namespace, frontend(ipv6), listener)
		if err != nil || received != "hello" {
			t.Errorf("%s: through the VIP came %q: %v", name, received, err)
		}
		_ = unix.Close(listener)
	}
}

func sctpSocket(at netip.AddrPort) (int, unix.Sockaddr, error) {
	if at.Addr().Is4() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	return fd, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}, err
}

func sctpListen(n *netbed.Namespace, at netip.AddrPort) (fd int, err error) {
	err = n.Do(func() error {
		var sa unix.Sockaddr
		if fd, sa, err = sctpSocket(at); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, sa), unix.Listen(fd, 1), setTimeouts(fd))
	})
	return fd, err
}

// sctpAsk connects to a VIP and returns what the listener behind it receives.
func sctpAsk(n *netbed.Namespace, to netip.AddrPort, listener int) (string, error) {
	var client int
	err := n.Do(func() error {
		fd, sa, err := sctpSocket(to)
		client = fd
		if err != nil {
			return err
		}
		if err := errors.Join(setTimeouts(fd), unix.Connect(fd, sa)); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		_, err = unix.Write(fd, []byte("hello"))
		return err
	})
	defer unix.Close(client)
	if err != nil {
		return "", err
	}
	conn, _, err := unix.Accept(listener)
	if err != nil {
		return "", fmt.Errorf("accept: %w", err)
	}
	defer unix.Close(conn)
	buf := make([]byte, 16)
	got, err := unix.Read(conn, buf)
	return string(buf[:max(got, 0)]), err
}

// setTimeouts bounds calls that may block, because these sockets have no deadlines.
func setTimeouts(fd int) error {
	limit := unix.Timeval{Sec: 10}
	return errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
	)
}
