package trigger

import (
	"math/rand/v2"
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
		"longer than the maximum": {2 * maxQuietPeriod, maxQuietPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b Burst
				if b.Active() {
					t.Error("a burst before anything was written")
				}
				b.extendFor(test.length, time.Millisecond)
				time.Sleep(test.quiet - 2*burstSize*time.Millisecond)
				if !b.Active() {
					t.Error("the burst is over too early")
				}
				time.Sleep(2*burstSize*time.Millisecond + time.Millisecond)
				if b.Active() {
					t.Error("the burst lasts too long")
				}
				time.Sleep(time.Second)
				b.Extend()
				time.Sleep(minQuietPeriod + time.Millisecond)
				if b.Active() {
					t.Error("the next burst is as long as the one before")
				}
			})
		})
	}
}

// TestDeferralHasABound defers a write under loads that do not end.
func TestDeferralHasABound(t *testing.T) {
	for name, test := range map[string]struct{ every, bound time.Duration }{
		"a usual load, which leaves no calm":        {minQuietPeriod / 2, maxCalmWait},
		"a load of which importers never keep pace": {5 * time.Millisecond, maxDeferral},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b Burst
				b.extendFor(3*maxDeferral, test.every)
				deferred := time.Now()
				b.extendFor(test.bound-test.every, test.every)
				if !b.Active() || b.over(deferred) {
					t.Error("the write is not deferred")
				}
				b.extendFor(2*test.every, test.every)
				if !b.over(deferred) {
					t.Errorf("the write is deferred for longer than %s", test.bound)
				}
			})
		})
	}
}

// TestBurstEndsBesideTheUsualLoad has a burst beside a load that leaves no calm. Writes are
// deferred for about as long as without that load.
func TestBurstEndsBesideTheUsualLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Burst
		b.extendFor(3*maxDeferral, minQuietPeriod/2)
		b.extendFor(10*time.Second, time.Millisecond)
		deferred := time.Now()
		b.extendFor(9*time.Second, minQuietPeriod/2)
		if b.over(deferred) {
			t.Error("importing clusters had no time to follow")
		}
		b.extendFor(6*time.Second, minQuietPeriod/2)
		if !b.over(deferred) {
			t.Error("the burst does not end beside the usual load")
		}
	})
}

// TestBurstInClumps has the writes of sixteen workers that wait for a busy API server.
func TestBurstInClumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 10 * time.Second
		var b Burst
		for start := time.Now(); time.Since(start) < length; time.Sleep(300 * time.Millisecond) {
			for range 16 {
				b.Extend()
			}
		}
		time.Sleep(length - time.Second)
		if !b.Active() {
			t.Error("the burst is over too early")
		}
		time.Sleep(time.Second)
		if b.Active() {
			t.Error("the burst lasts too long")
		}
	})
}

// TestRandomLoadIsNoBurst has twenty writes a second at random times.
func TestRandomLoadIsNoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		var b Burst
		var longest time.Duration
		for range 10_000 {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second/20)))
			b.Extend()
			longest = max(longest, time.Until(b.end))
		}
		if longest > 3*time.Second {
			t.Errorf("writes are deferred for up to %s", longest)
		}
	})
}

// extendFor records urgent writes for a while.
func (b *Burst) extendFor(d, every time.Duration) {
	b.Extend()
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(min(every, d))
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

func TestKeyIsForgottenWhenItsWritesAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var burst Burst
		deferred := NewDeferred(&burst)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := deferred.Source().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		web := types.NamespacedName{Namespace: "shop", Name: "web"}
		deferred.MarkUrgent()
		deferred.Defer(web)
		time.Sleep(2 * minQuietPeriod)
		deferred.MarkUrgent() // the burst is active when the key is reconciled
		if deferred.Defer(web) {
			t.Error("the writes are deferred again although the key was enqueued for them")
		}
		if !deferred.Defer(web) {
			t.Error("writes of the next change are not deferred")
		}
		time.Sleep(2 * minQuietPeriod)
		synctest.Wait()
		if queue.Len() != 1 { // a queue holds a key once
			t.Errorf("%d keys in the queue, want 1", queue.Len())
		}
		other := types.NamespacedName{Namespace: "shop", Name: "api"}
		time.Sleep(2 * maxDeferral) // nothing had to be written for web
		deferred.MarkUrgent()
		deferred.Defer(other)
		time.Sleep(2 * minQuietPeriod)
		if deferred.Defer(other) || len(deferred.keys) != 0 {
			t.Errorf("%d keys are remembered, want none", len(deferred.keys))
		}
	})
}
