package dns

import (
	"testing"
	"time"
)

func TestRetriesAreNeverFarApart(t *testing.T) {
	backoff := retries()
	first := backoff.Step()
	if first > time.Second {
		t.Errorf("first after %s", first)
	}
	for i := range 100 {
		if pause := backoff.Step(); pause < 500*time.Millisecond || pause > 10*time.Second {
			t.Errorf("retry %d after %s", i, pause)
		}
	}
}
