package trigger

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestBurstEndsAfterItsQuietPeriod(t *testing.T) {
	for name, test := range map[string]struct {
		length time.Duration
		quiet  time.Duration
	}{
		"a single service":        {0, minQuietPeriod},
		"a few":                   {minQuietPeriod / 2, minQuietPeriod},
		"many":                    {2 * time.Second, 2 * time.Second},
		"longer than the maximum": {5 * time.Second, maxQuietPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b Burst
				if b.Active() {
					t.Error("a burst before anything was written")
				}
				b.extendFor(test.length)
				time.Sleep(test.quiet - time.Millisecond)
				if !b.Active() {
					t.Error("the burst is over too early")
				}
				time.Sleep(2 * time.Millisecond)
				if b.Active() {
					t.Error("the burst lasts too long")
				}
				b.extendFor(0)
				time.Sleep(minQuietPeriod + time.Millisecond)
				if b.Active() {
					t.Error("the next burst is as long as the one before")
				}
			})
		})
	}
}

func TestLastingLoadIsNoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Burst
		b.extendFor(maxBurst - minQuietPeriod)
		if !b.Active() {
			t.Error("the burst is over too early")
		}
		b.extendFor(2 * maxBurst)
		if b.Active() {
			t.Error("the burst lasts longer than its maximum")
		}
	})
}

// extendFor records urgent writes for a while.
func (b *Burst) extendFor(d time.Duration) {
	b.Extend()
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(min(minQuietPeriod/4, d))
		b.Extend()
	}
}

func TestDeferredKeyIsEnqueuedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var burst Burst
		deferred := NewDeferred(&burst)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := deferred.Source().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		web := types.NamespacedName{Namespace: "shop", Name: "web"}
		if deferred.Defer(web) {
			t.Error("the key is deferred although there is no burst")
		}
		deferred.MarkUrgent()
		for range 2 {
			if !deferred.Defer(web) {
				t.Error("the key is not deferred although there is a burst")
			}
		}
		time.Sleep(minQuietPeriod / 2)
		if queue.Len() != 0 {
			t.Error("the key was enqueued during the burst")
		}
		time.Sleep(minQuietPeriod)
		synctest.Wait()
		if queue.Len() != 1 {
			t.Errorf("%d keys were enqueued, want 1", queue.Len())
		}
		if got, _ := queue.Get(); got.NamespacedName != web || deferred.Defer(web) {
			t.Errorf("%s was enqueued, or is deferred again", got)
		}
	})
}
