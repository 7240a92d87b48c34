package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/objects"
)

// conflictDelay is when a service is reconciled again after another process wrote an object first.
// The watch mostly shows that earlier.
const conflictDelay = 2 * time.Second

// reconciler brings both brokers up to date about one service at a time.
type reconciler struct {
	*bridge
	// synced is true when both caches have been filled. Before, nothing is written.
	synced atomic.Bool
	writer *apply.Writer // of Lighthouse's broker
	// fromLighthouse and fromSeamark decide which withdrawals are held in each direction.
	fromLighthouse, fromSeamark *withdrawals

	mu sync.Mutex
	// skipped is why services of Seamark clusters are not bridged, as it was logged.
	skipped map[withdrawn]string
}

// gathered is all that was read about one service.
type gathered struct {
	key        types.NamespacedName
	read       time.Time
	records    []*v1alpha1.ExportRecord // all of them
	admitted   []*v1alpha1.ExportRecord
	slices     []*discoveryv1.EndpointSlice
	lighthouse State
}

// Reconcile brings both brokers up to date about one service.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.synced.Load() {
		return ctrl.Result{}, nil // all services are reconciled when both brokers have been read
	}
	if !r.cachesAreCurrent(ctx, key) {
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	g, err := r.gather(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	var recheck time.Duration
	for _, c := range r.members {
		if c.usable() {
			next, err := r.publishToSeamark(ctx, c, g)
			recheck, errs = sooner(recheck, next), append(errs, err)
		}
	}
	next, err := r.publishToLighthouse(ctx, g)
	err = errors.Join(append(errs, err)...)
	if objects.IsWriteConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: sooner(recheck, next)}, err
}

// sooner returns the shorter of two times to wait. Zero means that there is nothing to wait for.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// cachesAreCurrent reports whether the caches have all that was written for a service.
func (r *reconciler) cachesAreCurrent(ctx context.Context, key types.NamespacedName) bool {
	return r.writer.CacheIsCurrent(ctx, key) &&
		!slices.ContainsFunc(r.members, func(c *bridged) bool { return !c.writer.CacheIsCurrent(ctx, key) })
}

func (r *reconciler) gather(ctx context.Context, key types.NamespacedName) (gathered, error) {
	g := gathered{key: key, read: time.Now()}
	var err error
	if g.records, err = index.Records(ctx, r.seamark, key); err != nil {
		return g, err
	}
	if g.slices, err = index.BrokerSlices(ctx, r.seamark, key); err != nil {
		return g, err
	}
	g.admitted = objects.AdmittedRecords(g.records, r.clusterOf(ctx))
	g.lighthouse, err = r.readState(ctx, key)
	return g, err
}

// publishToSeamark publishes what a Lighthouse cluster contributes to a service, and returns when
// to look again.
func (r *reconciler) publishToSeamark(ctx context.Context, c *bridged, g gathered) (time.Duration, error) {
	id := c.membership.ClusterID
	cluster := r.clusterOf(ctx)(id)
	if cluster == nil {
		return 0, nil // the broker has lost it, or the admin removes it; nothing can be published
	}
	settings := exports.Settings{
		ClusterID: id, BrokerNamespace: c.membership.Namespace,
		AdmittedAt: cluster.CreationTimestamp, AllowedNamespaces: cluster.Spec.AllowedNamespaces,
	}
	var err error
	if settings.NamedSlices, err = r.namedSlices(ctx); err != nil {
		return 0, err
	}
	have, endpoints := recordFrom(g.records, id), slicesFrom(g.slices, id)
	missing := lossOf(have != nil, g.lighthouse.importOf(id) != nil, len(endpoints) > 0, len(g.lighthouse.slicesOf(id)) > 0)
	if keep, recheck, err := r.fromLighthouse.judge(ctx, g.key, id, missing, g.read); keep || err != nil {
		return recheck, err
	}
	plan := DecideSeamark(SeamarkInput{Settings: settings, Service: g.key, Lighthouse: g.lighthouse, Records: g.admitted})
	changes := exports.Changes(have, endpoints, plan)
	if changes.Empty() {
		return 0, nil
	}
	if err := c.writer.Apply(ctx, g.key, changes); err != nil {
		return 0, fmt.Errorf("publish service %s of Lighthouse cluster %s: %w", g.key, id, err)
	}
	if (have == nil) != (plan.Record == nil) {
		ctrl.LoggerFrom(ctx).Info("changed on Seamark's broker", "cluster", id, "published", plan.Record != nil)
	}
	return 0, nil
}

// namedSlices reports whether the broker accepts slices with objects.UnusedServiceName.
func (r *reconciler) namedSlices(ctx context.Context) (bool, error) {
	m := r.members[0].membership
	set := &v1alpha1.ClusterSet{}
	if err := r.seamark.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.ClusterSet}, set); err != nil {
		return false, fmt.Errorf("read ClusterSet %s: %w", m.ClusterSet, err)
	}
	_, named := set.Annotations[v1alpha1.AnnotationNamedSlices]
	return named, nil
}

// publishToLighthouse publishes what the Seamark clusters contribute to a service, and returns when
// to look again.
func (r *reconciler) publishToLighthouse(ctx context.Context, g gathered) (time.Duration, error) {
	in := LighthouseInput{
		Service: g.key, Namespace: r.lighthouseNamespace, Held: map[string]bool{}, Records: g.admitted,
		Slices: objects.AdmittedSlices(g.slices, r.clusterOf(ctx)), Have: g.lighthouse,
	}
	taken := map[string]bool{}
	var recheck time.Duration
	for _, id := range r.SeamarkClusters {
		if err := r.takenOnLighthouse(ctx, id); err != nil {
			taken[id] = true
			continue
		}
		in.Clusters = append(in.Clusters, id)
		record, source := recordFrom(g.records, id), slicesFrom(g.slices, id)
		missing := lossOf(in.Have.importOf(id) != nil, record != nil, len(in.Have.slicesOf(id)) > 0, len(source) > 0)
		keep, next, err := r.fromSeamark.judge(ctx, g.key, id, missing, g.read)
		if err != nil {
			return 0, err
		}
		in.Held[id], recheck = keep, sooner(recheck, next)
	}
	in.Owned = func(obj metav1.Object) bool {
		id := sourceCluster(obj)
		return !taken[id] && (isBridged(obj) || slices.Contains(r.TakeOver, id))
	}
	plan := DecideLighthouse(in)
	r.logSkipped(ctx, g.key, in.Clusters, plan.Skipped)
	if plan.Empty() {
		return recheck, nil
	}
	if err := r.writeLighthouse(ctx, g.key, plan); err != nil {
		return 0, fmt.Errorf("write service %s on Lighthouse's broker: %w", g.key, err)
	}
	return recheck, nil
}

// writeLighthouse makes the writes in the order of Lighthouse's agents: a cluster's ServiceImport,
// then the aggregate, then endpoints.
func (r *reconciler) writeLighthouse(ctx context.Context, key types.NamespacedName, plan LighthousePlan) error {
	if err := r.writer.Apply(ctx, key, plan.Imports); err != nil {
		return err
	}
	first, then, last := plan.sliceWrites()
	if err := r.writer.Apply(ctx, key, first); err != nil {
		return err
	}
	if err := r.writeAggregate(ctx, key, plan.Aggregate); err != nil {
		return err
	}
	if err := r.writer.Apply(ctx, key, then); err != nil {
		return err
	}
	return r.writer.Apply(ctx, key, last)
}

func (r *reconciler) writeAggregate(ctx context.Context, key types.NamespacedName, plan AggregatePlan) error {
	current := plan.current
	switch {
	case plan.Delete != nil:
		return r.writer.Delete(ctx, key, plan.Delete)
	case plan.Create != nil:
		current = plan.Create
		if err := r.writer.Create(ctx, key, current); err != nil {
			return err
		}
	case plan.Update != nil:
		current = plan.Update
		if err := r.writer.Update(ctx, key, current); err != nil {
			return err
		}
	}
	if plan.Status == nil {
		return nil
	}
	current = current.DeepCopy()
	current.Status.Clusters = plan.Status
	return r.writer.UpdateStatus(ctx, key, current)
}

// takenOnLighthouse returns an error if an agent of Lighthouse serves a Seamark cluster: its broker
// has objects of that cluster that the bridge did not write.
func (r *reconciler) takenOnLighthouse(ctx context.Context, id string) error {
	if slices.Contains(r.TakeOver, id) {
		return nil
	}
	obj, err := r.foreign(ctx, id)
	if err != nil || obj == nil {
		return err
	}
	kind := "EndpointSlice"
	if _, isImport := obj.(*mcsv1alpha1.ServiceImport); isImport {
		kind = "ServiceImport"
	}
	return fmt.Errorf("nothing is written for cluster %s on Lighthouse's broker, which has %s %s of it that no bridge wrote: if Lighthouse's agent "+
		"runs there, remove the cluster from --seamark-clusters; if it has ended, add --take-over %s", id, kind, obj.GetName(), id)
}

// trouble returns why the bridge does not write for some clusters, or nil.
func (r *reconciler) trouble() error {
	var errs []error
	for _, c := range r.members {
		if err := c.heartbeat.ClusterIDTaken(); err != nil {
			errs = append(errs, fmt.Errorf("nothing is published for Lighthouse cluster %s: %w", c.membership.ClusterID, err))
		} else if !c.usable() {
			errs = append(errs, fmt.Errorf("nothing is published for Lighthouse cluster %s yet: its lease on Seamark's broker is not held",
				c.membership.ClusterID), c.heartbeat.LastError())
		}
	}
	for _, id := range r.SeamarkClusters {
		errs = append(errs, r.takenOnLighthouse(context.Background(), id))
	}
	return errors.Join(errs...)
}

// logSkipped logs why a service is not bridged, once for each reason.
func (r *reconciler) logSkipped(ctx context.Context, key types.NamespacedName, clusters []string, skipped map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range clusters {
		w, why := withdrawn{key, id}, skipped[id]
		if why != "" && r.skipped[w] != why {
			ctrl.LoggerFrom(ctx).Info("the service is not written to Lighthouse's broker", "cluster", id, "why", why)
		}
		if why == "" {
			delete(r.skipped, w)
			continue
		}
		if r.skipped == nil {
			r.skipped = map[withdrawn]string{}
		}
		r.skipped[w] = why
	}
}

func recordFrom(records []*v1alpha1.ExportRecord, cluster string) *v1alpha1.ExportRecord {
	i := slices.IndexFunc(records, func(r *v1alpha1.ExportRecord) bool { return string(r.Spec.ClusterID) == cluster })
	if i < 0 {
		return nil
	}
	return records[i]
}

func slicesFrom(all []*discoveryv1.EndpointSlice, cluster string) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(all), func(s *discoveryv1.EndpointSlice) bool { return s.Labels[mcsv1beta1.LabelSourceCluster] != cluster })
}
