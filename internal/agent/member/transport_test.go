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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, func() (string, error) {
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
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
