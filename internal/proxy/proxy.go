// Package proxy is the nftables data plane of a node: it follows the imported services of its cluster and keeps the kernel sending
// their clients to the endpoints they should reach.
//
// The parts, from the inside out: ruleset (which elements, which changes), model (which endpoints), kernel (netlink) and here the
// Syncer, which holds them together, and the process around it. Only the local API server is read, and nothing is written to it.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// Options are the proxy's settings.
type Options struct {
	daemon.Options
	// NodeName is the Node this process runs on. Without it nothing counts as near, and internalTrafficPolicy Local finds nothing.
	NodeName string
	// CleanupOnExit removes the table when ctx ends. Otherwise it stays and traffic flows on while nobody is here.
	CleanupOnExit bool
}

const (
	// verifyEvery is how often everything in the kernel is compared, for what others did to our table.
	fullSyncInterval = 10 * time.Minute
	// retryAfter and retryMost bound the wait after a failed sync.
	minRetryDelay = 200 * time.Millisecond
	maxRetryDelay = 10 * time.Second
	// unhealthyAfter is how long changes may wait for the kernel before the process counts as broken.
	unhealthyAfter = 2 * time.Minute
)

// proxy is the process: the caches, what changed in them, and the Syncer.
type proxy struct {
	Options
	manager manager.Manager
	syncer  *Syncer

	mu           sync.Mutex
	changed      map[types.NamespacedName]struct{}
	allChanged   bool      // the node's place changed: everything has to be decided anew
	pendingSince time.Time // since when something waits; zero when nothing does
	synced       bool
	zone         string // the labels that were last used
	region       string
	wake         chan struct{}
	requests     chan func() // questions about the syncer, which only the loop may touch

	location model.Location // of the loop
}

// Run works until ctx ends. It returns an error when it cannot start: a kubeconfig that does not work, or an address in use. An API
// server that is away and a kernel that refuses are no reason to end: the process is not ready then, says why, and tries on.
func Run(ctx context.Context, o Options) error {
	table, err := kernel.Open(0)
	if err != nil {
		return err
	}
	p := &proxy{
		Options: o, syncer: NewSyncer(table, o.Log), changed: map[types.NamespacedName]struct{}{}, wake: make(chan struct{}, 1),
		requests: make(chan func()),
	}
	if err := p.connect(ctx); err != nil {
		return err
	}
	p.Log.Info("starting")
	err = p.manager.Start(ctx)
	if p.CleanupOnExit && ctx.Err() != nil {
		return errors.Join(err, p.syncer.Remove())
	}
	return err
}

// Cleanup removes the table of this network namespace, if there is one.
func Cleanup() error {
	table, err := kernel.Open(0)
	if err != nil {
		return err
	}
	return table.Remove()
}

func (p *proxy) connect(ctx context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	p.manager, err = ctrl.NewManager(p.Local, ctrl.Options{
		Scheme:         scheme,
		MapperProvider: staticMapper,
		Cache:          cacheOptions(p.NodeName),
		Logger:         p.Log,
		Metrics: metricsserver.Options{
			BindAddress:   p.MetricsAddress,
			ExtraHandlers: map[string]http.Handler{programmed.Path: http.HandlerFunc(p.serveProgrammed)},
		},
		HealthProbeBindAddress: p.ProbeAddress,
		PprofBindAddress:       p.PprofAddress,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := p.watch(ctx); err != nil {
		return err
	}
	return errors.Join(
		p.manager.Add(manager.RunnableFunc(p.loop)),
		p.manager.AddHealthzCheck("process", healthz.Ping),
		p.manager.AddHealthzCheck("kernel", p.healthy),
		p.manager.AddReadyzCheck("synced", p.ready),
	)
}

// loop brings changes to the kernel. While one transaction runs, further changes gather for the next.
func (p *proxy) loop(ctx context.Context) error {
	if !p.manager.GetCache().WaitForCacheSync(ctx) {
		return nil // the process ends
	}
	p.markAllChanged()
	verify := time.NewTicker(fullSyncInterval)
	defer verify.Stop()
	retry := minRetryDelay
	for {
		var again <-chan time.Time
		if err := p.sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			metricErrors.Inc()
			p.Log.Error(err, "cannot bring the kernel up to date", "again in", retry.String())
			again = time.After(retry)
			retry = min(2*retry, maxRetryDelay)
		} else {
			retry = minRetryDelay
		}
		if !p.waitForWork(ctx, again, verify.C) {
			return nil
		}
	}
}

// rest waits until there is something to sync and answers questions meanwhile. It returns false when the process ends.
func (p *proxy) waitForWork(ctx context.Context, again, verify <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.wake:
		case <-again:
		case <-verify:
			p.syncer.RequireFullSync()
		case answer := <-p.requests:
			answer()
			continue
		}
		return true
	}
}

// sync decides about what changed and applies it.
func (p *proxy) sync(ctx context.Context) error {
	started := time.Now()
	names, err := p.takeChanged(ctx)
	if err != nil {
		return err
	}
	for name := range names {
		if err := p.updateService(ctx, name); err != nil {
			p.markChanged(slices.Collect(maps.Keys(names))...) // decided or not: deciding twice does no harm
			return err
		}
	}
	o, err := p.syncer.Sync()
	if err != nil {
		return err
	}
	observe(p.syncer, o, time.Since(started).Seconds())
	metricLastSync.SetToCurrentTime()
	p.markSynced()
	if o.Full || o.DeletedFlows > 0 {
		p.Log.Info("synced", "full", o.Full, "added", o.Added, "deleted", o.Deleted, "forgotten UDP flows", o.DeletedFlows, "took", time.Since(started).String())
	} else {
		p.Log.V(4).Info("synced", "services", len(names), "added", o.Added, "deleted", o.Deleted, "took", time.Since(started).String())
	}
	return nil
}

// take returns the services to decide about: those that changed, or all of them after the node's place changed.
func (p *proxy) takeChanged(ctx context.Context) (map[types.NamespacedName]struct{}, error) {
	p.mu.Lock()
	names, all := p.changed, p.allChanged
	p.changed, p.allChanged = map[types.NamespacedName]struct{}{}, false
	p.mu.Unlock()
	if !all {
		return names, nil
	}
	here, err := p.readLocation(ctx)
	if err == nil {
		p.location = here
		err = p.addAllNames(ctx, names)
	}
	if err != nil {
		p.markAllChanged()
	}
	return names, err
}

func (p *proxy) updateService(ctx context.Context, name types.NamespacedName) error {
	si, endpoints, err := p.readService(ctx, name)
	if err != nil {
		return err
	}
	var since time.Time
	if si != nil {
		since = si.CreationTimestamp.Time
	}
	p.syncer.Set(name, since, model.Build(si, endpoints, p.location))
	return nil
}

func (p *proxy) markChanged(names ...types.NamespacedName) {
	p.changeAndWake(func() {
		for _, name := range names {
			p.changed[name] = struct{}{}
		}
	})
}

func (p *proxy) markAllChanged() { p.changeAndWake(func() { p.allChanged = true }) }

func (p *proxy) changeAndWake(change func()) {
	p.mu.Lock()
	change()
	if p.pendingSince.IsZero() {
		p.pendingSince = time.Now()
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// done notes that the kernel has everything but what came in meanwhile.
func (p *proxy) markSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	if len(p.changed) == 0 && !p.allChanged {
		p.pendingSince = time.Time{}
	} else {
		p.pendingSince = time.Now()
	}
}

func (p *proxy) ready(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return errNotSynced
	}
	return nil
}

func (p *proxy) healthy(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced && !p.pendingSince.IsZero() && time.Since(p.pendingSince) > unhealthyAfter {
		return fmt.Errorf("changes wait for the kernel since %s", p.pendingSince.Format(time.RFC3339))
	}
	return nil
}

// reader is the cache: what it returns must not be changed.
func (p *proxy) reader() client.Reader { return p.manager.GetCache() }
