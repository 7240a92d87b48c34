package member

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark-dev/seamark/internal/agent/subscription"
)

// writeTimeout bounds a write. A server that hangs must not block the workers, and exports must
// report it.
const writeTimeout = 10 * time.Second

// mostRefused is how often a watch waits because the server is not ready, or denies it, after an
// outage: a server that starts denies everything until it has read its roles. One that stays so may
// serve all the same.
const mostRefused = 5

// Transport sends requests to one API server, the broker's or a member's own. It retries watches
// soon after an outage, as the number of members allows: reflectors back off to 30 to 60 seconds,
// which would delay other members' changes by as much. It bounds the time of writes, and how many
// are sent at the same time to a server that is slow. If the server was restored from a backup, it
// makes watches start over: their resource versions are newer than anything the restored server
// has, and a watch from such a version stays silent until the server reaches it. A restore ends all
// watches, so the server's version is compared when one resumes.
type Transport struct {
	// Members returns how many clusters use the server; 0 if that is not known yet. It is set before
	// the first watch.
	Members func() int

	// timeout bounds writes, and the question which version the server has.
	timeout time.Duration
	writes  *pace
	turns   *turns

	mu sync.Mutex
	// watched are the paths of watched collections. The value is true if the collection must be listed
	// again before its watch may resume.
	watched map[string]bool
	// restarting are the paths whose watches have not begun anew since RestartWatches.
	restarting  map[string]bool
	openWatches map[*cancelableBody]struct{}
	reached     reached
}

// reached is a version that the server has reached, and when it said so. The watches of these paths
// have resumed since. All kinds count their versions together.
type reached struct {
	version int64
	at      time.Time
	paths   map[string]bool
}

// reachedFor is how long all watches go by one answer.
const reachedFor = 10 * time.Second

// NewTransport returns a transport that has not been used yet.
func NewTransport() *Transport {
	return &Transport{
		Members: func() int { return 1 }, timeout: writeTimeout, writes: &pace{}, turns: newTurns(),
		watched: map[string]bool{}, restarting: map[string]bool{}, openWatches: map[*cancelableBody]struct{}{},
	}
}

// Wrap returns a RoundTripper that sends requests by next, with t's retries and timeouts.
func (t *Transport) Wrap(next http.RoundTripper) http.RoundTripper { return &roundTripper{t, next} }

// RestartWatches ends all watches and lets none resume from its resource version. It is called when
// the server was restored from a backup.
func (t *Transport) RestartWatches() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for path := range t.watched {
		t.watched[path], t.restarting[path] = true, true
	}
	for watch := range t.openWatches {
		watch.cancel()
	}
}

// Restarted reports whether all watches have begun anew since RestartWatches.
func (t *Transport) Restarted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.restarting) == 0
}

// Watches reports whether a watch of a kind is open.
func (t *Transport) Watches(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for watch := range t.openWatches {
		if strings.HasSuffix(watch.path, "/"+resource) {
			return true
		}
	}
	return false
}

// mayResume reports whether a watch of a collection may begin at a resource version, and whether it
// resumes an earlier watch. A watch without a version begins with the current objects, as a list
// does.
func (t *Transport) mayResume(path, version string) (may, resumes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mustList, watched := t.watched[path]
	t.watched[path] = mustList && hasVersion(version)
	return !mustList || !hasVersion(version), watched && hasVersion(version)
}

// mustList records that a collection must be listed before its watch may resume.
func (t *Transport) mustList(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched[path] = true
}

// recordList records that a collection was listed, so its watch may resume.
func (t *Transport) recordList(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watched, path) // the watch after the list adds it again
}

// recordWatch records that the watch of a collection has begun.
func (t *Transport) recordWatch(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.restarting, path)
}

func (t *Transport) addWatch(watch *cancelableBody) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openWatches[watch] = struct{}{}
}

func (t *Transport) removeWatch(watch *cancelableBody) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.openWatches, watch)
}

type roundTripper struct {
	transport *Transport
	next      http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport below, to close its connections.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch, _ := strconv.ParseBool(query.Get("watch"))
	switch {
	case watch:
		return r.watch(req, query.Get("resourceVersion"))
	case req.Method == http.MethodGet:
		if !subscription.IsPartialList(req.Context()) {
			r.transport.recordList(req.URL.Path)
		}
		return r.next.RoundTrip(req)
	}
	return r.write(req)
}

// write sends a request with a timeout, when its turn has come. The turn ends with the response's
// header: the rest is small.
func (r *roundTripper) write(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), r.transport.timeout)
	if err := r.transport.writes.begin(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("wait for earlier writes, which the server is slow to answer: %w", err)
	}
	begun := time.Now()
	resp, err := r.next.RoundTrip(req.Clone(ctx))
	overloaded := err != nil || isUnavailable(resp.StatusCode) || resp.StatusCode == http.StatusGatewayTimeout
	r.transport.writes.end(begun, overloaded || time.Since(begun) > slowWrite)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelableBody{ReadCloser: resp.Body, cancel: cancel, onClose: func(*cancelableBody) {}}
	return resp, nil
}

// watch retries until the server accepts the watch or the request is canceled.
func (r *roundTripper) watch(req *http.Request, version string) (*http.Response, error) {
	resp, err := r.tryWatch(req, version, false)
	if !isAway(resp, err) {
		return resp, err
	}
	turns := r.transport.turns
	delay := func(f failures) time.Duration { return f.delay(r.transport.Members(), retryAfter(resp)) }
	restarted := false
	for refusals := 0; ; {
		restarted = restarted || isRestarting(resp, err)
		if turns.begin(req.Context(), delay) != nil {
			return resp, err
		}
		state := r.readiness(req)
		if state == starting && refusals < mostRefused {
			refusals, restarted = refusals+1, true
			turns.end(refused, delay)
			continue
		}
		if resp != nil {
			_ = resp.Body.Close() // its content does not matter
		}
		if state == ready && restarted && hasVersion(version) {
			turns.end(succeeded, delay)
			r.transport.mustList(req.URL.Path)
			return expiredResponse(req), nil // the watch would be opened for nothing
		}
		resp, err = r.tryWatch(req, version, true)
		o := succeeded
		switch {
		case err != nil:
			o = noAnswer
		case isUnavailable(resp.StatusCode):
			o = refused
		case resp.StatusCode == http.StatusForbidden && refusals < mostRefused:
			o, refusals = refused, refusals+1
		}
		turns.end(o, delay)
		if o != succeeded {
			continue
		}
		if restarted && resp.StatusCode == http.StatusOK && hasVersion(version) {
			_ = resp.Body.Close()
			r.transport.mustList(req.URL.Path)
			return expiredResponse(req), nil
		}
		return resp, err
	}
}

type readiness int

const (
	unknown readiness = iota
	starting
	ready
)

// readiness asks a server that was away whether it is ready. While it is not, requests of all
// members would only keep it from its first steps. It is ready if the watch before succeeded.
func (r *roundTripper) readiness(watch *http.Request) readiness {
	if !r.transport.turns.areFailing() {
		return ready
	}
	path := watch.URL.Path // the address of a server may have a path, too
	end := max(strings.LastIndex(path, "/apis/"), strings.LastIndex(path, "/api/"))
	if end < 0 {
		return unknown
	}
	ctx, cancel := context.WithTimeout(watch.Context(), r.transport.timeout)
	defer cancel()
	question := watch.Clone(ctx)
	question.URL.Path, question.URL.RawPath, question.URL.RawQuery = path[:end]+"/readyz", "", ""
	resp, err := r.next.RoundTrip(question)
	if err != nil {
		return unknown
	}
	_ = resp.Body.Close() // its content does not matter
	switch resp.StatusCode {
	case http.StatusOK:
		return ready
	case http.StatusInternalServerError:
		return starting
	}
	return unknown // it may not answer this question
}

// isRestarting reports whether a server showed that it ends or starts: it does not listen, or has
// not read its roles. Its state may be an older one then. Later writes can have reached the version
// of a watch when the watch resumes, so that comparing them does not show it.
func isRestarting(resp *http.Response, err error) bool {
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	return resp.StatusCode == http.StatusForbidden
}

// hasVersion reports whether a watch begins at a version that an earlier one had reached. One that
// begins with all objects as they were then is no exception: it does not end them before the server
// has reached that version.
func hasVersion(version string) bool { return version != "" && version != "0" }

// tryWatch sends the request for a watch once, or again.
func (r *roundTripper) tryWatch(req *http.Request, version string, again bool) (*http.Response, error) {
	may, resumes := r.transport.mayResume(req.URL.Path, version)
	if !may {
		return expiredResponse(req), nil
	}
	resp, err := r.openWatch(req)
	if isAway(resp, err) {
		r.transport.forgetVersion()
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	if (resumes || again) && r.isOlder(req, version) {
		_ = resp.Body.Close() // nothing arrives on it
		return expiredResponse(req), nil
	}
	r.transport.recordWatch(req.URL.Path)
	return resp, nil
}

// isOlder reports whether the server's state is older than a resource version: it was restored from
// a backup. It is false if that cannot be found out.
func (r *roundTripper) isOlder(watch *http.Request, version string) bool {
	before, err := strconv.ParseInt(version, 10, 64)
	if err != nil || r.transport.hasReached(watch.URL.Path, before) {
		return false
	}
	ctx, cancel := context.WithTimeout(watch.Context(), r.transport.timeout)
	defer cancel()
	list := watch.Clone(ctx)
	list.URL.RawQuery = "limit=1" // without a version the answer has the current one
	list.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := r.next.RoundTrip(list)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var current metav1.PartialObjectMetadataList
	if json.NewDecoder(resp.Body).Decode(&current) != nil {
		return false
	}
	now, err := strconv.ParseInt(current.ResourceVersion, 10, 64)
	if err != nil {
		return false
	}
	r.transport.recordVersion(watch.URL.Path, now)
	return now < before
}

// hasReached reports whether the server is known to have reached a version. A watch that resumes
// again asks again.
func (t *Transport) hasReached(path string, version int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached.version < version || t.reached.paths[path] || time.Since(t.reached.at) > reachedFor {
		return false
	}
	t.reached.paths[path] = true
	return true
}

func (t *Transport) recordVersion(path string, version int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached = reached{version, time.Now(), map[string]bool{path: true}}
}

func (t *Transport) forgetVersion() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached = reached{}
}

// openWatch starts one watch that RestartWatches can end.
func (r *roundTripper) openWatch(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	body := &cancelableBody{cancel: cancel, onClose: r.transport.removeWatch}
	r.transport.addWatch(body)
	resp, err := r.next.RoundTrip(req.Clone(ctx))
	if err != nil {
		body.onClose(body)
		cancel()
		return nil, err
	}
	r.transport.mu.Lock()
	body.path = req.URL.Path
	r.transport.mu.Unlock()
	body.ReadCloser = resp.Body
	resp.Body = body
	return resp, nil
}

// isAway reports whether a request got no answer, or one of a server that cannot serve it now.
func isAway(resp *http.Response, err error) bool { return err != nil || isUnavailable(resp.StatusCode) }

// isUnavailable reports whether a status comes from a proxy before a server that is down, or from a
// server that is starting or overloaded.
func isUnavailable(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// cancelableBody is the body of a response whose request can be canceled.
type cancelableBody struct {
	io.ReadCloser
	path    string // of a watch that has begun
	cancel  context.CancelFunc
	onClose func(*cancelableBody)
}

// Close implements io.Closer.
func (b *cancelableBody) Close() error {
	b.onClose(b)
	b.cancel()
	return b.ReadCloser.Close()
}

// expiredResponse is what an API server answers to a watch from a resource version that it does not
// have any more. It makes the client list again.
func expiredResponse(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,` +
		`"message":"the server was restored from a backup"}`
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header:        http.Header{"Content-Type": []string{"application/json"}},
		Body:          io.NopCloser(bytes.NewReader([]byte(status))),
		ContentLength: int64(len(status)),
	}
}
