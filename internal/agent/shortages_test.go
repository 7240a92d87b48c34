package agent

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// The ServiceExport of a service is reconciled when its shortage begins, ends or has another cause,
// and not when the same cause is recorded again.
func TestShortagesReportChanges(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	var changed int
	s := &shortages{reasons: map[types.NamespacedName]error{}, changed: func(...types.NamespacedName) { changed++ }}
	for i, step := range []struct {
		reason  error
		changed bool
	}{
		{nil, false}, {errors.New("all 2 addresses are in use"), true}, {errors.New("all 2 addresses are in use"), false},
		{errors.New("no IPv6 block"), true}, {nil, true}, {nil, false},
	} {
		changed = 0
		s.set(web, step.reason)
		if (changed == 1) != step.changed {
			t.Errorf("step %d: changed was called %d times", i, changed)
		}
		if got := s.get(web); !errors.Is(got, step.reason) {
			t.Errorf("step %d: the reason is %v, want %v", i, got, step.reason)
		}
	}
	if got := s.get(types.NamespacedName{Namespace: "shop", Name: "db"}); got != nil {
		t.Errorf("another service has a shortage: %v", got)
	}
}
