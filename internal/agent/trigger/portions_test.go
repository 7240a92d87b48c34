package trigger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// crew is a controller whose workers end their reconciles when the test says so.
type crew struct {
	t        *testing.T
	portions *Portions
	queue    priorityqueue.PriorityQueue[reconcile.Request]
}

func newCrew(t *testing.T, workers int) *crew {
	t.Helper()
	c := &crew{t, &Portions{Workers: workers}, priorityqueue.New[reconcile.Request](t.Name())}
	t.Cleanup(c.queue.ShutDown)
	if err := c.portions.Source().Start(t.Context(), c.queue); err != nil {
		t.Fatal(err)
	}
	return c
}

func keysOf(prefix string, n int) (out []types.NamespacedName) {
	for i := range n {
		out = append(out, types.NamespacedName{Namespace: prefix, Name: fmt.Sprintf("%04d", i)})
	}
	return out
}

// take returns the keys that as many workers get, and a function that ends their reconciles.
func (c *crew) take(workers int) (taken []types.NamespacedName, end func()) {
	c.t.Helper()
	var ends []chan struct{}
	var running sync.WaitGroup
	for range workers {
		request, _ := c.queue.Get()
		taken = append(taken, request.NamespacedName)
		began, ended := make(chan struct{}), make(chan struct{})
		ends = append(ends, ended)
		running.Go(func() {
			_, _ = c.portions.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				close(began)
				<-ended
				return reconcile.Result{}, nil
			})).Reconcile(c.t.Context(), request)
			c.queue.Done(request)
		})
		<-began
	}
	return taken, func() {
		for _, e := range ends {
			close(e)
		}
		running.Wait()
	}
}

func count(keys []types.NamespacedName, prefix string) (n int) {
	for _, k := range keys {
		if k.Namespace == prefix {
			n++
		}
	}
	return n
}

func TestPortionsUseAllWorkersWhileNoOthersWait(t *testing.T) {
	c := newCrew(t, 4)
	pushed := keysOf("moved", 100)
	c.portions.Push(pushed...)
	c.portions.Push(pushed[50:]...) // are there already
	if c.queue.Len() != 4 {
		t.Errorf("%d keys in the queue, want 4", c.queue.Len())
	}
	var got []types.NamespacedName
	for range 25 {
		taken, end := c.take(4)
		got = append(got, taken...)
		end()
	}
	slices.SortFunc(got, func(a, b types.NamespacedName) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	if !slices.Equal(got, pushed) {
		t.Errorf("reconciled %v", got)
	}
	if c.queue.Len() > 0 || len(c.portions.started) > 0 || len(c.portions.isQueued) > 0 {
		t.Errorf("left: %d in the queue, %v, %v", c.queue.Len(), c.portions.started, c.portions.isQueued)
	}
}

// Neither waits for all of the other: with as many of both, each gets half of the workers.
func TestPortionsShareTheWorkersWithOthers(t *testing.T) {
	c := newCrew(t, 4)
	c.portions.Push(keysOf("moved", 1000)...)
	for _, key := range keysOf("other", 1000) {
		c.queue.Add(reconcile.Request{NamespacedName: key})
	}
	first, end := c.take(4)
	if got := count(first, "moved"); got != 4 {
		t.Errorf("%d of the first, which came before the others", got)
	}
	end()
	for round := range 100 {
		taken, end := c.take(4)
		if got := count(taken, "moved"); got != 2 {
			t.Fatalf("round %d: %d of 4 workers, want 2: %v", round, got, taken)
		}
		end()
	}
}

func TestPortionsBeforeTheControllerRuns(t *testing.T) {
	p := &Portions{Workers: 4}
	p.Push(keysOf("early", 3)...)
	if len(p.waiting) > 0 {
		t.Errorf("kept %v", p.waiting)
	}
}

// A key that is reconciled for another reason when it is pushed is reconciled again.
func TestPortionsOfAKeyThatIsBeingReconciled(t *testing.T) {
	c := newCrew(t, 2)
	key := keysOf("moved", 1)[0]
	c.queue.Add(reconcile.Request{NamespacedName: key})
	_, end := c.take(1)
	c.portions.Push(key)
	end()
	if again, end := c.take(1); again[0] != key {
		t.Errorf("got %v", again)
	} else {
		end()
	}
}
