package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// asker sends requests.
type asker struct {
	// target returns the address of a service.
	target func(service int) *url.URL
	ask    func(ctx context.Context, target *url.URL) (answer, error)
	// connections returns how many were opened, zero if each request has one of its own.
	connections func() int
}

// asker returns what sends requests to an address, which may have a * for the number of a service.
func (c caller) asker(address string) (asker, error) {
	targets := make([]*url.URL, c.services)
	for i := range targets {
		var err error
		if targets[i], err = url.Parse(strings.ReplaceAll(address, "*", strconv.Itoa(i))); err != nil {
			return asker{}, err
		}
	}
	if len(targets) == 0 || c.concurrent && (c.interval <= 0 || c.oneConnection) {
		return asker{}, errors.New("--services must be positive, and --concurrent needs an --interval and connections of its own")
	}
	a := asker{target: func(i int) *url.URL { return targets[i] }, connections: func() int { return 0 }}
	switch scheme := targets[0].Scheme; {
	case scheme == "http" && c.oneConnection:
		client, opened := countingClient()
		a.ask, a.connections = client.ask, func() int { return int(opened.Load()) }
	case scheme == "http":
		a.ask = webClient{&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}.ask
	case scheme == "udp" && c.oneConnection:
		socket := &udpSocket{}
		a.ask, a.connections = socket.ask, func() int { return socket.opened }
	case scheme == "tcp" && !c.oneConnection, scheme == "udp":
		a.ask = askStream
	case scheme == "dns" && !c.oneConnection:
		a.ask = lookup{resolvConf: resolvConf, timeout: c.timeout}.address
	default:
		return asker{}, fmt.Errorf("cannot call %q: give an http, tcp, udp or dns address; a tcp server answers each connection only once", address)
	}
	return a, nil
}

// webClient opens a connection for each request if its transport does: the data plane chooses an
// endpoint per connection.
type webClient struct{ client *http.Client }

// countingClient returns a client that keeps its connection, and how many it has opened.
func countingClient() (webClient, *atomic.Int32) {
	var opened atomic.Int32
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		opened.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return webClient{&http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DialContext: dial}}}, &opened
}

func (c webClient) ask(ctx context.Context, target *url.URL) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return answer{}, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close() //nolint:errcheck // the body was read to its end, or an error is returned
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %s", response.Status)
	}
	got, err := decode(response.Body)
	_, _ = io.Copy(io.Discard, response.Body) // only then is the connection used again
	return got, err
}

// askStream reads one line over a new connection.
func askStream(ctx context.Context, target *url.URL) (answer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, target.Scheme, target.Host)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close() //nolint:errcheck // nothing was buffered that could be lost
	return askOn(ctx, conn, target.Scheme)
}

// udpSocket sends all packets from one socket.
type udpSocket struct {
	mu     sync.Mutex
	conn   net.Conn
	opened int
}

func (s *udpSocket) ask(ctx context.Context, target *url.URL) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", target.Host)
		if err != nil {
			return answer{}, err
		}
		s.conn, s.opened = conn, s.opened+1
	}
	return askOn(ctx, s.conn, "udp")
}

// askOn reads one line. Over UDP it sends one first, because a server answers packets.
func askOn(ctx context.Context, conn net.Conn, scheme string) (answer, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return answer{}, err
		}
	}
	if scheme == "udp" {
		if _, err := conn.Write([]byte("who\n")); err != nil {
			return answer{}, err
		}
	}
	return decode(conn)
}

func decode(r io.Reader) (answer, error) {
	var got answer
	if err := json.NewDecoder(r).Decode(&got); err != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return got, nil
}
