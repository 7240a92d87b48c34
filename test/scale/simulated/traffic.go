package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Traffic counts what members send to the broker, second by second.
type Traffic struct {
	received atomic.Int64

	mu      sync.Mutex
	start   time.Time
	seconds []Second
}

// Second is what all members did in one second.
type Second struct {
	// Requests were sent, watches among them, and Failed got no answer or one that asks to retry.
	Requests, Watches, Failed int
	// Failures counts the failed ones by what they asked for and why; nil if there are none.
	Failures map[string]int
}

// NewTraffic returns a counter that begins now.
func NewTraffic() *Traffic { return &Traffic{start: time.Now()} }

// Received returns how many bytes of content all members have received.
func (t *Traffic) Received() int64 { return t.received.Load() }

// Between returns the seconds from one time to another, without the last one, which may not be
// over.
func (t *Traffic) Between(from, to time.Time) []Second {
	t.mu.Lock()
	defer t.mu.Unlock()
	index := func(at time.Time) int { return min(max(int(at.Sub(t.start)/time.Second), 0), len(t.seconds)) }
	return append([]Second(nil), t.seconds[index(from):index(to)]...)
}

// Total returns the sum of some seconds.
func Total(seconds []Second) (sum Second) {
	for _, s := range seconds {
		sum.Requests += s.Requests
		sum.Watches += s.Watches
		sum.Failed += s.Failed
		for why, n := range s.Failures {
			if sum.Failures == nil {
				sum.Failures = map[string]int{}
			}
			sum.Failures[why] += n
		}
	}
	return sum
}

func (t *Traffic) count(at time.Time, f func(*Second)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	second := int(at.Sub(t.start) / time.Second)
	for len(t.seconds) <= second {
		t.seconds = append(t.seconds, Second{})
	}
	f(&t.seconds[second])
}

// errLost is the error of all requests of a lost member.
var errLost = errors.New("this member is lost")

type countingTripper struct {
	traffic *Traffic
	lost    *atomic.Bool
	next    http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (c *countingTripper) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements http.RoundTripper.
func (c *countingTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.lost.Load() {
		return nil, errLost
	}
	watch := req.URL.Query().Get("watch") != ""
	c.traffic.count(time.Now(), func(s *Second) {
		s.Requests++
		if watch {
			s.Watches++
		}
	})
	resp, err := c.next.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		why := failure(req, watch, resp, err)
		c.traffic.count(time.Now(), func(s *Second) {
			s.Failed++
			if s.Failures == nil {
				s.Failures = map[string]int{}
			}
			s.Failures[why]++
		})
	}
	if err == nil {
		resp.Body = &countingBody{resp.Body, &c.traffic.received}
	}
	return resp, err
}

// failure describes what a request asked for, without names, and why it failed.
func failure(req *http.Request, watch bool, resp *http.Response, err error) string {
	verb := req.Method
	if watch {
		verb = "watch"
	}
	what := path.Base(req.URL.Path)
	if parent := path.Base(path.Dir(req.URL.Path)); resources[parent] {
		what = parent
	}
	if err == nil {
		return fmt.Sprintf("%s %s: %d", verb, what, resp.StatusCode)
	}
	for _, known := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, context.DeadlineExceeded, context.Canceled, io.EOF} {
		if errors.Is(err, known) {
			return fmt.Sprintf("%s %s: %v", verb, what, known)
		}
	}
	return fmt.Sprintf("%s %s: no answer", verb, what)
}

// resources are those of which single objects are asked for.
var resources = map[string]bool{
	"leases": true, "clusters": true, "clustersets": true, "exportrecords": true, "endpointslices": true, "serviceimports": true,
	"serviceaccounts": true,
}

type countingBody struct {
	io.ReadCloser
	received *atomic.Int64
}

// Read implements io.Reader.
func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received.Add(int64(n))
	return n, err
}
