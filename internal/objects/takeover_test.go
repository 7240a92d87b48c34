package objects

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestMembersDoNotTakeOverAllAtOnce(t *testing.T) {
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	seen := map[time.Duration]bool{}
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		delay := TakeoverDelay(c, web)
		if delay < takeoverDelay || delay >= 2*takeoverDelay || delay != TakeoverDelay(c, web) {
			t.Errorf("delay of %s: %s", c, delay)
		}
		seen[delay] = true
	}
	if len(seen) < 7 {
		t.Errorf("only %d different delays for 8 members", len(seen))
	}
}
