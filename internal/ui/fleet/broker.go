package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/watch"
)

// brokerLink is the connection to the broker.
type brokerLink struct {
	fleet *Fleet

	mu       sync.Mutex
	state    *survey.Broker
	cache    *watch.Cache
	lastSeen time.Time
	tried    bool
}

// broker returns the broker as it was read last. Its Problem says why it cannot be read now.
func (l *brokerLink) broker() *survey.Broker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *brokerLink) set(b *survey.Broker, change func()) {
	l.mu.Lock()
	l.state, l.tried = b, true
	if change != nil {
		change()
	}
	l.mu.Unlock()
	l.fleet.note(func(p *pending) { p.all, p.common = true, true })
}

func (l *brokerLink) run(ctx context.Context) {
	// Clusters say where the broker is.
	for ctx.Err() == nil && l.fleet.Broker == nil && !l.fleet.anyIdentified() {
		pause(ctx, retryEvery/4)
	}
	for ctx.Err() == nil {
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		failed := *l.broker()
		if failed.Problem == nil || failed.Problem.Error() != err.Error() {
			failed.Problem = err
			l.set(&failed, nil)
		}
		pause(ctx, retryEvery)
		for _, cluster := range l.fleet.links { // the credential may have been renewed
			select {
			case cluster.refresh <- struct{}{}:
			default:
			}
		}
	}
}

// anyIdentified reports whether a cluster was read, or none could be.
func (f *Fleet) anyIdentified() bool {
	tried := 0
	for _, l := range f.links {
		l.mu.Lock()
		ready, attempted := l.state.Problem == nil, l.tried
		l.mu.Unlock()
		if ready {
			return true
		}
		if attempted {
			tried++
		}
	}
	return tried == len(f.links)
}

func (l *brokerLink) open(ctx context.Context) *survey.Broker {
	if target := l.fleet.Broker; target != nil {
		config := watch.Guard(target.Config, watch.Questions{})
		config.Timeout = requestTimeout
		return survey.OpenBroker(ctx, survey.Connection{Config: config}, l.fleet.BrokerNamespace, "context "+target.Context)
	}
	return survey.FindBroker(ctx, l.fleet.clusters(), l.fleet.BrokerNamespace)
}

// session reads and follows the broker until it does not answer any more, and returns why.
func (l *brokerLink) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := l.open(ctx)
	if b.Problem != nil {
		return b.Problem
	}
	live := b.Client
	cache := watch.New(b.Client, l.fleet.scheme, l.changed)
	config := watch.Guard(b.Config, watch.Questions{})
	config.Timeout = 0 // it would end watches
	var kinds []watch.Kind
	for _, obj := range []client.Object{
		&v1alpha1.ClusterSet{}, &v1alpha1.Cluster{}, &coordinationv1.Lease{}, &v1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{},
		&mcsv1beta1.ServiceImport{},
	} {
		kinds = append(kinds, watch.Kind{Object: obj, Namespace: b.Namespace})
	}
	done, err := cache.Feed(ctx, config, kinds)
	if err != nil {
		return err
	}
	defer done.Wait()
	defer cancel()
	syncing, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if err := cache.WaitSynced(syncing); err != nil {
		return err
	}
	b.Client = cache
	l.set(b, func() { l.cache, l.lastSeen = cache, time.Now() })
	for {
		pause(ctx, pingEvery)
		if err := l.ping(ctx, live, b.Namespace); err != nil {
			return err
		}
		l.mu.Lock()
		l.lastSeen = time.Now()
		l.mu.Unlock()
	}
}

// ping returns why the broker does not answer, or does not accept the credential.
func (l *brokerLink) ping(ctx context.Context, live client.Reader, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := live.List(ctx, &v1alpha1.ClusterSetList{}, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return errors.New(objects.ErrorText(err))
	}
	return nil
}

// changed notes what an object of the broker means for services.
func (l *brokerLink) changed(obj client.Object) {
	switch obj.(type) {
	case *coordinationv1.Lease: // the engine compares which members are alive
	case *v1alpha1.ExportRecord, *discoveryv1.EndpointSlice, *mcsv1beta1.ServiceImport:
		if key, ok := objects.ServiceOf(obj); ok {
			l.fleet.note(func(p *pending) { p.services[key] = true })
		}
	default:
		l.fleet.note(func(p *pending) { p.all, p.common = true, true })
	}
}
