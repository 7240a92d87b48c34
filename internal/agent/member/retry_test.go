package member

import (
	"net/http"
	"testing"
	"time"
)

// Members come back over a time that grows with their number, evenly.
func TestRetriesAreSpreadOverTheMembers(t *testing.T) {
	for _, c := range []struct {
		all, answered, members int
		asked                  time.Duration
		least, most            time.Duration
	}{
		{0, 0, 3, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
		{9, 0, 3, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
		{0, 0, 1000, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
		{1, 0, 100, 0, 500 * time.Millisecond, 6500 * time.Millisecond},
		{1, 0, 1000, 0, 500 * time.Millisecond, 60500 * time.Millisecond},
		{1_000_000, 0, 1000, 0, 500 * time.Millisecond, 60500 * time.Millisecond},
		{1_000_000, 0, 1_000_000, 0, 500 * time.Millisecond, 60500 * time.Millisecond},
		{9, 0, 0, 0, 500 * time.Millisecond, 4500 * time.Millisecond}, // how many there are is not known
		{0, 0, 3, 7 * time.Second, 7 * time.Second, 8 * time.Second},
		{2, 1, 1000, 0, 500 * time.Millisecond, 15500 * time.Millisecond},
		{3, 2, 1000, 9 * time.Second, 9 * time.Second, 39 * time.Second},
		{4, 3, 1000, 0, 500 * time.Millisecond, 60500 * time.Millisecond},
		{99, 99, 1000, 0, 500 * time.Millisecond, 60500 * time.Millisecond},
		{2, 1, 3, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			delay := failures{c.all, c.answered}.delay(c.members, c.asked)
			least, most = min(least, delay), max(most, delay)
		}
		if least < c.least || most > c.most {
			t.Errorf("%+v: delays from %v to %v", c, least, most)
		}
		if most-least < (c.most-c.least)*9/10 {
			t.Errorf("%+v: delays only from %v to %v: a thousand members would come together", c, least, most)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "soon": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0, "99999999999": maxSpread, "99999999999999999999": 0,
	} {
		resp := &http.Response{Header: http.Header{"Retry-After": []string{value}}}
		if got := retryAfter(resp); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
	if got := retryAfter(nil); got != 0 {
		t.Errorf("without an answer: %v", got)
	}
}
