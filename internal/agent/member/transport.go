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
	watchRetryInterval = time.Second
	// answerWithin is how long a write may take. A server that hangs must not hold the workers, and exports must say so.
	writeTimeout = 10 * time.Second
)

// Line is the way to an API server, the broker's or a member's own. It brings watches back soon after an outage, ends writes
// that nobody answers, and makes watches start over when the server was set back to an older state: their resource versions
// are of a future that never came, and a watch that goes on from there is silent until it comes again.
type Transport struct {
	mu sync.Mutex
	// followed are the collections that are watched; true while what was learnt of one is void and it must be listed anew.
	watched map[string]bool
	openWatches     map[*cancelableBody]struct{}
}

// NewLine returns a line that has not been used yet.
func NewTransport() *Transport {
	return &Transport{watched: map[string]bool{}, openWatches: map[*cancelableBody]struct{}{}}
}

// Wrap makes the requests of a transport go over the line.
func (l *Transport) Wrap(next http.RoundTripper) http.RoundTripper { return &roundTripper{l, next} }

// SetBack tells that the server was set back to an older state: every watch ends, and none goes on from where it was.
func (l *Transport) RestartWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.watched {
		l.watched[path] = true
	}
	for s := range l.openWatches {
		s.cancel()
	}
}

// resumable tells whether a watch of a collection may begin at a resource version. One that begins at none sees the present
// as a list does.
func (l *Transport) mayResume(path, version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	void := l.watched[path] && version != "" && version != "0"
	l.watched[path] = void
	return !void
}

// listed makes good again what was void.
func (l *Transport) recordList(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watched, path) // the watch that follows it brings it back
}

func (l *Transport) addWatch(s *cancelableBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openWatches[s] = struct{}{}
}

func (l *Transport) removeWatch(s *cancelableBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.openWatches, s)
}

type roundTripper struct {
	transport *Transport
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (o *roundTripper) WrappedRoundTripper() http.RoundTripper { return o.next }

// RoundTrip implements http.RoundTripper.
func (o *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch, _ := strconv.ParseBool(query.Get("watch"))
	switch {
	case watch:
		return o.watch(req, query.Get("resourceVersion"))
	case req.Method == http.MethodGet:
		o.transport.recordList(req.URL.Path)
		return o.next.RoundTrip(req)
	}
	return o.write(req)
}

// bounded gives a request a limited time.
func (o *roundTripper) write(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), writeTimeout)
	resp, err := o.next.RoundTrip(req.Clone(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelableBody{ReadCloser: resp.Body, cancel: cancel, onClose: func(*cancelableBody) {}}
	return resp, nil
}

// watch knocks until the server opens or the request is given up.
func (o *roundTripper) watch(req *http.Request, version string) (*http.Response, error) {
	for {
		if !o.transport.mayResume(req.URL.Path, version) {
			return expiredResponse(req), nil
		}
		resp, err := o.openWatch(req)
		if err == nil && !isUnavailable(resp.StatusCode) {
			return resp, nil
		}
		select {
		case <-req.Context().Done():
			return resp, err
		case <-time.After(watchRetryInterval/2 + rand.N(watchRetryInterval)):
		}
		if resp != nil {
			_ = resp.Body.Close() // it only says that nobody is there
		}
	}
}

// open starts one watch that SetBack can end.
func (o *roundTripper) openWatch(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	s := &cancelableBody{cancel: cancel, onClose: o.transport.removeWatch}
	o.transport.addWatch(s)
	resp, err := o.next.RoundTrip(req.Clone(ctx))
	if err != nil {
		s.onClose(s)
		cancel()
		return nil, err
	}
	s.ReadCloser = resp.Body
	resp.Body = s
	return resp, nil
}

// away tells answers of what stands before a server that is not there, or not yet.
func isUnavailable(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// stream is the body of an answer that can be ended from outside.
type cancelableBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	onClose    func(*cancelableBody)
}

// Close implements io.Closer.
func (s *cancelableBody) Close() error {
	s.onClose(s)
	s.cancel()
	return s.ReadCloser.Close()
}

// expired is what an API server answers to a watch from a resource version that it does not have any more: list anew.
func expiredResponse(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,` +
		`"message":"the server was set back to an older state"}`
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"Content-Type": []string{"application/json"}},
		Body:          io.NopCloser(bytes.NewReader([]byte(status))),
		ContentLength: int64(len(status)),
	}
}
