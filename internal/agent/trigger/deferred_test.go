package trigger

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRushLastsAsLongAgainAsItWas(t *testing.T) {
	for name, test := range map[string]struct {
		length time.Duration
		calm   time.Duration
	}{
		"a single service":            {0, minQuietPeriod},
		"a few":                       {minQuietPeriod / 2, minQuietPeriod},
		"many":                        {2 * time.Second, 2 * time.Second},
		"more than anybody waits for": {5 * time.Second, maxQuietPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r Burst
				if r.Active() {
					t.Error("a rush before anything was written")
				}
				r.extendFor(test.length)
				time.Sleep(test.calm - time.Millisecond)
				if !r.Active() {
					t.Error("the rush is over too early")
				}
				time.Sleep(2 * time.Millisecond)
				if r.Active() {
					t.Error("the rush goes on too long")
				}
				r.extendFor(0)
				time.Sleep(minQuietPeriod + time.Millisecond)
				if r.Active() {
					t.Error("the next rush is as long as the one before")
				}
			})
		})
	}
}

func TestRushThatNeverEndsIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Burst
		r.extendFor(maxBurst - minQuietPeriod)
		if !r.Active() {
			t.Error("it is over too early")
		}
		r.extendFor(2 * maxBurst)
		if r.Active() {
			t.Error("it goes on")
		}
	})
}

// keepUp writes something urgent again and again for a while.
func (r *Burst) extendFor(d time.Duration) {
	r.Extend()
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(min(minQuietPeriod/4, d))
		r.Extend()
	}
}

func TestWhatWaitedComesBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rush Burst
		later := NewDeferred(&rush)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := later.Source().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		web := types.NamespacedName{Namespace: "shop", Name: "web"}
		if later.Defer(web) {
			t.Error("it waits although there is no rush")
		}
		later.MarkUrgent()
		for range 2 {
			if !later.Defer(web) {
				t.Error("it does not wait although there is a rush")
			}
		}
		time.Sleep(minQuietPeriod / 2)
		if queue.Len() != 0 {
			t.Error("it came back during the rush")
		}
		time.Sleep(minQuietPeriod)
		synctest.Wait()
		if queue.Len() != 1 {
			t.Errorf("%d keys came back, want 1", queue.Len())
		}
		if got, _ := queue.Get(); got.NamespacedName != web || later.Defer(web) {
			t.Errorf("%s came back, or waits again", got)
		}
	})
}
