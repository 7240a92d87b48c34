package agent

import (
	"testing"
	"time"
)

// Slices wait only for proxies, and only where writing them would slow the proxies down.
func TestSlicesWait(t *testing.T) {
	for _, test := range []struct {
		proxies  bool
		services int
		want     time.Duration
	}{
		{false, 0, 0}, {false, 1000, 0},
		{true, 0, 0}, {true, 1, 0}, {true, manyServices, 0},
		{true, manyServices + 1, proxiesFirst}, {true, 1000, proxiesFirst},
	} {
		if got := slicesWait(test.proxies, test.services); got != test.want {
			t.Errorf("proxies %t, %d services: %s, want %s", test.proxies, test.services, got, test.want)
		}
	}
}
