package imports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// recheckHeld is how often a held withdrawal is decided again: its cluster may have left
	// meanwhile.
	recheckHeld = 30 * time.Second
	// returnDelay is how long a cluster is still held after its record came back: its slices are
	// written at the same time, and may arrive later.
	returnDelay = 5 * time.Second
)

// Withdrawals decides whose endpoints stay imported although the broker has no record of them.
type Withdrawals struct {
	// Hold is how long a withdrawal is held.
	Hold time.Duration
	// Deleted are the deletions of records that the watch showed, by the cluster of the record. A
	// member that deletes its records means it: it holds unintended withdrawals itself.
	Deleted withdrawal.Deletions
	// Missing counts, for each cluster, the services imported from it that have no record; see
	// CountMissing.
	Missing withdrawal.Reading[map[string]withdrawal.Share]
	// BrokerIsLive reports whether this cluster hears from the broker now.
	BrokerIsLive func() bool
	// Left reports whether a cluster left the clusterset or was removed.
	Left func(ctx context.Context, cluster string) (bool, error)

	settle trigger.Delays

	mu sync.Mutex
	// held are the clusters of each import that are held, with when their record came back; zero
	// while it has not.
	held map[types.NamespacedName]map[string]time.Time
}

// Held returns the imports that are held now.
func (w *Withdrawals) Held() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.held))
}

// RecordChanged records a record that was added, or whose deletion the watch showed.
func (w *Withdrawals) RecordChanged(r *v1alpha1.ExportRecord, deleted bool) {
	if service, ok := objects.ServiceOf(r); ok {
		w.Deleted.Changed(service, r.Labels[mcsv1beta1.LabelSourceCluster], r, deleted)
	}
}

// HeldSources are the clusters whose endpoints an import keeps although the broker has no record of
// them.
type HeldSources struct {
	Clusters []string
	// Since is when that was decided first, Until when it ends.
	Since, Until time.Time
}

// leaveOut returns the slices without those of held clusters, which stay as they are.
func (h HeldSources) leaveOut(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(in), func(s *discoveryv1.EndpointSlice) bool {
		return slices.Contains(h.Clusters, s.Labels[mcsv1beta1.LabelSourceCluster])
	})
}

// of returns those of the slices that are of held clusters.
func (h HeldSources) of(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(in), func(s *discoveryv1.EndpointSlice) bool {
		return !slices.Contains(h.Clusters, s.Labels[mcsv1beta1.LabelSourceCluster])
	})
}

// heldImport is the decision about the sources of one import.
type heldImport struct {
	HeldSources
	// settling is how long the import stays as it is until the missing records are counted.
	settling time.Duration
	// recheck is when to decide again.
	recheck time.Duration
}

// missingSources returns the clusters that an import lists and that have no record on the broker.
func missingSources(si *mcsv1beta1.ServiceImport, records []*v1alpha1.ExportRecord) []string {
	var out []string
	if si == nil || !objects.IsManagedImport(si) {
		return nil
	}
	for _, c := range si.Status.Clusters {
		if !slices.ContainsFunc(records, func(r *v1alpha1.ExportRecord) bool { return string(r.Spec.ClusterID) == c.Cluster }) {
			out = append(out, c.Cluster)
		}
	}
	return out
}

// heldSince returns since when an import is held because records were lost.
func heldSince(si *mcsv1beta1.ServiceImport) (since time.Time, held bool) {
	c := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionWithdrawalHeld))
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != string(v1alpha1.ServiceImportReasonRecordsLost) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// judge decides which missing clusters of an import are held. read is when reading the records
// began.
func (w *Withdrawals) judge(
	ctx context.Context, key types.NamespacedName, si *mcsv1beta1.ServiceImport, records []*v1alpha1.ExportRecord,
	stale map[string]bool, read time.Time,
) (heldImport, error) {
	missing := missingSources(si, records)
	if len(missing) == 0 {
		w.Deleted.Forget(key, read)
	}
	unexplained, err := w.unexplained(ctx, key, missing, len(records) > 0, stale)
	if err != nil {
		return heldImport{}, err
	}
	returning, wait := w.returning(key, records)
	if len(unexplained)+len(returning) == 0 {
		w.settle.Remaining(key, 0)
		w.setHeld(key, nil)
		return heldImport{}, nil
	}
	now := time.Now().Truncate(time.Second) // as the API server keeps it
	since, marked := heldSince(si)
	if !marked && len(unexplained) > 0 {
		if left := w.settle.Remaining(key, withdrawal.Settle); left > 0 {
			return heldImport{settling: left}, nil
		}
		shares, err := w.Missing.After(ctx, time.Now().Add(-withdrawal.Fresh))
		if err != nil {
			return heldImport{}, err
		}
		unexplained = slices.DeleteFunc(unexplained, func(c string) bool { return !shares[c].IsMost() })
	}
	if !marked {
		since = now
	}
	held := slices.Sorted(slices.Values(slices.Concat(unexplained, returning)))
	left := withdrawal.Remaining(w.Hold, since, now)
	if left <= 0 && !w.BrokerIsLive() {
		left = recheckHeld // the records may be back
	}
	if left <= 0 {
		held = nil
	}
	if first := w.setHeld(key, held); first {
		ctrl.LoggerFrom(ctx).Info("holding imports: the broker has lost most records of a cluster, and nothing shows that it withdrew them",
			"clusters", held, "hold", w.Hold.String())
	}
	if len(held) == 0 {
		return heldImport{}, nil
	}
	return heldImport{
		HeldSources: HeldSources{Clusters: held, Since: since, Until: now.Add(left)}, recheck: min(left, wait),
	}, nil
}

// returning returns the held clusters of an import whose record came back a moment ago, and for how
// long one of them is still held.
func (w *Withdrawals) returning(key types.NamespacedName, records []*v1alpha1.ExportRecord) (out []string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, wait := time.Now(), recheckHeld
	for _, r := range records {
		cluster := string(r.Spec.ClusterID)
		back, held := w.held[key][cluster]
		if !held {
			continue
		}
		if back.IsZero() {
			back = now
			w.held[key][cluster] = now
		}
		if left := returnDelay - now.Sub(back); left > 0 {
			out, wait = append(out, cluster), min(wait, left)
		}
	}
	return out, wait
}

// setHeld sets the held clusters of an import. first reports whether no import was held before.
func (w *Withdrawals) setHeld(key types.NamespacedName, clusters []string) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(clusters) == 0 {
		delete(w.held, key)
		return false
	}
	if w.held == nil {
		w.held = map[types.NamespacedName]map[string]time.Time{}
	}
	first = len(w.held) == 0
	before := w.held[key]
	w.held[key] = map[string]time.Time{}
	for _, c := range clusters {
		w.held[key][c] = before[c]
	}
	return first
}

// unexplained returns those of the missing clusters whose withdrawal nothing explains: no deletion
// was seen, and the cluster did not leave. A stale cluster is dropped anyway where others serve.
func (w *Withdrawals) unexplained(
	ctx context.Context, key types.NamespacedName, missing []string, othersServe bool, stale map[string]bool,
) ([]string, error) {
	var out []string
	for _, cluster := range missing {
		if _, seen := w.Deleted.Of(key, cluster); seen || (othersServe && stale[cluster]) {
			continue
		}
		if left, err := w.Left(ctx, cluster); err != nil {
			return nil, err
		} else if !left {
			out = append(out, cluster)
		}
	}
	return out, nil
}

// CountMissing returns for each cluster how many services this cluster imports from it, and how
// many of them have no record on the broker although no watch showed that it was deleted.
func CountMissing(ctx context.Context, local, broker client.Reader, deleted *withdrawal.Deletions) (map[string]withdrawal.Share, error) {
	var imported mcsv1beta1.ServiceImportList
	var records v1alpha1.ExportRecordList
	managed := client.MatchingLabels{objects.LabelManagedBy: objects.ManagedBySeamark}
	if err := local.List(ctx, &imported, managed, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ServiceImports: %w", err)
	}
	if err := broker.List(ctx, &records, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	type part struct {
		service types.NamespacedName
		cluster string
	}
	recorded := map[part]bool{}
	for i := range records.Items {
		if service, ok := objects.ServiceOf(&records.Items[i]); ok {
			recorded[part{service, string(records.Items[i].Spec.ClusterID)}] = true
		}
	}
	shares := map[string]withdrawal.Share{}
	for i := range imported.Items {
		si := &imported.Items[i]
		if _, onBroker := si.Labels[v1alpha1.LabelServiceNamespace]; onBroker {
			continue
		}
		service := client.ObjectKeyFromObject(si)
		for _, c := range si.Status.Clusters {
			share := shares[c.Cluster]
			share.Total++
			if _, seen := deleted.Of(service, c.Cluster); !seen && !recorded[part{service, c.Cluster}] {
				share.Missing++
			}
			shares[c.Cluster] = share
		}
	}
	return shares, nil
}

// keep leaves an import as it is while what the broker has cannot be used. Its own endpoints follow
// this cluster, and its status says which clusters are held.
func (r *Reconciler) keep(ctx context.Context, key types.NamespacedName, settings Settings, have imported, held HeldSources) error {
	if err := r.refreshOwn(ctx, key, settings, have); err != nil || len(held.Clusters) == 0 {
		return err
	}
	updated := have.serviceImport.DeepCopy()
	c := heldCondition(held, nil)
	c.ObservedGeneration = updated.Generation
	if !meta.SetStatusCondition(&updated.Status.Conditions, *c) {
		return nil
	}
	if err := r.Writer.UpdateStatus(ctx, key, updated); err != nil {
		return err
	}
	r.announceHeld(have.serviceImport, updated)
	return nil
}

// announceHeld emits an event when an import begins to be held.
func (r *Reconciler) announceHeld(before, after *mcsv1beta1.ServiceImport) {
	held := string(v1alpha1.ServiceImportConditionWithdrawalHeld)
	if now := meta.FindStatusCondition(after.Status.Conditions, held); now != nil && meta.FindStatusCondition(before.Status.Conditions, held) == nil {
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, held, "Import", "%s", now.Message)
	}
}

// heldCondition returns the condition of an import that is held, nil if it is not: by this cluster,
// or by the exporters whose records say so.
func heldCondition(held HeldSources, records []*v1alpha1.ExportRecord) *metav1.Condition {
	if len(held.Clusters) > 0 {
		c := condition(v1alpha1.ServiceImportConditionWithdrawalHeld, metav1.ConditionTrue, v1alpha1.ServiceImportReasonRecordsLost,
			fmt.Sprintf("the broker has lost most records of %s, and nothing shows that they were withdrawn: "+
				"the endpoints stay until %s, or until the records are back", clusterNames(held.Clusters), held.Until.UTC().Format(time.RFC3339)))
		c.LastTransitionTime = metav1.NewTime(held.Since)
		return &c
	}
	var exporters []string
	for _, r := range records {
		if r.Annotations[v1alpha1.AnnotationWithdrawalHeld] != "" {
			exporters = append(exporters, string(r.Spec.ClusterID))
		}
	}
	if len(exporters) == 0 {
		return nil
	}
	slices.Sort(exporters)
	c := condition(v1alpha1.ServiceImportConditionWithdrawalHeld, metav1.ConditionTrue, v1alpha1.ServiceImportReasonHeldByExporter,
		fmt.Sprintf("most exports of %s are gone there, and no user was seen to delete them: what was published stays for a while",
			clusterNames(exporters)))
	return &c
}

func clusterNames(ids []string) string {
	if len(ids) == 1 {
		return "cluster " + ids[0]
	}
	return "clusters " + enumerate(ids)
}
