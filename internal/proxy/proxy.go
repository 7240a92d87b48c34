// Package proxy is the nftables data plane of a node. It watches the imported services of its
// cluster and programs the kernel to send connections to a clusterset IP to one of the service's
// endpoints. It reads only the local API server and writes nothing to it.
//
// A packet never passes this process: the kernel handles it by the rules that package kernel
// describes, in which a clusterset IP is called a VIP.
//
// A change of an object comes in at caches.go, which marks its service as changed. The loop in
// proxy.go reads the service's objects and passes them on: package model selects the endpoints for
// this node, claims.go resolves clusterset IPs that two services have, package ruleset computes the
// elements to add and to delete, and package kernel applies them in one transaction. syncer.go
// connects these steps. programmed.go answers what the kernel holds for a service.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/daemon/kinds"
	"github.com/seamark-dev/seamark/internal/daemon/memory"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/internal/proxy/kernel"
	"github.com/seamark-dev/seamark/internal/proxy/model"
	"github.com/seamark-dev/seamark/internal/proxy/programmed"
)

// Options are the proxy's settings.
type Options struct {
	daemon.Options
	// NodeName is the Node this process runs on. Without it no endpoint counts as near, and
	// internalTrafficPolicy Local has no endpoints.
	NodeName string
	// Masquerade selects the clients whose source address is changed.
	Masquerade kernel.Masquerade
	// FailoverOnly leaves services to another data plane, such as kube-proxy, but for those of which
	// a cluster is unreachable: see takeover. It implies CleanupOnExit: rules that stayed behind would
	// hide those of the other data plane.
	FailoverOnly bool
	// CleanupOnExit removes the table when ctx ends. Otherwise the table stays and connections go
	// on while this process does not run.
	CleanupOnExit bool
}

const (
	// fullSyncInterval is how often the whole table is compared, to restore what other programs
	// changed.
	fullSyncInterval = 10 * time.Minute
	// rulesCheckInterval is how often the rules are compared, without the services: a rule that is
	// missing affects all of them.
	rulesCheckInterval = 30 * time.Second
	// minSyncPause is the shortest pause between two syncs. After a longer sync the pause is as
	// long as the sync was.
	minSyncPause = 10 * time.Millisecond
	// releaseAfter is after how many added elements free memory goes back to the system.
	releaseAfter = 10_000
	// minRetryDelay and maxRetryDelay bound the delay after a failed sync, which doubles each time.
	minRetryDelay = 200 * time.Millisecond
	maxRetryDelay = 10 * time.Second
	// unhealthyAfter is how long changes may wait for the kernel before the liveness probe fails.
	unhealthyAfter = 2 * time.Minute
)

// proxy is the process: the caches, the changes not yet synced, and the Syncer.
type proxy struct {
	Options
	manager manager.Manager
	syncer  *Syncer

	mu           sync.Mutex
	changed      map[types.NamespacedName]struct{}
	allChanged   bool      // the node's location changed: rebuild all services
	reachChanged bool      // which clusters are unreachable changed: rebuild the services of those
	pendingSince time.Time // since when changes wait for a sync; zero if none do
	synced       bool
	zone         string // the node's labels that were used last
	region       string
	wake         chan struct{}
	requests     chan func() // run by the loop, which alone may use the syncer

	// Used by the loop only.
	takeover    takeover
	location    model.Location
	unreachable reachable.Unreachables
	lastSync    time.Time
	failedSyncs int
}

// Run runs the proxy until ctx ends. It fails if it cannot start: with an unusable kubeconfig, or
// if a listen address is in use. If the API server is unreachable or the kernel refuses a
// transaction, it retries; until the first sync the process is not ready.
func Run(ctx context.Context, o Options) error {
	memory.RespectLimit()
	p := &proxy{
		Options: o, syncer: NewSyncer(kernel.Open(0, o.Masquerade), kernel.OpenConntrack(0), o.Log), changed: map[types.NamespacedName]struct{}{},
		wake: make(chan struct{}, 1), requests: make(chan func()), takeover: takeover{},
	}
	p.syncer.HandsOver = o.FailoverOnly
	if err := p.connect(ctx); err != nil {
		return err
	}
	p.Log.Info("starting")
	err := p.manager.Start(ctx)
	if (p.CleanupOnExit || p.FailoverOnly) && ctx.Err() != nil {
		return errors.Join(err, p.syncer.Remove())
	}
	return err
}

// Cleanup removes the table of this network namespace, if there is one.
func Cleanup() error {
	return kernel.Open(0, kernel.MasqueradeNone).Remove()
}

func (p *proxy) connect(ctx context.Context) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	secure, err := selfSigned()
	if err != nil {
		return err
	}
	local := rest.CopyConfig(p.Local)
	local.Wrap(kinds.New(func() {}).Wrap)
	p.manager, err = ctrl.NewManager(local, ctrl.Options{
		Scheme:         scheme,
		MapperProvider: staticMapper,
		Cache:          cacheOptions(p.NodeName),
		Logger:         p.Log,
		Metrics: metricsserver.Options{
			BindAddress:   p.MetricsAddress,
			SecureServing: true,
			TLSOpts:       []func(*tls.Config){secure},
			ExtraHandlers: map[string]http.Handler{programmed.Path: http.HandlerFunc(p.serveProgrammed)},
			// The node's network is open to every pod that can reach the node.
			FilterProvider: newGate,
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

// loop applies changes to the kernel. Changes that arrive during a transaction are collected for
// the next one.
func (p *proxy) loop(ctx context.Context) error {
	if !p.manager.GetCache().WaitForCacheSync(ctx) {
		return nil // the process ends
	}
	p.markAllChanged()
	full, rules := time.NewTicker(fullSyncInterval), time.NewTicker(rulesCheckInterval)
	defer full.Stop()
	defer rules.Stop()
	var pace pacer
	for {
		started := time.Now()
		wait, err := p.sync(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			metricErrors.Inc()
			p.failedSyncs++
		}
		next := pace.after(time.Since(started), wait, err)
		if err != nil {
			p.Log.Error(err, "cannot sync the kernel", "retry in", next.pause.String())
		}
		if !p.waitForWork(ctx, next, full.C, rules.C) {
			return nil
		}
	}
}

// waitForWork waits until a sync is needed and may begin, and serves requests in the meantime. It
// returns false when the process ends.
func (p *proxy) waitForWork(ctx context.Context, next schedule, full, rules <-chan time.Time) bool {
	earliest := time.NewTimer(next.pause)
	defer earliest.Stop()
	var due <-chan time.Time
	if next.due > 0 {
		due = time.After(next.due)
	}
	var needed, allowed bool
	for !needed || !allowed {
		select {
		case <-ctx.Done():
			return false
		case <-earliest.C:
			allowed = true
		case <-p.wake:
			needed = true
		case <-due:
			needed = true
		case <-full:
			p.syncer.RequireFullSync()
			needed = true
		case <-rules:
			p.checkRules()
		case serve := <-p.requests:
			serve()
		}
	}
	return true
}

// checkRules requests a full sync if other programs changed the rules.
func (p *proxy) checkRules() {
	damage, err := p.syncer.CheckRules()
	if err != nil {
		damage = err.Error()
	}
	if damage != "" {
		p.repair(damage)
	}
}

// repair makes the loop compare the whole table and restore it.
func (p *proxy) repair(damage string) {
	p.Log.Info("the kernel's table was changed by another program", "difference", damage)
	p.syncer.RequireFullSync()
	p.changeAndWake(func() {})
}

// sync rebuilds the changed services and applies the differences to the kernel.
// It returns after how long another sync is needed, to delete stale connections or to hand services
// over; zero if none is.
func (p *proxy) sync(ctx context.Context) (wait time.Duration, err error) {
	started := time.Now()
	names, err := p.takeChanged(ctx)
	if err != nil {
		return 0, err
	}
	for _, name := range p.takeover.over(started) {
		names[name] = struct{}{}
	}
	takenOver := len(p.takeover)
	for name := range names {
		if err := p.updateService(ctx, name); err != nil {
			p.markChanged(slices.Collect(maps.Keys(names))...) // rebuilding a service twice does no harm
			return 0, err
		}
	}
	o, err := p.syncer.Sync()
	if err != nil {
		return 0, err
	}
	observe(p.syncer, o, time.Since(started).Seconds())
	if now := len(p.takeover); now != takenOver {
		p.Log.Info("services of unreachable clusters are taken over from the cluster's own data plane until that has followed",
			"taken over", now, "before", takenOver)
	}
	p.lastSync = time.Now()
	metricLastSync.SetToCurrentTime()
	p.markSynced()
	if o.Added > releaseAfter {
		debug.FreeOSMemory() // a large transaction leaves garbage that the runtime would keep for minutes
	}
	log := p.Log.V(4)
	if o.Full || o.DeletedFlows > 0 {
		log = p.Log
	}
	log.Info("synced", "full", o.Full, "replaced", o.Replaced, "services", len(names), "added", o.Added, "deleted", o.Deleted,
		"deleted connections", o.DeletedFlows, "took", time.Since(started).String())
	if o.FlowsError != nil {
		// The rules are right, so this process stays ready.
		p.Log.Error(o.FlowsError, "cannot delete stale tracked connections", "retry in", o.FlowsWait.String())
	}
	return earlier(o.FlowsWait, p.takeover.wait(time.Now())), nil
}

// takeChanged returns the services to rebuild: those that changed, those of clusters that became
// unreachable or reachable again, or all of them if the node's location changed.
func (p *proxy) takeChanged(ctx context.Context) (map[types.NamespacedName]struct{}, error) {
	p.mu.Lock()
	names, all, reach := p.changed, p.allChanged, p.reachChanged
	p.changed, p.allChanged, p.reachChanged = map[types.NamespacedName]struct{}{}, false, false
	p.mu.Unlock()
	if reach || all {
		if err := p.updateUnreachable(ctx, names); err != nil {
			p.changeAndWake(func() {
				p.reachChanged, p.allChanged = true, p.allChanged || all
				maps.Copy(p.changed, names)
			})
			return nil, err
		}
	}
	if !all {
		return names, nil
	}
	location, err := p.readLocation(ctx)
	if err == nil {
		p.location = location
		err = p.addAllNames(ctx, names)
	}
	if err == nil {
		var ranges []netip.Prefix
		if !p.FailoverOnly { // the addresses of another data plane are not refused
			ranges, err = p.readRanges(ctx)
		}
		p.syncer.SetRanges(ranges)
	}
	if err != nil {
		p.markAllChanged()
	}
	return names, err
}

// updateUnreachable reads which clusters are unreachable, and adds the services that may change
// because of that.
func (p *proxy) updateUnreachable(ctx context.Context, names map[types.NamespacedName]struct{}) error {
	unreachable, err := p.readUnreachable(ctx)
	if err != nil {
		return err
	}
	changed := p.unreachable.Changed(unreachable)
	if len(changed) == 0 {
		return nil
	}
	if err := p.addAffected(ctx, changed, names); err != nil {
		return err
	}
	p.unreachable = unreachable
	p.Log.Info("other clusters became unreachable or reachable", "unreachable", reachable.Property(unreachable).Spec.Value)
	return nil
}

func (p *proxy) updateService(ctx context.Context, name types.NamespacedName) error {
	si, endpoints, err := p.readService(ctx, name)
	if err != nil {
		return err
	}
	var created time.Time
	if si != nil {
		created = si.CreationTimestamp.Time
	}
	usable := reachable.LeaveOut(endpoints, p.unreachable)
	built := model.Build(si, usable, p.location)
	if p.FailoverOnly {
		leavesOut := !slices.Equal(usable, endpoints)
		switch taken, first := p.takeover.update(name, leavesOut, time.Now()); {
		case !taken:
			built = model.Result{}
		case first:
			p.syncer.TakeOver(name, model.Build(si, endpoints, p.location).Service)
		}
	}
	p.syncer.Set(name, created, built)
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

func (p *proxy) markReachabilityChanged() { p.changeAndWake(func() { p.reachChanged = true }) }

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

// markSynced records that the kernel has all changes except those that arrived during the sync.
func (p *proxy) markSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	if len(p.changed) == 0 && !p.allChanged && !p.reachChanged {
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
		return fmt.Errorf("changes have been waiting for the kernel since %s", p.pendingSince.Format(time.RFC3339))
	}
	return nil
}

// reader returns the cache. Callers must not change the objects they get from it.
func (p *proxy) reader() client.Reader { return p.manager.GetCache() }
