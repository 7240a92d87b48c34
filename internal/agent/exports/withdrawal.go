package exports

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/withdrawal"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// The objects of a service without which it is withdrawn; see withdrawal.Deletions.
const (
	partExport  = "ServiceExport"
	partService = "Service"
)

// slicesLostDelay is how long the endpoints of a service stay published after its slices
// disappeared while the watch was interrupted. If the API server was restored to an older state,
// the caches of other kinds may notice it later: they retry with a backoff of up to half a minute.
const slicesLostDelay = 30 * time.Second

// Withdrawals decides which services stay published although this cluster has no ServiceExport or
// Service of them any more.
type Withdrawals struct {
	// Hold is how long a withdrawal is held.
	Hold time.Duration
	// Deleted are the deletions of ServiceExports and Services that the watches showed.
	Deleted withdrawal.Deletions
	// Missing counts the published services that are missing; see CountMissing.
	Missing withdrawal.Reading[withdrawal.Share]
	// Kind reads the CRD of ServiceExports, nil if there is none: an API server deletes all objects
	// of a CRD that is deleted. If Kind is nil, the CRD is never deleted.
	Kind *withdrawal.Reading[*metav1.PartialObjectMetadata]

	held   withdrawal.Services
	settle trigger.Delays
	// slicesLost are the services whose slices disappeared while the watch was interrupted.
	slicesLost sync.Map
}

// Held returns how many withdrawals are held now.
func (w *Withdrawals) Held() int { return w.held.Len() }

// ExportChanged records a ServiceExport that was added, or whose deletion a watch showed.
func (w *Withdrawals) ExportChanged(e *mcsv1beta1.ServiceExport, deleted bool) {
	w.Deleted.Changed(client.ObjectKeyFromObject(e), partExport, e, deleted)
}

// ServiceChanged records a Service that was added, or whose deletion a watch showed.
func (w *Withdrawals) ServiceChanged(s *corev1.Service, deleted bool) {
	w.Deleted.Changed(client.ObjectKeyFromObject(s), partService, s, deleted)
}

// SliceLost records that a slice disappeared while the watch was interrupted.
func (w *Withdrawals) SliceLost(s *discoveryv1.EndpointSlice) {
	if service, ok := objects.SourceService(s); ok {
		w.slicesLost.Store(service, time.Now())
	}
}

// keepSlices returns for how long the published endpoints of a service stay although it has no
// slices.
func (w *Withdrawals) keepSlices(key types.NamespacedName, in Input, have published) time.Duration {
	lost, ok := w.slicesLost.Load(key)
	if !ok {
		return 0
	}
	if left := slicesLostDelay - time.Since(lost.(time.Time)); left > 0 && len(in.Slices) == 0 && len(have.slices) > 0 {
		return left
	}
	w.slicesLost.Delete(key)
	return 0
}

// hold is the decision about one withdrawal.
type hold struct {
	// keep reports whether what is published stays. since is when the hold began, until when it
	// ends; zero while it is not decided yet.
	keep         bool
	since, until time.Time
	// recheck is when to decide again.
	recheck time.Duration
}

// missingPart returns which object a published service lacks, "" if it is withdrawn for another
// reason or not at all. An object that is being deleted is a user's decision.
func missingPart(in Input, plan Plan) string {
	switch {
	case in.Export == nil:
		return partExport
	case plan.Valid.Reason == string(mcsv1beta1.ServiceExportReasonNoService):
		return partService
	}
	return ""
}

// judge decides whether the record of a service stays although the service lacks an object. read is
// when reading the service's objects began.
func (w *Withdrawals) judge(
	ctx context.Context, key types.NamespacedName, record *v1alpha1.ExportRecord, missing string, read time.Time,
) (hold, error) {
	if record == nil || missing == "" {
		w.Deleted.Forget(key, read)
		w.settle.Remaining(key, 0)
		w.held.Set(key, false)
		return hold{}, nil
	}
	now := time.Now()
	since, marked := heldSince(record)
	if deletion, seen := w.Deleted.Of(key, missing); seen {
		withKind, err := w.deletedWithKind(ctx, missing, deletion)
		if err != nil || !withKind {
			w.held.Set(key, false)
			return hold{}, err
		}
		w.Deleted.Forget(key, now)
		if !marked {
			since, marked = now, true
		}
	}
	if !marked {
		if left := w.settle.Remaining(key, withdrawal.Settle); left > 0 {
			return hold{keep: true, recheck: left}, nil
		}
		share, err := w.Missing.After(ctx, now.Add(-withdrawal.Fresh))
		if err != nil || !share.IsMost() {
			return hold{}, err
		}
		since = now
	}
	left := withdrawal.Remaining(w.Hold, since, now)
	if first := w.held.Set(key, left > 0); first {
		ctrl.LoggerFrom(ctx).Info("holding withdrawals: most of what this cluster exports is gone, and the agent saw no user delete it",
			"hold", w.Hold.String())
	}
	return hold{keep: left > 0, since: since, until: now.Add(left), recheck: left}, nil
}

// deletedWithKind reports whether the API server deleted a ServiceExport because its CRD was
// deleted. The CRD may be back already: then it is younger than the ServiceExport was.
func (w *Withdrawals) deletedWithKind(ctx context.Context, missing string, d withdrawal.Deletion) (bool, error) {
	if missing != partExport || w.Kind == nil {
		return false, nil
	}
	crd, err := w.Kind.After(ctx, d.At)
	if err != nil {
		return false, fmt.Errorf("read the CRD of ServiceExports: %w", err)
	}
	return crd == nil || crd.DeletionTimestamp != nil || crd.CreationTimestamp.After(d.Created), nil
}

// heldSince returns since when the withdrawal of a record is held.
func heldSince(record *v1alpha1.ExportRecord) (since time.Time, held bool) {
	since, err := time.Parse(time.RFC3339, record.Annotations[v1alpha1.AnnotationWithdrawalHeld])
	return since, err == nil
}

// heldChanges returns the writes for a service whose withdrawal is held. The record says so, and
// the endpoints follow the Service if it has ready ones: those of a Service that was just created
// again are not known yet. In classic mode they stay as they are: only the ServiceExport has their
// weight.
func heldChanges(in Input, have published, h hold) apply.Changes {
	var c apply.Changes
	if _, marked := heldSince(have.record); !marked && !h.since.IsZero() {
		updated := have.record.DeepCopy()
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.AnnotationWithdrawalHeld, h.since.UTC().Format(time.RFC3339))
		c.Update = append(c.Update, updated)
	}
	mode := merge.Merge(in.Records).Mode
	if in.Service != nil && reachable.HasReadyEndpoint(in.Slices...) && len(have.slices) > 0 && mode != merge.ModeClassic {
		apply.DiffSlices(&c, have.slices, Slices(in, mode))
	}
	return c
}

// CountMissing returns how many of the services that this cluster has published lack their
// ServiceExport or Service, although no watch showed that it was deleted.
func CountMissing(
	ctx context.Context, local, broker client.Reader, clusterID string, deleted *withdrawal.Deletions,
) (share withdrawal.Share, err error) {
	var exports mcsv1beta1.ServiceExportList
	var services corev1.ServiceList
	var records v1alpha1.ExportRecordList
	own := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: clusterID}
	if err := local.List(ctx, &exports, client.UnsafeDisableDeepCopy); err != nil {
		return share, fmt.Errorf("list ServiceExports: %w", err)
	}
	if err := local.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return share, fmt.Errorf("list Services: %w", err)
	}
	if err := broker.List(ctx, &records, own, client.UnsafeDisableDeepCopy); err != nil {
		return share, fmt.Errorf("list the records of this cluster: %w", err)
	}
	exported, serving := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	for i := range exports.Items {
		exported[client.ObjectKeyFromObject(&exports.Items[i])] = true
	}
	for i := range services.Items {
		serving[client.ObjectKeyFromObject(&services.Items[i])] = true
	}
	lacks := func(key types.NamespacedName, part string, has map[types.NamespacedName]bool) bool {
		_, seen := deleted.Of(key, part)
		return !has[key] && !seen
	}
	for i := range records.Items {
		key, ok := objects.ServiceOf(&records.Items[i])
		if !ok {
			continue
		}
		share.Total++
		if lacks(key, partExport, exported) || (exported[key] && lacks(key, partService, serving)) {
			share.Missing++
		}
	}
	return share, nil
}
