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

// relay carries the bytes between clients and the API server, and can stop doing so without either side being told, as a
// network that fails does. It does not look into the bytes: TLS goes through it.
type relay struct {
	listener *net.TCPListener
	backend  *net.TCPAddr

	mu     sync.Mutex
	links  map[*link]struct{}
	open   chan struct{} // closed while bytes may pass; replaced by a fresh one when cut
	closed bool
}

// link is one connection of a client and its other half to the API server.
type link struct {
	client, server *net.TCPConn
	frozen         atomic.Bool // cut: no byte passes any more, in either direction
}

func newRelay(port, backendPort int) (*relay, error) {
	listener, err := net.ListenTCP("tcp", loopbackAddr(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %w", errPortTaken, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	r := &relay{listener: listener, backend: loopbackAddr(backendPort), links: map[*link]struct{}{}, open: make(chan struct{})}
	close(r.open)
	go r.accept()
	return r, nil
}

// accept takes clients in one by one. While cut it takes none: what connects then waits in the kernel's queue, hearing
// nothing, until the network is back or the client gives up.
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
		return // stays open and silent until heal or close ends it
	}
	l.close()
	r.remove(l)
}

// pump moves bytes one way until an end closes or the link is cut. What was read when the cut came is lost with it.
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
			// A client may end its half and still read the answer.
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
	default: // cut while we dialled
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

// cut makes the network fail. Cutting what is cut does nothing.
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

// heal lets bytes pass again. Connections that were cut have lost some and are reset.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resetLinks(func(l *link) bool { return l.frozen.Load() })
	r.reopen()
}

// close ends the relay: clients are reset, and refused from then on.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.listener.Close() // only fails when closed already
	r.resetLinks(func(*link) bool { return true })
	r.reopen() // lets accept see that it is over
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

// reset closes a connection with a TCP reset, as a host does that knows nothing of the connection: an end of stream would
// tell the other side that all was delivered.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // best effort: a plain close is the fallback
	_ = conn.Close()
}
