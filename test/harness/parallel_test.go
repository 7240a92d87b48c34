package harness

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestParallel(t *testing.T) {
	var sum atomic.Int64
	if err := Parallel(3, 10, func(i int) error { sum.Add(int64(i)); return nil }); err != nil || sum.Load() != 45 {
		t.Errorf("sum %d (%v), want 45", sum.Load(), err)
	}
	failed := errors.New("failed")
	err := Parallel(2, 4, func(i int) error {
		if i == 1 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of one call", err)
	}
}
