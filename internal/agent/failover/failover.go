// Package failover makes this cluster stop using clusters that cannot be reached, and use them
// again: it publishes the verdicts of the prober in one object before anything else follows from
// them.
package failover

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

const (
	// minBackoff and maxBackoff bound the pause after a failed write. The nodes wait for it, so it is
	// short at first.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// saveTimeout ends a write that an API server does not answer.
	saveTimeout = 3 * time.Second
)

// Publisher publishes which clusters are unreachable. DNS servers and proxies of this cluster read
// that, and the next leader does. States that it has not published yet do not count here either:
// what was dropped because of a verdict must not come back after a restart.
type Publisher struct {
	// Load reads the value that is published, "" if there is none. Save replaces it.
	Load func(context.Context) (string, error)
	Save func(context.Context, reachable.Unreachables) error
	// IsStale reports whether the lease of a cluster expired.
	IsStale func(cluster string) bool
	// Changed is called with the clusters whose endpoints are to be decided anew.
	Changed func(clusters []string)
	Log     logr.Logger

	mu       sync.Mutex
	restored bool                                   // before, nothing is published or compared
	seen     map[reachable.Key]objects.Reachability // what the prober reported last
	changed  map[string]bool                        // clusters with reports that are not used yet
	used     objects.ReachStates                    // never modified, only replaced
	saved    string                                 // the value that is published
	unsure   bool                                   // whether another value may be published
	wake     chan struct{}
}

// New returns a Publisher. Its exported fields must be set before it is used.
func New() *Publisher {
	return &Publisher{
		seen: map[reachable.Key]objects.Reachability{}, changed: map[string]bool{},
		used: objects.ReachStates{}, wake: make(chan struct{}, 1),
	}
}

// Restore reads what an earlier process published. Those clusters are unreachable until the prober
// reports something else. If it may not be read, there are none.
func (p *Publisher) Restore(ctx context.Context) (reachable.Unreachables, error) {
	value, err := p.Load(ctx)
	switch {
	case apierrors.IsForbidden(err):
		p.Log.Error(err, "cannot read which clusters were unreachable before this agent became active")
	case err != nil:
		return nil, err
	}
	published := reachable.Parse(value)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restored = true
	p.saved = value
	p.awake() // entries that are not valid go, and another client may have changed it meanwhile
	for key, since := range published {
		p.seen[key] = objects.Reachability{Cluster: key.Cluster, Family: key.Family, State: objects.Unreachable, Since: since}
	}
	p.used = statesOf(p.seen)
	return published, nil
}

// States returns the states that count. The caller must not modify them.
func (p *Publisher) States() objects.ReachStates {
	if p == nil {
		return nil // a simulation, which has no sockets
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Report takes new states from the prober. It does not block.
func (p *Publisher) Report(states ...objects.Reachability) {
	p.mu.Lock()
	for _, r := range states {
		key := reachable.Key{Cluster: r.Cluster, Family: r.Family}
		if p.seen[key] = r; r.State == objects.ReachabilityUnknown {
			delete(p.seen, key)
		}
		p.changed[r.Cluster] = true
	}
	p.mu.Unlock()
	p.awake()
}

// Compare checks what is published if the value of a cache differs from what was saved: another
// client may have changed it.
func (p *Publisher) Compare(read string) {
	p.mu.Lock()
	differs := p.restored && read != p.saved
	p.unsure = p.unsure || differs
	p.mu.Unlock()
	if differs {
		p.awake()
	}
}

func (p *Publisher) awake() {
	select {
	case p.wake <- struct{}{}:
	default: // the publisher has not read the last change yet
	}
}

// Run publishes changes until ctx ends. While that fails it tries again, with the states of then.
func (p *Publisher) Run(ctx context.Context) error {
	backoff, logged := minBackoff, ""
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-retry:
		}
		retry = nil
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			if logged != err.Error() {
				logged = err.Error()
				p.Log.Error(err, "cannot publish which clusters are unreachable; retrying")
			}
			retry = time.After(backoff)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff, logged = minBackoff, ""
	}
}

// publish saves the unreachable clusters if they changed, and makes all states count. An agent that
// may not save them goes on without.
func (p *Publisher) publish(ctx context.Context) error {
	p.mu.Lock()
	if !p.restored {
		p.mu.Unlock()
		return nil // Restore wakes it again
	}
	states, unreachable := statesOf(p.seen), unreachablesIn(p.seen)
	reported := p.changed
	p.changed = map[string]bool{}
	p.mu.Unlock()
	err := p.save(ctx, unreachable)
	if err != nil && !apierrors.IsForbidden(err) {
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.Copy(p.changed, reported)
		return err
	}
	p.mu.Lock()
	before := p.used
	p.used = states
	p.mu.Unlock()
	var decide []string
	for _, cluster := range slices.Sorted(maps.Keys(reported)) {
		if verdictsDiffer(before, states, cluster) || p.IsStale(cluster) {
			decide = append(decide, cluster)
		}
	}
	if len(decide) > 0 {
		p.Changed(decide)
	}
	return err
}

// save writes the list if it differs from what is published.
func (p *Publisher) save(ctx context.Context, unreachable reachable.Unreachables) (err error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	want := valueOf(unreachable)
	p.mu.Lock()
	published, unsure := p.saved, p.unsure
	p.mu.Unlock()
	if unsure {
		published, err = p.Load(ctx)
	}
	if err == nil && published != want {
		err = p.Save(ctx, unreachable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsure = err != nil; !p.unsure { // without an answer it is not known what is published
		p.saved = want
	}
	return err
}

// verdictsDiffer reports whether a cluster became unreachable, or ceased to be so, in any family.
func verdictsDiffer(before, after objects.ReachStates, cluster string) bool {
	differs := func(a, b objects.ReachStates) bool {
		for key, state := range a {
			if key.Cluster == cluster && (state == objects.Unreachable) != (b[key] == objects.Unreachable) {
				return true
			}
		}
		return false
	}
	return differs(before, after) || differs(after, before)
}

func statesOf(seen map[reachable.Key]objects.Reachability) objects.ReachStates {
	out := make(objects.ReachStates, len(seen))
	for key, r := range seen {
		out[key] = r.State
	}
	return out
}

func unreachablesIn(seen map[reachable.Key]objects.Reachability) reachable.Unreachables {
	out := reachable.Unreachables{}
	for key, r := range seen {
		if r.State == objects.Unreachable {
			out[key] = r.Since
		}
	}
	return out
}

// valueOf returns the value of the property, "" if there is none.
func valueOf(unreachable reachable.Unreachables) string {
	return reachable.Property(unreachable).Spec.Value
}
