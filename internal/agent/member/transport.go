package member

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// knockEvery is how often a watch that lost its server asks for it again. Reflectors themselves ask every 30 to 60 seconds
	// after a longer outage, and all that time nobody would learn what the others changed.
	knockEvery = time.Second
	// answerWithin is how long a write may take. A server that hangs must not hold the workers, and exports must say so.
	answerWithin = 10 * time.Second
)

// Line is the way to an API server, the broker's or a member's own. It brings watches back soon after an outage, ends writes
// that nobody answers, and makes watches start over when the server was set back to an older state: their resource versions
// are of a future that never came, and a watch that goes on from there is silent until it comes again.
type Transport struct {
	mu sync.Mutex
	// followed are the collections that are watched; true while what was learnt of one is void and it must be listed anew.
	followed map[string]bool
	open     map[*stream]struct{}
}

// NewLine returns a line that has not been used yet.
func NewTransport() *Transport {
	return &Transport{followed: map[string]bool{}, open: map[*stream]struct{}{}}
}

// Wrap makes the requests of a transport go over the line.
func (l *Transport) Wrap(next http.RoundTripper) http.RoundTripper { return &overLine{l, next} }

// SetBack tells that the server was set back to an older state: every watch ends, and none goes on from where it was.
func (l *Transport) RestartWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.followed {
		l.followed[path] = true
	}
	for s := range l.open {
		s.cancel()
	}
}

// resumable tells whether a watch of a collection may begin at a resource version. One that begins at none sees the present
// as a list does.
func (l *Transport) resumable(path, version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	void := l.followed[path] && version != "" && version != "0"
	l.followed[path] = void
	return !void
}

// listed makes good again what was void.
func (l *Transport) listed(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followed, path) // the watch that follows it brings it back
}

func (l *Transport) add(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[s] = struct{}{}
}

func (l *Transport) remove(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s)
}

type overLine struct {
	line *Transport
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (o *overLine) WrappedRoundTripper() http.RoundTripper { return o.next }

// RoundTrip implements http.RoundTripper.
func (o *overLine) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch, _ := strconv.ParseBool(query.Get("watch"))
	switch {
	case watch:
		return o.watch(req, query.Get("resourceVersion"))
	case req.Method == http.MethodGet:
		o.line.listed(req.URL.Path)
		return o.next.RoundTrip(req)
	}
	return o.bounded(req)
}

// bounded gives a request a limited time.
func (o *overLine) bounded(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), answerWithin)
	resp, err := o.next.RoundTrip(req.Clone(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &stream{ReadCloser: resp.Body, cancel: cancel, end: func(*stream) {}}
	return resp, nil
}

// watch knocks until the server opens or the request is given up.
func (o *overLine) watch(req *http.Request, version string) (*http.Response, error) {
	for {
		if !o.line.resumable(req.URL.Path, version) {
			return expired(req), nil
		}
		resp, err := o.open(req)
		if err == nil && !away(resp.StatusCode) {
			return resp, nil
		}
		select {
		case <-req.Context().Done():
			return resp, err
		case <-time.After(knockEvery/2 + rand.N(knockEvery)):
		}
		if resp != nil {
			_ = resp.Body.Close() // it only says that nobody is there
		}
	}
}

// open starts one watch that SetBack can end.
func (o *overLine) open(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	s := &stream{cancel: cancel, end: o.line.remove}
	o.line.add(s)
	resp, err := o.next.RoundTrip(req.Clone(ctx))
	if err != nil {
		s.end(s)
		cancel()
		return nil, err
	}
	s.ReadCloser = resp.Body
	resp.Body = s
	return resp, nil
}

// away tells answers of what stands before a server that is not there, or not yet.
func away(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// stream is the body of an answer that can be ended from outside.
type stream struct {
	io.ReadCloser
	cancel context.CancelFunc
	end    func(*stream)
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.end(s)
	s.cancel()
	return s.ReadCloser.Close()
}

// expired is what an API server answers to a watch from a resource version that it does not have any more: list anew.
func expired(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,` +
		`"message":"the server was set back to an older state"}`
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"Content-Type": []string{"application/json"}},
		Body:          io.NopCloser(bytes.NewReader([]byte(status))),
		ContentLength: int64(len(status)),
	}
}
