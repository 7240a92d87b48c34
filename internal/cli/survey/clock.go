package survey

import (
	"net/http"
	"sync"
	"time"
)

// serverClock measures how far an API server's clock is ahead of this machine's, by the Date header
// of its answers. That has whole seconds, so the result is correct to about one second.
type serverClock struct {
	mu    sync.Mutex
	known bool
	ahead time.Duration
	trip  time.Duration
}

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent := time.Now()
		resp, err := next.RoundTrip(req)
		if err == nil {
			c.observe(resp.Header.Get("Date"), sent, time.Now())
		}
		return resp, err
	})
}

// observe keeps the answer that took the least time: the moment at which the server wrote its Date
// is known most precisely then.
func (c *serverClock) observe(date string, sent, received time.Time) {
	answered, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	trip := received.Sub(sent)
	if c.known && trip >= c.trip {
		return
	}
	const half = 500 * time.Millisecond // the average of what the header cuts off
	c.known, c.trip, c.ahead = true, trip, answered.Add(half).Sub(sent.Add(trip/2))
}

// read returns how far the clock is ahead; known is false before the first answer.
func (c *serverClock) read() (ahead time.Duration, known bool) {
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// now returns the server's time at a time of this machine.
func (c *serverClock) now(local time.Time) time.Time {
	ahead, _ := c.read()
	if ahead.Abs() < time.Second {
		return local
	}
	return local.Add(ahead)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip makes a function a transport.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
