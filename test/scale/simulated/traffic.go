package simulated

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
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
		c.traffic.count(time.Now(), func(s *Second) { s.Failed++ })
	}
	if err == nil {
		resp.Body = &countingBody{resp.Body, &c.traffic.received}
	}
	return resp, err
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
