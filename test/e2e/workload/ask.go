package main

import (
	"bufio"
	"cmp"
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
		conn := &webConnection{}
		a.ask, a.connections = conn.ask, func() int { return conn.opened }
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

func (c webClient) ask(ctx context.Context, target *url.URL) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return answer{}, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}

// readAnswer reads an answer to its end: only then can the connection be used again.
func readAnswer(response *http.Response) (answer, error) {
	defer response.Body.Close() //nolint:errcheck // the body was read to its end, or an error is returned
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("status %s", response.Status)
	}
	got, err := decode(response.Body)
	if err != nil {
		return answer{}, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return got, err
}

// webConnection sends all requests over one connection, and opens another one only after a failure:
// a client that sends a request again by itself hides that its connection was lost.
type webConnection struct {
	conn    net.Conn
	answers *bufio.Reader
	opened  int
}

func (c *webConnection) ask(ctx context.Context, target *url.URL) (answer, error) {
	got, err := c.try(ctx, target)
	if err != nil && c.conn != nil {
		_ = c.conn.Close() // the failure is what counts
		c.conn = nil
	}
	return got, err
}

func (c *webConnection) try(ctx context.Context, target *url.URL) (answer, error) {
	if c.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "80")))
		if err != nil {
			return answer{}, err
		}
		c.conn, c.answers, c.opened = conn, bufio.NewReader(conn), c.opened+1
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.conn.SetDeadline(deadline); err != nil {
			return answer{}, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return answer{}, err
	}
	if err := request.Write(c.conn); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(c.answers, request)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
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
