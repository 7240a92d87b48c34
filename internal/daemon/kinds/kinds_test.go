package kinds

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A watch whose kind is not served for a moment goes on when it is served again; its client does
// not notice. Other requests, and watches of kinds that were never served, are answered at once.
func TestWatchWaitsForItsKind(t *testing.T) {
	missing, requests := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		switch {
		case r.URL.Path == "/imports/web":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
		case missing > 0:
			missing--
			http.NotFound(w, r) // as an API server answers
		default:
			_, _ = io.WriteString(w, "events")
		}
	}))
	t.Cleanup(server.Close)
	lost := 0
	keeper := New(func() { lost++ })
	keeper.wait = func(time.Duration) <-chan time.Time { return time.After(0) }
	client := &http.Client{Transport: keeper.Wrap(http.DefaultTransport)}
	for _, step := range []struct {
		what, path             string
		missing                int // times
		status, requests, lost int
	}{
		{"a kind that was never served", "/imports?watch=true", 1, http.StatusNotFound, 1, 1},
		{"a watch", "/imports?watch=true", 0, http.StatusOK, 1, 0},
		{"it resumes", "/imports?watch=true&resourceVersion=7", 3, http.StatusOK, 4, 3},
		{"its client lists", "/imports", 2, http.StatusOK, 3, 2},
		{"another kind", "/exports?watch=true", 1, http.StatusNotFound, 1, 1},
		{"an object that does not exist", "/imports/web", 0, http.StatusNotFound, 1, 0},
		{"a kind that does not come back", "/imports?watch=true", mostLost + 1, http.StatusNotFound, mostLost + 1, mostLost + 1},
	} {
		missing, requests, lost = step.missing, 0, 0
		if status := get(t, client, server.URL+step.path); status != step.status || requests != step.requests || lost != step.lost {
			t.Errorf("%s: status %d after %d requests, reported %d times; want %d after %d, %d times",
				step.what, status, requests, lost, step.status, step.requests, step.lost)
		}
	}
}

// get sends a request and returns the status of the response.
func get(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestDelayForALostKind(t *testing.T) {
	for attempt, most := range []time.Duration{firstLost, 2 * firstLost, 4 * firstLost, maxLost, maxLost} {
		if got := lostDelay(attempt); got < most/2 || got > most {
			t.Errorf("after %d attempts: %s, want %s to %s", attempt, got, most/2, most)
		}
	}
}
