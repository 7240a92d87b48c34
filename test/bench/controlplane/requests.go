package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const metricsPath = "/metrics"

// kinds are the resources of which reads count, too: no API server reads these for itself, as it does Services.
var kinds = map[string]bool{"endpointslices": true, "serviceexports": true, "serviceimports": true, "exportrecords": true}

// request is a kind of API request.
type request struct{ verb, resource string }

func (r request) String() string { return r.verb + " " + r.resource }

// writes tells requests that change something.
func (r request) writes() bool {
	switch r.verb {
	case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		return true
	}
	return false
}

// counts are the requests that API servers answered, by server and kind of request.
type counts map[string]map[request]int64

// requests asks the API servers' own metrics how many requests they have answered; heartbeats and the benchmark's own
// requests are no part of it.
func (b *bed) requests(ctx context.Context) (counts, error) {
	all := counts{}
	for _, s := range b.servers() {
		own := s.own.Load()
		seen, err := s.requests(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", s.name, err)
		}
		seen[request{"own", ""}] = -own
		all[s.name] = seen
	}
	return all, nil
}

func (s *server) requests(ctx context.Context) (map[request]int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+metricsPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answered %s", resp.Status)
	}
	return parseRequests(resp.Body)
}

// parseRequests reads the counter apiserver_request_total from the text format of Prometheus.
func parseRequests(r io.Reader) (map[request]int64, error) {
	out := map[request]int64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !found {
			continue
		}
		labels, value, found := strings.Cut(rest, "} ")
		if !found {
			return nil, fmt.Errorf("cannot read metric %q", lines.Text())
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read metric %q: %w", lines.Text(), err)
		}
		if kind := kindOf(labels); kind.counts() {
			out[kind] += int64(number)
		}
	}
	return out, lines.Err()
}

// kindOf reads verb and resource from a metric's labels; none of their values holds a comma or a quote.
func kindOf(labels string) request {
	var r request
	for label := range strings.SplitSeq(labels, ",") {
		name, value, _ := strings.Cut(label, "=")
		value = strings.Trim(value, `"`)
		switch {
		case name == "verb":
			r.verb = value
		case name == "resource":
			r.resource = value + r.resource
		case name == "subresource" && value != "":
			r.resource += "/" + value
		}
	}
	return r
}

// counts tells requests that are compared: writes of anything but leases, and reads of the kinds the agents deal in.
func (r request) counts() bool {
	resource, _, _ := strings.Cut(r.resource, "/")
	if r.writes() {
		return resource != "leases"
	}
	return r.verb != "WATCH" && kinds[resource]
}

// isCounted tells which of the benchmark's own requests the API server's count will hold.
func isCounted(req *http.Request) bool {
	if req.Method != http.MethodGet {
		return true // it writes no leases
	}
	return req.URL.Query().Get("watch") == "" && slices.ContainsFunc(strings.Split(req.URL.Path, "/"), func(part string) bool { return kinds[part] })
}

// since is what was added after an earlier count.
func (c counts) since(before counts) counts {
	out := counts{}
	for server, now := range c {
		out[server] = map[request]int64{}
		for kind, n := range now {
			if d := n - before[server][kind]; d != 0 {
				out[server][kind] = d
			}
		}
	}
	return out
}

// total is all requests but the benchmark's own.
func (c counts) total() int64 {
	var sum int64
	for server := range c {
		sum += c.on(server)
	}
	return sum
}

// on is the requests one server answered but for the benchmark's own.
func (c counts) on(server string) int64 {
	var sum int64
	for _, n := range c[server] {
		sum += n
	}
	return sum
}
