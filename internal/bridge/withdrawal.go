package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/objects"
)

// withdrawals decides which services stay published in one direction although the broker that they
// come from does not have them any more. A deletion that a watch showed is followed at once. If
// most of what a cluster exports is gone and no watch showed it, the broker was restored or
// emptied, and what was published stays for a while.
type withdrawals struct {
	hold time.Duration
	log  logr.Logger
	// deleted are the deletions that the watch showed, by cluster.
	deleted map[string]*withdrawal.Deletions
	// count returns how many services of a cluster are missing.
	count func(ctx context.Context, cluster string) (withdrawal.Share, error)

	mu     sync.Mutex
	absent map[withdrawn]absence
	shares map[string]*withdrawal.Reading[withdrawal.Share]
}

// newWithdrawals returns what decides about the services of some clusters.
func newWithdrawals(hold time.Duration, log logr.Logger, clusters []string) *withdrawals {
	w := &withdrawals{hold: hold, log: log, deleted: map[string]*withdrawal.Deletions{}}
	for _, id := range clusters {
		w.deleted[id] = &withdrawal.Deletions{}
	}
	return w
}

// changed records that the export of a service was added, or that a watch showed its deletion.
func (w *withdrawals) changed(service types.NamespacedName, cluster string, obj client.Object, deleted bool) {
	if d := w.deleted[cluster]; d != nil {
		d.Changed(service, cluster, obj, deleted)
	}
}

// withdrawn is a service of a cluster.
type withdrawn struct {
	service types.NamespacedName
	cluster string
}

// absence is what is missing of a service, since when, and whether its withdrawal is held.
type absence struct {
	what  loss
	since time.Time
	held  bool
}

// judge reports whether a service of a cluster stays published although it is missing, and when to
// decide again. read is when reading the service's objects began.
func (w *withdrawals) judge(
	ctx context.Context, service types.NamespacedName, cluster string, missing loss, read time.Time,
) (keep bool, recheck time.Duration, err error) {
	key := withdrawn{service, cluster}
	if missing == lossNone {
		w.forget(key)
		w.deleted[cluster].Forget(service, read)
		return false, 0, nil
	}
	if _, seen := w.deleted[cluster].Of(service, cluster); seen {
		w.forget(key)
		return false, 0, nil
	}
	now := time.Now()
	a := w.begin(key, missing, now)
	if left := withdrawal.Settle - now.Sub(a.since); left > 0 {
		return true, left, nil
	}
	if !a.held {
		share, err := w.share(cluster).After(ctx, now.Add(-withdrawal.Fresh))
		if err != nil || !share.IsMost() {
			return err != nil, 0, err
		}
		w.log.Info("holding a withdrawal: most of what the cluster exports is gone, and the bridge saw no user delete it",
			"cluster", cluster, "service", service.String(), "hold", w.hold.String())
		w.markHeld(key)
	}
	left := withdrawal.Remaining(w.hold, a.since, now)
	return left > 0, left, nil
}

// loss is what a source lacks of a service that was published.
type loss int

const (
	lossNone loss = iota
	lossOfEndpoints
	lossOfExport
)

// lossOf returns what is missing of a cluster's service at its source: nothing, all of its
// endpoints, or the export itself. A broker that was restored is read again kind by kind, so the
// endpoints may vanish seconds before the export does.
func lossOf(published, exported, publishedEndpoints, hasEndpoints bool) loss {
	switch {
	case !published:
		return lossNone
	case !exported:
		return lossOfExport
	case publishedEndpoints && !hasEndpoints:
		return lossOfEndpoints
	}
	return lossNone
}

// begin returns the absence of a service. If more of it is missing than before, it begins again:
// what was counted then is not all.
func (w *withdrawals) begin(key withdrawn, missing loss, now time.Time) absence {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, known := w.absent[key]
	if !known || (a.what < missing && !a.held) {
		a = absence{what: missing, since: now}
		if w.absent == nil {
			w.absent = map[withdrawn]absence{}
		}
		w.absent[key] = a
	}
	return a
}

func (w *withdrawals) markHeld(key withdrawn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.absent[key]
	a.held = true
	w.absent[key] = a
}

func (w *withdrawals) forget(key withdrawn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.absent, key)
}

func (w *withdrawals) share(cluster string) *withdrawal.Reading[withdrawal.Share] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shares == nil {
		w.shares = map[string]*withdrawal.Reading[withdrawal.Share]{}
	}
	if w.shares[cluster] == nil {
		w.shares[cluster] = &withdrawal.Reading[withdrawal.Share]{
			Read: func(ctx context.Context) (withdrawal.Share, error) { return w.count(ctx, cluster) },
		}
	}
	return w.shares[cluster]
}

// side is what a broker has of the services of a cluster.
type side struct {
	services  []types.NamespacedName
	endpoints map[types.NamespacedName]bool // those with slices
}

// missingOf counts the published services of a cluster that its source does not have, or not with
// endpoints.
func missingOf(cluster string, published, source side, deleted *withdrawal.Deletions) withdrawal.Share {
	share, exported := withdrawal.Share{Total: len(published.services)}, setOf(source.services)
	for _, key := range published.services {
		_, seen := deleted.Of(key, cluster)
		if !seen && lossOf(true, exported[key], published.endpoints[key], source.endpoints[key]) != lossNone {
			share.Missing++
		}
	}
	return share
}

// countOnSeamark counts the services of a Lighthouse cluster that Seamark's broker has and
// Lighthouse's does not.
func (b *bridge) countOnSeamark(w *withdrawals) func(context.Context, string) (withdrawal.Share, error) {
	return func(ctx context.Context, cluster string) (withdrawal.Share, error) {
		published, err := b.seamarkSide(ctx, cluster)
		if err != nil {
			return withdrawal.Share{}, err
		}
		source, err := b.lighthouseSide(ctx, byForeign, cluster)
		return missingOf(cluster, published, source, w.deleted[cluster]), err
	}
}

// countOnLighthouse counts the services of a Seamark cluster that Lighthouse's broker has and
// Seamark's does not.
func (b *bridge) countOnLighthouse(w *withdrawals) func(context.Context, string) (withdrawal.Share, error) {
	return func(ctx context.Context, cluster string) (withdrawal.Share, error) {
		published, err := b.lighthouseSide(ctx, byBridged, cluster)
		if err != nil {
			return withdrawal.Share{}, err
		}
		source, err := b.seamarkSide(ctx, cluster)
		return missingOf(cluster, published, source, w.deleted[cluster]), err
	}
}

// seamarkSide returns what Seamark's broker has of the services of a cluster.
func (b *bridge) seamarkSide(ctx context.Context, cluster string) (side, error) {
	records, endpoints := &v1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{}
	of := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: cluster}
	if err := b.seamark.List(ctx, records, of, client.UnsafeDisableDeepCopy); err != nil {
		return side{}, fmt.Errorf("list the records of cluster %s: %w", cluster, err)
	}
	if err := b.seamark.List(ctx, endpoints, of, client.UnsafeDisableDeepCopy); err != nil {
		return side{}, fmt.Errorf("list the slices of cluster %s: %w", cluster, err)
	}
	return sideOf(records, endpoints, objects.ServiceOf), nil
}

// lighthouseSide returns what Lighthouse's broker has of the services of a cluster.
func (b *bridge) lighthouseSide(ctx context.Context, index, cluster string) (side, error) {
	imports, endpoints := &mcsv1alpha1.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	of := client.MatchingFields{index: cluster}
	if err := b.lighthouse.List(ctx, imports, of, client.UnsafeDisableDeepCopy); err != nil {
		return side{}, fmt.Errorf("list the ServiceImports of cluster %s: %w", cluster, err)
	}
	if err := b.lighthouse.List(ctx, endpoints, of, client.UnsafeDisableDeepCopy); err != nil {
		return side{}, fmt.Errorf("list the slices of cluster %s on Lighthouse's broker: %w", cluster, err)
	}
	return sideOf(imports, endpoints, lighthouseService), nil
}

// sideOf returns the services of lists of exports and of slices.
func sideOf(exports, endpoints client.ObjectList, serviceOf func(metav1.Object) (types.NamespacedName, bool)) side {
	out := side{endpoints: map[types.NamespacedName]bool{}}
	each := func(list client.ObjectList, do func(types.NamespacedName)) {
		_ = meta.EachListItem(list, func(o runtime.Object) error { // it returns no error
			if obj, isObject := o.(metav1.Object); isObject {
				if key, ok := serviceOf(obj); ok {
					do(key)
				}
			}
			return nil
		})
	}
	each(exports, func(key types.NamespacedName) { out.services = append(out.services, key) })
	each(endpoints, func(key types.NamespacedName) { out.endpoints[key] = true })
	return out
}

func setOf(keys []types.NamespacedName) map[types.NamespacedName]bool {
	out := make(map[types.NamespacedName]bool, len(keys))
	for _, key := range keys {
		out[key] = true
	}
	return out
}
