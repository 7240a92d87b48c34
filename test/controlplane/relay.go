package controlplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// relay copies bytes between clients and the API server, and can stop without closing connections,
// as a failing network does. TLS passes through it unchanged.
type relay struct {
	listener *net.TCPListener
	backend  *net.TCPAddr

	mu     sync.Mutex
	links  map[*link]struct{}
	open   chan struct{} // closed while bytes may pass; replaced by an open channel when cut
	closed bool
}

// link is the connection of a client to the relay and that of the relay to the API server.
type link struct {
	client, server *net.TCPConn
	frozen         atomic.Bool // cut: no byte passes in either direction
}

func newRelay(port, backendPort int) (*relay, error) {
	listener, err := net.ListenTCP("tcp", loopbackAddr(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %w", errPortTaken, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	r := &relay{listener: listener, backend: loopbackAddr(backendPort), links: map[*link]struct{}{}, open: make(chan struct{})}
	close(r.open)
	go r.accept()
	return r, nil
}

// accept accepts clients. While cut it serves none: new connections wait without an answer until
// the relay is healed or the client gives up.
func (r *relay) accept() {
	for {
		client, err := r.listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		<-r.whenOpen()
		go r.serve(client)
	}
}

// whenOpen returns a channel that is closed when bytes may pass.
func (r *relay) whenOpen() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

func (r *relay) serve(client *net.TCPConn) {
	server, err := net.DialTCP("tcp", nil, r.backend)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server}
	if !r.add(l) {
		l.close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client) })
	both.Go(func() { l.pump(client, server) })
	both.Wait()
	if l.frozen.Load() {
		return // stays open without traffic until heal or close resets it
	}
	l.close()
	r.remove(l)
}

// pump copies bytes in one direction until one side closes or the link is cut. Bytes that were read
// but not written before the cut are lost.
func (l *link) pump(to, from *net.TCPConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if l.frozen.Load() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				break
			}
			// A client may close its half and still read the answer.
			if to.CloseWrite() == nil {
				return
			}
			break
		}
	}
	if !l.frozen.Load() {
		l.close()
	}
}

func (r *relay) add(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	select {
	case <-r.open:
	default: // cut during DialTCP
		l.frozen.Store(true)
	}
	r.links[l] = struct{}{}
	return true
}

func (r *relay) remove(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// cut freezes all links. Cutting a relay that is cut does nothing.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
		r.open = make(chan struct{})
	default:
	}
	for l := range r.links {
		l.frozen.Store(true)
	}
}

// heal ends a cut. Links that were frozen have lost bytes and are reset.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resetLinks(func(l *link) bool { return l.frozen.Load() })
	r.reopen()
}

// close stops the relay: connections are reset, and new ones refused from then on.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.listener.Close() // only fails when closed already
	r.resetLinks(func(*link) bool { return true })
	r.reopen() // unblocks accept
}

func (r *relay) reopen() {
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

func (r *relay) resetLinks(which func(*link) bool) {
	for l := range r.links {
		if which(l) {
			reset(l.client)
			reset(l.server)
			delete(r.links, l)
		}
	}
}

func (l *link) close() {
	_ = l.client.Close() // either may be closed already
	_ = l.server.Close()
}

// reset closes a connection with a TCP reset: after an ordinary close the other side would believe
// that all bytes were delivered.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // best effort: a plain close is the fallback
	_ = conn.Close()
}
