package member

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"
)

// tokenOf returns a token that was issued at a time, for a lifetime.
func tokenOf(issued time.Time, lifetime time.Duration) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte("{}")) + "." + part(fmt.Appendf(nil, `{"iat":%d,"exp":%d}`, issued.Unix(), issued.Add(lifetime).Unix())) + ".x"
}

func TestTokenIsRenewedByItsAgeAndLifetime(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, test := range map[string]struct {
		token       *heldToken
		first, last time.Duration // when members renew it
		used        float64
	}{
		"new":                            {renewedToken(tokenOf(now, 10*time.Hour), now), 2 * time.Hour, 150 * time.Minute, 0},
		"new, with a clock hours ahead":  {renewedToken(tokenOf(now.Add(-5*time.Hour), time.Hour), now), 12 * time.Minute, 15 * time.Minute, 0},
		"new, with a clock hours behind": {renewedToken(tokenOf(now.Add(5*time.Hour), time.Hour), now), 12 * time.Minute, 15 * time.Minute, 0},
		"stored an hour ago":             {storedToken(tokenOf(now.Add(-time.Hour), 10*time.Hour), now), time.Hour, 90 * time.Minute, 0.1},
		"stored, and due":                {storedToken(tokenOf(now.Add(-5*time.Hour), 10*time.Hour), now), 0, overdueSpread, 0.5},
		"stored, and about to expire":    {storedToken(tokenOf(now.Add(-time.Hour+8*time.Second), time.Hour), now), 0, 2 * time.Second, 3592. / 3600},
		"stored, with a clock far ahead": {storedToken(tokenOf(now.Add(-50*time.Hour), 10*time.Hour), now), 0, 0, 1},
		"stored, with a clock far behind": {
			storedToken(tokenOf(now.Add(50*time.Hour), 10*time.Hour), now), 2 * time.Hour, 150 * time.Minute, 0,
		},
		"unreadable, new":    {renewedToken("opaque", now), 2 * time.Minute, 150 * time.Second, 0},
		"unreadable, stored": {storedToken("opaque", now), 0, 0, 1},
	} {
		for drawn, want := range map[float64]time.Duration{0: test.first, 1: test.last} {
			test.token.part = drawn
			if wait, used := test.token.untilRenewal(now), test.token.used(now); wait != want || used != test.used {
				t.Errorf("%s: renewed in %s with %v used, want %s and %v", name, wait, used, want, test.used)
			}
		}
	}
}

// A token that joining again stores wakes the renewal up; the same token again does not.
func TestAnotherTokenIsNoticed(t *testing.T) {
	now := time.Now()
	c := NewCredential(tokenOf(now, 72*time.Hour))
	if c.hold(storedToken(tokenOf(now, 72*time.Hour), now)) || len(c.changed) != 0 {
		t.Error("the same token counts as a change")
	}
	for range 2 {
		c.hold(storedToken(tokenOf(now, 10*time.Minute), now))
	}
	if len(c.changed) != 1 || c.held.Load().lifetime != 10*time.Minute {
		t.Errorf("%d changes, %+v", len(c.changed), c.held.Load())
	}
}
