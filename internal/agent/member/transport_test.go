package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/agent/subscription"
)

// get sends a request and returns the status of the response and a function that reads its body.
func get(t *testing.T, c *http.Client, url string) (status int, rest func() (string, error)) {
	t.Helper()
	return getWith(t.Context(), t, c, url)
}

func getWith(ctx context.Context, t *testing.T, c *http.Client, url string) (status int, rest func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	t.Cleanup(cancel)
	resp, err := send(ctx, c, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, func() (string, error) {
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
}

func send(ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// A watch is retried until the server accepts it; the client does not notice.
func TestWatchIsRetriedUntilTheServerIsBack(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "events")
		}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
	_, rest := get(t, client, server.URL+"/records?watch=true&resourceVersion=7")
	// The fourth request finds out whether the server was restored.
	if body, err := rest(); err != nil || body != "events" || requests.Load() != 4 {
		t.Errorf("got %q, %v after %d requests", body, err, requests.Load())
	}
}

// RestartWatches ends every watch. A watch that resumes from its old version gets 410 Gone, so that
// its client lists again. This server does not say which version it has: a watch begins without
// that.
func TestRestartWatches(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	transport := NewTransport()
	transport.timeout = 100 * time.Millisecond
	client := &http.Client{Transport: transport.Wrap(http.DefaultTransport)}
	_, rest := get(t, client, server.URL+"/records?watch=true&resourceVersion=7")
	if !transport.Restarted() {
		t.Error("a watch restarts that was not ended")
	}
	transport.RestartWatches()
	if _, err := rest(); !errors.Is(err, context.Canceled) {
		t.Errorf("the running watch ended with %v", err)
	}
	for range 2 {
		status, rest := get(t, client, server.URL+"/records?watch=true&resourceVersion=7")
		if body, err := rest(); err != nil || status != http.StatusGone || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("a watch from an old version: %d %s %v", status, body, err)
		}
		if transport.Restarted() {
			t.Error("the watches have restarted, before one began anew")
		}
	}
	getWith(subscription.PartialList(t.Context()), t, client, server.URL+"/records")
	if status, _ := get(t, client, server.URL+"/records?watch=true&resourceVersion=7"); status != http.StatusGone {
		t.Errorf("a watch from an old version after a list of some objects: %d", status)
	}
	for _, next := range []string{
		"/slices?watch=true&resourceVersion=7", "/records?watch=true&sendInitialEvents=true", "/records?watch=true&resourceVersion=8",
	} {
		if status, _ := get(t, client, server.URL+next); status != http.StatusOK {
			t.Errorf("%s: %d", next, status)
		}
	}
	if !transport.Restarted() {
		t.Error("the watch has begun anew, but counts as restarting")
	}
}

// A watch that resumes from a version that the server has not reached gets 410 Gone: the server was
// restored from a backup. The first watch after a list is not checked.
func TestWatchOfARestoredServer(t *testing.T) {
	var current, lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			lists.Add(1)
			_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d"}}`, current.Load())
		}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
	current.Store(7)
	for i, step := range []struct {
		current int32
		query   string
		status  int
		lists   int32
	}{
		{7, "/records?watch=true&resourceVersion=7", http.StatusOK, 0},
		{9, "/records?watch=true&resourceVersion=8", http.StatusOK, 1},
		{5, "/records?watch=true&resourceVersion=8", http.StatusGone, 2},
		{5, "/records", http.StatusOK, 3},
		{5, "/records?watch=true&resourceVersion=5", http.StatusOK, 3},
		{5, "/records?watch=true", http.StatusOK, 3},
	} {
		current.Store(step.current)
		if status, _ := get(t, client, server.URL+step.query); status != step.status || lists.Load() != step.lists {
			t.Fatalf("step %d: status %d, %d lists, want %+v", i, status, lists.Load(), step)
		}
	}
}

// While a server is away one watch at a time asks it. When it is back, the others follow at once. A
// server that starts denies watches for a moment. A client that it denied one lists again: the
// server may have been restored.
func TestWatchesComeBackOneAfterAnother(t *testing.T) {
	const kinds = 5
	var requests, atOnce, most atomic.Int32
	answer := make(chan int, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			return // it does not say which version it has
		}
		if requests.Add(1) > kinds { // the first attempts are made side by side
			most.Store(max(most.Load(), atOnce.Add(1)))
			defer atOnce.Add(-1)
		}
		w.WriteHeader(<-answer)
	}))
	t.Cleanup(server.Close)
	transport := NewTransport()
	client := &http.Client{Transport: transport.Wrap(http.DefaultTransport)}
	statuses := make(chan int, kinds)
	for i := range kinds {
		go func() {
			resp, err := send(t.Context(), client, fmt.Sprintf("%s/kind-%d?watch=true&resourceVersion=7", server.URL, i))
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	for range kinds {
		answer <- http.StatusServiceUnavailable
	}
	answer <- http.StatusServiceUnavailable
	answer <- http.StatusForbidden
	for range kinds - 1 { // the one that was denied is not opened again
		answer <- http.StatusOK
	}
	got := map[int]int{}
	for range kinds {
		got[<-statuses]++
	}
	if got[http.StatusOK] != kinds-1 || got[http.StatusGone] != 1 {
		t.Errorf("watches got, by status: %v", got)
	}
	if requests.Load() != 2*kinds+1 || most.Load() != 1 {
		t.Errorf("%d requests, up to %d at once", requests.Load(), most.Load())
	}
}

// A watch that is denied again and again is the client's to report.
func TestWatchThatStaysDenied(t *testing.T) {
	var denied atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/denied" && r.URL.Query().Get("watch") != "" {
			if denied.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
	url := server.URL + "/denied?watch=true&resourceVersion=7"
	if status, _ := get(t, client, url); status != http.StatusForbidden || denied.Load() != mostRefused+2 {
		t.Errorf("status %d after %d requests", status, denied.Load())
	}
	if status, _ := get(t, client, url); status != http.StatusForbidden || denied.Load() != mostRefused+3 {
		t.Errorf("without an outage: status %d after %d requests", status, denied.Load())
	}
}

// After an outage one question which version the server has is enough for all watches.
func TestOneQuestionForAllWatches(t *testing.T) {
	var lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			lists.Add(1)
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"}}`)
		}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
	for range 2 { // the second one resumes
		for _, kind := range []string{"/records", "/slices", "/imports"} {
			if status, _ := get(t, client, server.URL+kind+"?watch=true&resourceVersion=8"); status != http.StatusOK {
				t.Errorf("%s: %d", kind, status)
			}
		}
	}
	if lists.Load() != 1 {
		t.Errorf("the server was asked %d times", lists.Load())
	}
	if status, _ := get(t, client, server.URL+"/slices?watch=true&resourceVersion=10"); status != http.StatusGone || lists.Load() != 2 {
		t.Errorf("a version that the server has not reached: %d after %d questions", status, lists.Load())
	}
}

// A server that is not ready is left alone for a while after an outage, and not for ever: it may
// serve all the same. A client that has seen it start lists everything.
func TestWatchWaitsForAServerThatStarts(t *testing.T) {
	var watches, asked, readyAfter atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/proxy/readyz":
			if asked.Add(1) <= readyAfter.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		case r.URL.Query().Get("watch") != "" && watches.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct{ readyAfter, asked, watches int32 }{{2, 3, 1}, {100, mostRefused + 1, 2}} {
		watches.Store(0)
		asked.Store(0)
		readyAfter.Store(c.readyAfter)
		client := &http.Client{Transport: NewTransport().Wrap(http.DefaultTransport)}
		url := server.URL + "/proxy/apis/seamark.dev/v1alpha1/clusters?watch=true&resourceVersion=7"
		if status, _ := get(t, client, url); status != http.StatusGone || watches.Load() != c.watches || asked.Load() != c.asked {
			t.Errorf("ready after %d answers: status %d, %d watches, asked %d times", c.readyAfter, status, watches.Load(), asked.Load())
		}
	}
}

// roundTripperFunc is a RoundTripper.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A server that did not listen may have been restored to an older state, and may have reached the
// version of a watch again. So the client lists, or watches from no version at all. A watch whose
// connection broke resumes.
func TestWatchOfAServerThatRestarted(t *testing.T) {
	var sent atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"}}`)
		}
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		first  error
		query  string
		status int
	}{
		{syscall.ECONNREFUSED, "&resourceVersion=7", http.StatusGone},
		{syscall.ECONNREFUSED, "&resourceVersion=7&sendInitialEvents=true", http.StatusGone},
		{syscall.ECONNREFUSED, "", http.StatusOK},
		{syscall.ECONNRESET, "&resourceVersion=7", http.StatusOK},
	} {
		first := c.first
		client := &http.Client{Transport: NewTransport().Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if err := first; err != nil {
				first = nil
				return nil, fmt.Errorf("connect: %w", err)
			}
			return http.DefaultTransport.RoundTrip(req)
		}))}
		if status, _ := get(t, client, server.URL+"/records?watch=true"+c.query); status != c.status {
			t.Errorf("%v, then %s: %d", c.first, c.query, status)
		}
		sent.Store(0)
		for _, query := range []string{c.query, ""} { // what the client does when it lists
			get(t, client, server.URL+"/records?watch=true"+query)
		}
		if c.status == http.StatusGone && sent.Load() != 1 {
			t.Errorf("%v, then %s: the client lists by %d requests", c.first, c.query, sent.Load())
		}
	}
}
