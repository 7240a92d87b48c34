package faults_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/test/fleet"
)

// link is a proxy between one member and the broker. Cutting it does not affect other members.
// While it is cut it drops all bytes, as a network that drops packets does.
type link struct {
	listener net.Listener
	backend  string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]net.Conn // from the member, to the broker
}

// ownLink makes a member reach the broker through a link of its own and restarts its agent.
func ownLink(t *testing.T, f *fleet.Fleet, m *fleet.Member) *link {
	t.Helper()
	server, err := url.Parse(f.Broker.Config().Host)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &link{listener: listener, backend: server.Host, conns: map[net.Conn]net.Conn{}}
	go l.accept()
	setBrokerServer(t, m, "https://"+listener.Addr().String())
	t.Cleanup(func() {
		setBrokerServer(t, m, f.Broker.Config().Host)
		_ = listener.Close()
		l.restore()
	})
	return l
}

// setBrokerServer changes the address of the broker in a member's membership and restarts its
// agent.
func setBrokerServer(t *testing.T, m *fleet.Member, server string) {
	t.Helper()
	m.Stop()
	setMembership(t, m, "server", server)
	start(t, m)
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.backend)
		if err != nil {
			_ = in.Close()
			continue
		}
		l.mu.Lock()
		l.conns[in] = out
		l.mu.Unlock()
		go l.copyBytes(in, out)
		go l.copyBytes(out, in)
	}
}

func (l *link) copyBytes(to io.Writer, from io.ReadCloser) {
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
		l.mu.Lock()
		isCut := l.isCut
		l.mu.Unlock()
		if !isCut {
			_, _ = to.Write(buffer[:n]) // the next read reports a closed connection
		}
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

// restore lets bytes pass again. It closes the existing connections, because they have lost bytes.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
	for in, out := range l.conns {
		_ = in.Close()
		_ = out.Close()
	}
	clear(l.conns)
}
