package proxy

import (
	"errors"
	"testing"
	"time"
)

func TestPacer(t *testing.T) {
	var p pacer
	failed := errors.New("refused")
	for i, want := range []time.Duration{minRetryDelay, 2 * minRetryDelay, 4 * minRetryDelay} {
		if got := p.after(time.Millisecond, 0, failed); got.pause != want || got.due != want {
			t.Errorf("failure %d: %+v, want %s", i+1, got, want)
		}
	}
	for range 10 {
		p.after(time.Millisecond, 0, failed)
	}
	if got := p.after(time.Millisecond, 0, failed); got.pause != maxRetryDelay {
		t.Errorf("after many failures: %+v", got)
	}
	if got := p.after(time.Millisecond, 3*time.Second, nil); got.pause != minSyncPause || got.due != 3*time.Second {
		t.Errorf("after a short sync: %+v", got)
	}
	if got := p.after(time.Second, 0, nil); got.pause != time.Second || got.due != 0 {
		t.Errorf("after a long sync: %+v", got)
	}
	if got := p.after(time.Millisecond, 0, failed); got.pause != minRetryDelay {
		t.Errorf("a failure after a success: %+v", got)
	}
}

// Listing the tracked connections of a busy node takes seconds.
func TestFlowsDelay(t *testing.T) {
	for _, test := range []struct {
		took     time.Duration
		failures int
		want     time.Duration
	}{
		{time.Millisecond, 0, 19 * time.Millisecond},
		{time.Second, 0, 19 * time.Second},
		{time.Millisecond, 1, time.Second},
		{time.Millisecond, 3, 4 * time.Second},
		{time.Millisecond, 1000, time.Minute},
		{10 * time.Second, 1, 190 * time.Second},
	} {
		if got := flowsDelay(test.took, test.failures); got != test.want {
			t.Errorf("%s and %d failures: %s, want %s", test.took, test.failures, got, test.want)
		}
	}
}
