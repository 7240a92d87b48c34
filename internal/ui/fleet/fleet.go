// Package fleet keeps the state of the page up to date: it watches the clusters and their broker,
// has services explained again whose objects changed, and publishes the differences. All viewers
// share one Fleet, so that API servers and workloads are asked the same for one as for ten.
package fleet

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/internal/ui/watch"
)

// Target is an API server to look into.
type Target struct {
	// Context is the name of its context; empty for the current one.
	Context string
	Config  *rest.Config
}

// Options of a fleet.
type Options struct {
	// Clusters are the clusters to look into.
	Clusters []Target
	// Broker is how the broker is read; nil to use the credential of a member.
	Broker *Target
	// BrokerNamespace is its namespace, if it is not read with the credential of a member.
	BrokerNamespace string
	// Servers are the DNS servers to ask.
	Servers survey.Servers
	// Questions are what may be asked beside reading objects.
	Questions watch.Questions
	// ProxyToken returns the token with which proxies are asked; if nil, one is requested where
	// Questions allow that.
	ProxyToken func(context.Context) (string, error)
	// Publish is called with each difference and the snapshot that it leads to, one at a time.
	Publish func(state.Delta, *state.Snapshot)
}

// Fleet is a clusterset as the page sees it.
type Fleet struct {
	Options
	scheme *runtime.Scheme
	links  []*link
	broker *brokerLink
	// wake says that there is something to do.
	wake chan struct{}

	mu sync.Mutex
	// pending is what changed and was not looked at yet.
	pending pending
	// answers are what workloads said about services, by service and cluster.
	answers map[types.NamespacedName]map[string]answer
	// viewed is when a viewer asked for a service last.
	viewed map[types.NamespacedName]time.Time
	// checks are the last results of doctor; reached is how agents reach other clusters.
	checks  []doctor.Result
	reached map[string][]objects.Reachability
	reader  *survey.ServiceReader
	now     *state.Snapshot
}

// pending is what changed since the last look.
type pending struct {
	services   map[types.NamespacedName]bool
	namespaces map[string]bool
	// all means every service, common that what services have in common may have changed.
	all, common bool
	entries     []state.Entry
}

// New returns a fleet. It does not read anything before Run.
func New(o Options) *Fleet {
	f := &Fleet{
		Options: o, scheme: brokeradmin.NewScheme(), wake: make(chan struct{}, 1), answers: map[types.NamespacedName]map[string]answer{},
		viewed: map[types.NamespacedName]time.Time{}, reached: map[string][]objects.Reachability{}, now: &state.Snapshot{At: time.Now()},
	}
	f.pending.reset()
	for _, target := range o.Clusters {
		f.links = append(f.links, newLink(f, target))
	}
	f.broker = &brokerLink{fleet: f, state: &survey.Broker{Problem: errConnecting}}
	return f
}

func (p *pending) reset() {
	*p = pending{services: map[types.NamespacedName]bool{}, namespaces: map[string]bool{}}
}

// Run follows the clusters until the context ends.
func (f *Fleet) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, l := range f.links {
		running.Go(func() { l.run(ctx) })
	}
	running.Go(func() { f.broker.run(ctx) })
	running.Go(func() { f.askLoop(ctx) })
	running.Go(func() { f.checkLoop(ctx) })
	running.Go(func() { f.reachLoop(ctx) })
	f.engine(ctx)
	running.Wait()
}

// note records a change and wakes the engine.
func (f *Fleet) note(change func(*pending)) {
	f.mu.Lock()
	change(&f.pending)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// clusters returns the clusters as they are now.
func (f *Fleet) clusters() []*survey.Cluster {
	out := make([]*survey.Cluster, len(f.links))
	for i, l := range f.links {
		out[i] = l.cluster()
	}
	return out
}

// View has the workloads of a service asked soon, because a viewer looks at it.
func (f *Fleet) View(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.viewed[key] = time.Now()
}

// Explain explains one service from what was read and asked so far. ok is false before anything was
// read.
func (f *Fleet) Explain(ctx context.Context, key types.NamespacedName) (report explain.Report, ok bool) {
	f.mu.Lock()
	reader := f.reader
	f.mu.Unlock()
	if reader == nil {
		return explain.Report{}, false
	}
	in := f.input(ctx, reader, key)
	return explain.Explain(in), true
}

// input reads the objects of a service, and adds what workloads said about it.
func (f *Fleet) input(ctx context.Context, reader *survey.ServiceReader, key types.NamespacedName) explain.Input {
	in := reader.Read(ctx, key)
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.answers[key]
	for i := range in.Clusters {
		if a, ok := known[in.Clusters[i].ID]; ok {
			a.addTo(&in.Clusters[i])
		}
	}
	return in
}
