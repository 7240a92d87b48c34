package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// ports are the loopback ports of one control plane. They stay the same over restarts, because
// clients know them.
type ports struct{ etcd, peer, apiserver, relay int }

// Ports are below the range of outgoing connections (32768 and up) and of NodePorts (30000 and up).
// An outgoing connection of any program could take a port from `:0` while the control plane is
// stopped, and a restart would find it in use.
const (
	firstPort = 15000
	lastPort  = 29999
)

// freePorts returns ports that are free now. Another process may take one before the component
// listens on it; the start then fails with errPortTaken and the caller chooses others.
func freePorts() (ports, error) {
	var p ports
	var open []*net.TCPListener
	defer func() {
		for _, l := range open {
			_ = l.Close() // it was open only to keep the port from being chosen twice
		}
	}()
	for _, port := range []*int{&p.etcd, &p.peer, &p.apiserver, &p.relay} {
		l, err := listenOnFreePort()
		if err != nil {
			return ports{}, err
		}
		open = append(open, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func listenOnFreePort() (*net.TCPListener, error) {
	var err error
	for range 1000 {
		var l *net.TCPListener
		if l, err = net.ListenTCP("tcp", loopbackAddr(firstPort+rand.IntN(lastPort-firstPort+1))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d on 127.0.0.1: %w", firstPort, lastPort, err)
}

func loopbackAddr(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

func loopback(port int) string { return loopbackAddr(port).String() }

func loopbackURL(port int) string { return "https://" + loopback(port) }
