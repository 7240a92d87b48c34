package failover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

var (
	noon    = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	east    = reachable.Key{Cluster: "east", Family: corev1.IPv4Protocol}
	errDown = errors.New("the API server does not answer")
)

// property is what is published, and what happens to requests.
type property struct {
	mu           sync.Mutex
	value        string
	fail         error
	loads, saves int
	log          []string // values and decisions in their order
}

func (p *property) load(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loads++
	return p.value, p.fail
}

func (p *property) save(_ context.Context, unreachable reachable.Unreachables) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saves++
	if p.fail != nil {
		return p.fail
	}
	p.value = valueOf(unreachable)
	p.log = append(p.log, "saved "+p.value)
	return nil
}

func (p *property) set(value string, fail error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value, p.fail = value, fail
}

func (p *property) changed(clusters []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range clusters {
		p.log = append(p.log, "decide "+c)
	}
}

func (p *property) expect(t *testing.T, loads, saves int, want ...string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.log, want) {
		t.Errorf("got %q, want %q", p.log, want)
	}
	if p.loads != loads || p.saves != saves {
		t.Errorf("%d reads and %d writes, want %d and %d", p.loads, p.saves, loads, saves)
	}
	p.log, p.loads, p.saves = nil, 0, 0
}

// start runs a publisher until the test ends.
func start(t *testing.T, on *property, stale ...string) *Publisher {
	t.Helper()
	p := New()
	p.Load, p.Save, p.Changed, p.Log = on.load, on.save, on.changed, logr.Discard()
	p.IsStale = func(cluster string) bool { return slices.Contains(stale, cluster) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

// run runs a publisher that has restored the property.
func run(t *testing.T, on *property, stale ...string) (*Publisher, reachable.Unreachables) {
	t.Helper()
	p := start(t, on, stale...)
	restored, err := p.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, restored
}

func change(key reachable.Key, state objects.ReachState) objects.Reachability {
	return objects.Reachability{Cluster: key.Cluster, Family: key.Family, State: state, Since: noon}
}

const eastGone = "east/IPv4@2026-01-10T12:00:00Z"

func TestVerdictIsPublishedBeforeServicesAreDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{}
		p, _ := run(t, on)
		p.Report(change(east, objects.Reachable))
		on.expect(t, 1, 0) // the first state of a cluster whose lease is live changes nothing
		p.Report(change(east, objects.Unreachable))
		on.expect(t, 0, 1, "saved "+eastGone, "decide east")
		if got := p.States()[east]; got != objects.Unreachable {
			t.Errorf("the state that counts is %s", got)
		}
		p.Compare(eastGone) // the event of its own write
		on.expect(t, 0, 0)
		p.Report(change(east, objects.Reachable))
		on.expect(t, 0, 1, "saved ", "decide east")
	})
}

func TestStatesOfAStaleClusterMatterWithoutAVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{}
		p, _ := run(t, on, "east")
		p.Report(change(east, objects.Reachable))
		on.expect(t, 1, 0, "decide east")
		p.Report(change(east, objects.ReachabilityUnknown))
		on.expect(t, 0, 0, "decide east")
		if len(p.States()) > 0 {
			t.Errorf("states %v of a cluster that is not known", p.States())
		}
	})
}

func TestWriteIsRetriedAndTheLastStateWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{}
		p, _ := run(t, on)
		on.set("", errDown)
		p.Report(change(east, objects.Unreachable))
		north := reachable.Key{Cluster: "north", Family: corev1.IPv6Protocol}
		time.Sleep(time.Second)
		if len(p.States()) > 0 {
			t.Errorf("%v counts before it is published", p.States())
		}
		p.Report(change(north, objects.Unreachable))
		p.Report(change(east, objects.Reachable))
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries := on.loads + on.saves; tries < 15 || tries > 30 {
			t.Errorf("%d tries in a minute", tries)
		}
		on.mu.Lock()
		on.loads, on.saves = 0, 0
		on.mu.Unlock()
		on.set("", nil)
		time.Sleep(maxBackoff)
		on.expect(t, 1, 1, "saved north/IPv6@2026-01-10T12:00:00Z", "decide north")
	})
}

// A write whose answer was lost may have been made.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{}
		p, _ := run(t, on)
		on.set("", errDown)
		p.Report(change(east, objects.Unreachable))
		synctest.Wait()
		on.set(eastGone, nil)
		time.Sleep(minBackoff)
		on.expect(t, 2, 1, "decide east")
		on.set(eastGone, errDown)
		p.Report(change(east, objects.Reachable))
		synctest.Wait()
		on.set(eastGone, nil)
		time.Sleep(minBackoff)
		on.expect(t, 1, 2, "saved ", "decide east")
	})
}

func TestRestoredVerdictCountsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{value: eastGone}
		p, restored := run(t, on)
		if since := restored[east]; !since.Equal(noon) || p.States()[east] != objects.Unreachable {
			t.Errorf("restored %v, states %v", restored, p.States())
		}
		on.expect(t, 1, 0)
		p.Report(change(east, objects.ReachabilityUnknown)) // the cluster has left
		on.expect(t, 0, 1, "saved ", "decide east")
	})
}

// The reconciler that compares may begin before the property is restored.
func TestNothingIsWrittenBeforeTheVerdictsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{value: eastGone, fail: errDown}
		p := start(t, on)
		p.Compare(eastGone)
		if _, err := p.Restore(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("restored although nothing can be read: %v", err)
		}
		time.Sleep(time.Minute)
		on.expect(t, 1, 0)
		on.set(eastGone, nil)
		if restored, err := p.Restore(t.Context()); err != nil || !restored.Has(east) {
			t.Errorf("restored %v (%v)", restored, err)
		}
		on.expect(t, 1, 0)
	})
}

func TestChangesOfOthersAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{value: "nonsense," + eastGone}
		p, _ := run(t, on)
		on.expect(t, 1, 1, "saved "+eastGone) // entries that are not valid go at the start
		for _, changed := range []string{"", "west/IPv4@2026-01-10T12:00:00Z", "nonsense"} {
			on.set(changed, nil)
			p.Compare(changed)
			on.expect(t, 1, 1, "saved "+eastGone)
		}
		p.Compare("an old value of the cache")
		on.expect(t, 1, 0)
		p.Report(change(east, objects.Reachable))
		on.expect(t, 0, 1, "saved ", "decide east")
		on.set(eastGone, nil)
		p.Compare(eastGone)
		on.expect(t, 1, 1, "saved ")
	})
}

// An agent of which the role is that of an earlier version decides without the property.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &property{}
		p, _ := run(t, on)
		on.set("", apierrors.NewForbidden(schema.GroupResource{Resource: "clusterproperties"}, "x", nil))
		p.Report(change(east, objects.Unreachable))
		on.expect(t, 1, 1, "decide east")
		if p.States()[east] != objects.Unreachable {
			t.Error("the verdict does not count")
		}
		on.set("", nil)
		time.Sleep(maxBackoff)
		on.expect(t, 1, 1, "saved "+eastGone)
	})
}

func TestReportDoesNotBlock(*testing.T) {
	p := New() // does not run
	for range 1000 {
		p.Report(change(east, objects.Unreachable))
	}
}

func TestWithoutAPublisherNothingIsKnown(t *testing.T) {
	var p *Publisher
	if len(p.States()) > 0 {
		t.Error("states")
	}
}
