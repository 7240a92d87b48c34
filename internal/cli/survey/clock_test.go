package survey

import (
	"net/http"
	"testing"
	"time"
)

func TestServerClock(t *testing.T) {
	noon := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	c := &serverClock{}
	if _, known := c.read(); known || c.now(noon) != noon {
		t.Error("nothing was heard yet")
	}
	c.observe("nonsense", noon, noon)
	slow, fast := noon.Add(time.Hour), noon.Add(2*time.Hour)
	c.observe(slow.Format(http.TimeFormat), noon, noon.Add(time.Second))
	c.observe(fast.Format(http.TimeFormat), noon, noon.Add(time.Millisecond))
	c.observe(slow.Format(http.TimeFormat), noon, noon.Add(time.Second))
	if ahead, known := c.read(); !known || (ahead-2*time.Hour).Abs() > time.Second {
		t.Errorf("%s: the answer that took the least time counts", ahead)
	}
	if got := c.now(noon); got.Sub(noon) < time.Hour {
		t.Errorf("%s", got)
	}
}
