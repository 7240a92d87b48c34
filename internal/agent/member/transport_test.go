package member

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// get begins to read and returns what the answer is and a way to read the rest.
func get(t *testing.T, c *http.Client, url string) (status int, rest func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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

// A watch that finds nobody asks again until somebody is there; the reader learns nothing of it.
func TestWatchKnocksUntilTheBrokerIsBack(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
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
	if body, err := rest(); err != nil || body != "events" || asked.Load() != 3 {
		t.Errorf("got %q, %v after %d requests", body, err, asked.Load())
	}
}

// After the broker was set back every watch ends, and those that want to go on are told to list anew, each once.
func TestSetBackMakesWatchesStartOver(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	line := NewTransport()
	client := &http.Client{Transport: line.Wrap(http.DefaultTransport)}
	_, rest := get(t, client, server.URL+"/records?watch=true&resourceVersion=7")
	line.RestartWatches()
	if _, err := rest(); !errors.Is(err, context.Canceled) {
		t.Errorf("the running watch ended with %v", err)
	}
	for range 2 {
		status, rest := get(t, client, server.URL+"/records?watch=true&resourceVersion=7")
		if body, err := rest(); err != nil || status != http.StatusGone || !strings.Contains(body, `"reason":"Expired"`) {
			t.Errorf("a watch from before: %d %s %v", status, body, err)
		}
	}
	for _, next := range []string{"/slices?watch=true&resourceVersion=7", "/records?watch=true&sendInitialEvents=true", "/records?watch=true&resourceVersion=8"} {
		if status, _ := get(t, client, server.URL+next); status != http.StatusOK {
			t.Errorf("%s: %d", next, status)
		}
	}
}
