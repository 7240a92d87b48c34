// Package kinds has what daemons need to know of the kinds that they use: their names without
// discovery, and how to keep watches whose kind the API server does not serve for a moment.
package kinds

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How long a watch waits for its kind before it is tried again: longer each time, half of it
// random. After mostLost attempts, about half a minute, the kind is no longer expected back.
const (
	firstLost = 250 * time.Millisecond
	maxLost   = 2 * time.Second
	mostLost  = 18
)

// Keeper keeps watches whose kind the API server does not serve for a moment: at each of its starts
// Submariner's operator replaces the CRDs of the MCS API by its own, which lack a version, and the
// agent of that cluster restores them. Reflectors would back off to 30 to 60 seconds if that
// happens often, and follow changes as late. Kinds that were never served are not waited for.
type Keeper struct {
	lost func()
	wait func(time.Duration) <-chan time.Time

	mu     sync.Mutex
	served map[string]bool // paths of collections that were watched
}

// New returns a Keeper for the requests to one API server. lost is called for each request that
// finds its kind missing.
func New(lost func()) *Keeper {
	return &Keeper{lost: lost, wait: time.After, served: map[string]bool{}}
}

// Wrap returns a RoundTripper that sends requests by next.
func (k *Keeper) Wrap(next http.RoundTripper) http.RoundTripper { return &roundTripper{k, next} }

type roundTripper struct {
	*Keeper
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	for attempt := 0; err == nil && isKindMissing(resp); attempt++ {
		r.lost()
		if attempt == mostLost || !r.wasServed(req) {
			return resp, nil
		}
		select {
		case <-req.Context().Done():
			return resp, nil
		case <-r.wait(lostDelay(attempt)):
		}
		_ = resp.Body.Close() // its content does not matter
		resp, err = r.next.RoundTrip(req.Clone(req.Context()))
	}
	if watch, _ := strconv.ParseBool(req.URL.Query().Get("watch")); watch && err == nil && resp.StatusCode == http.StatusOK {
		r.recordServed(req.URL.Path)
	}
	return resp, err
}

// isKindMissing reports whether a server does not serve the kind of a request. If it lacks only the
// object, it answers with a Status.
func isKindMissing(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNotFound && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain")
}

// wasServed reports whether a request reads a collection that was watched before.
func (k *Keeper) wasServed(req *http.Request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return req.Method == http.MethodGet && k.served[req.URL.Path]
}

func (k *Keeper) recordServed(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served[path] = true
}

func lostDelay(attempt int) time.Duration {
	delay := min(firstLost<<min(attempt, 10), maxLost)
	return delay/2 + rand.N(delay/2)
}
