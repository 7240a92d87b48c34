package survey

import (
	"net/http"
	"sync"
	"time"
)

// serverClock learns how far an API server's clock is ahead of ours, from the Date of its answers. HTTP tells whole seconds, so the
// result is right to about one.
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

// observe keeps the answer that took the least time, since it says most precisely when it was given.
func (c *serverClock) observe(date string, sent, received time.Time) {
	told, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	trip := received.Sub(sent)
	if c.known && trip >= c.trip {
		return
	}
	const half = 500 * time.Millisecond // of the second that is cut off
	c.known, c.trip, c.ahead = true, trip, told.Add(half).Sub(sent.Add(trip/2))
}

// read is how far the clock is ahead; 0 when nothing was heard.
func (c *serverClock) read() (ahead time.Duration, known bool) {
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// now is the server's time, as far as known.
func (c *serverClock) now(ours time.Time) time.Time {
	ahead, _ := c.read()
	if ahead.Abs() < time.Second {
		return ours
	}
	return ours.Add(ahead)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip makes a function a transport.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
