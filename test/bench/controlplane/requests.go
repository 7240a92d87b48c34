package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seamark-dev/seamark/test/harness"
)

const metricsPath = "/metrics"

// readResources are the resources whose reads are counted, too. API servers do not read these by
// themselves, unlike Services.
var readResources = map[string]bool{"endpointslices": true, "serviceexports": true, "serviceimports": true, "exportrecords": true}

// request is a kind of API request.
type request struct{ verb, resource string }

func (r request) String() string { return r.verb + " " + r.resource }

// isWrite reports whether the request writes.
func (r request) isWrite() bool {
	switch r.verb {
	case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		return true
	}
	return false
}

// counts are the numbers of requests that API servers have served, by server and kind of request.
type counts map[string]map[request]int64

// requests reads from the API servers' metrics how many requests they have served, without renewals
// of leases and without the benchmark's own requests.
func (e *environment) requests(ctx context.Context) (counts, error) {
	all := counts{}
	for _, s := range e.servers() {
		own := s.ownRequests.Load()
		served, err := s.requests(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", s.name, err)
		}
		if e.client != nil {
			maps.DeleteFunc(served, func(r request, _ int64) bool { return r.isOfNodes() })
		}
		served[request{"own", ""}] = -own
		all[s.name] = served
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
	defer resp.Body.Close() //nolint:errcheck // the body is only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answered %s", resp.Status)
	}
	return parseRequests(resp.Body)
}

// parseRequests reads the counter apiserver_request_total from the text format of Prometheus.
func parseRequests(r io.Reader) (map[request]int64, error) {
	samples, err := harness.ParseMetric(r, "apiserver_request_total")
	out := map[request]int64{}
	for _, s := range samples {
		kind := request{s.Labels["verb"], s.Labels["resource"]}
		if subresource := s.Labels["subresource"]; subresource != "" {
			kind.resource += "/" + subresource
		}
		if kind.isCounted() {
			out[kind] += int64(s.Value)
		}
	}
	return out, err
}

// isCounted reports whether the request is counted: writes of anything but leases, and reads of
// readResources.
func (r request) isCounted() bool {
	resource, _, _ := strings.Cut(r.resource, "/")
	if r.isWrite() {
		return resource != "leases"
	}
	return r.verb != "WATCH" && readResources[resource] && r != ownSlice
}

// isOfNodes reports whether kubelets, schedulers and controllers of a sandbox send such requests.
// Agents send none of them, except for events about errors.
func (r request) isOfNodes() bool {
	resource, _, _ := strings.Cut(r.resource, "/")
	switch resource {
	case "events", "pods", "nodes", "deployments", "replicasets", "daemonsets", "serviceaccounts",
		"tokenreviews", "subjectaccessreviews", "endpoints":
		return true
	}
	return false
}

// ownSlice is how an API server reads the slice of its own Service, every ten seconds.
var ownSlice = request{"GET", "endpointslices"}

// isCountedRequest reports whether requests will count this request of the benchmark.
func isCountedRequest(req *http.Request) bool {
	if req.Method != http.MethodGet {
		return true // the benchmark writes no leases
	}
	parts := strings.Split(req.URL.Path, "/")
	at := slices.IndexFunc(parts, func(part string) bool { return readResources[part] })
	isOne := at < len(parts)-1 // the name of an object follows
	return at >= 0 && req.URL.Query().Get("watch") == "" && (!isOne || parts[at] != ownSlice.resource)
}

// requestsDuring returns the requests that the API servers served while f ran.
func (e *environment) requestsDuring(ctx context.Context, f func() error) (counts, error) {
	before, err := e.requests(ctx)
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := e.requests(ctx)
	if err != nil {
		return nil, err
	}
	return after.since(before), nil
}

// since returns the difference to an earlier count.
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

// ofServers returns how many of the requests API servers sent to themselves: they write an
// IPAddress for each ClusterIP of a Service.
func (c counts) ofServers() (sum int64) {
	for server := range c {
		for kind, n := range c[server] {
			if kind.resource == "ipaddresses" {
				sum += n
			}
		}
	}
	return sum
}

// total returns the number of all requests without the benchmark's own.
func (c counts) total() int64 {
	var sum int64
	for server := range c {
		sum += c.on(server)
	}
	return sum
}

// on returns the number of requests of one server without the benchmark's own.
func (c counts) on(server string) int64 {
	var sum int64
	for _, n := range c[server] {
		sum += n
	}
	return sum
}
