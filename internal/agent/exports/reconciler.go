package exports

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/index"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
)

const (
	// retryBroker is how often an export that waits for its broker looks again.
	retryBroker = time.Second
	// replaceGrace is how long a record outlives its Service. A Service becomes headless, or stops being so, by being deleted
	// and created again; its imports elsewhere, and their addresses, must not go and come back for that. Its endpoints go
	// at once.
	replaceGrace = 2 * time.Second
)

// Reconciler publishes the exports of this cluster.
type Reconciler struct {
	// Local and Broker read from caches.
	Local  client.Client
	Broker client.Client
	// LocalWriter and BrokerWriter write.
	LocalWriter  *apply.Writer
	BrokerWriter *apply.Writer
	// Settings are known once the broker has been reached; until then nothing is published.
	Settings func() (Settings, bool)
	// Taken is why this cluster may not use its id, nil when it may.
	Taken    func() error
	RegionOf func(node string) string
	Recorder events.EventRecorder
	// Starved is why a service of this cluster has no clusterset IP although it should, nil when all is well.
	ShortageOf func(types.NamespacedName) error
	// Observed is told the state of each ServiceExport as it is decided, nil when there is none.
	Observed func(types.NamespacedName, *mcsv1beta1.ServiceExport)
	// Later puts conditions off while services are being published.
	Deferred *trigger.Deferred

	mu   sync.Mutex
	gone map[types.NamespacedName]time.Time // since when the Service of a published export is missing
}

// Reconcile brings the broker's copy of one service up to date and tells on the ServiceExport how that went.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.LocalWriter.CacheIsCurrent(ctx, key) || !r.BrokerWriter.CacheIsCurrent(ctx, key) {
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	in, existing, err := r.gather(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	if in.Export == nil {
		r.Observed(key, nil)
	}
	settings, connected := r.Settings()
	if !connected {
		if in.Export == nil {
			return ctrl.Result{}, nil // what it left on the broker is found when the broker is back
		}
		return ctrl.Result{}, r.report(ctx, key, in.Export, Plan{Valid: validityOffline(in)}, cmp.Or(r.Taken(), errNotConnected))
	}
	in.Settings = settings
	plan := Decide(in)
	wait := r.grace(key, plan, existing)
	if wait > 0 {
		plan.Record = existing.record
	}
	changes := diff(existing, plan)
	if !changes.Empty() {
		r.Deferred.MarkUrgent()
	}
	applyErr := r.BrokerWriter.Apply(ctx, key, changes)
	if applyErr == nil {
		logChange(ctx, existing, plan)
	}
	if in.Export == nil || in.Export.DeletionTimestamp != nil {
		return ctrl.Result{}, applyErr
	}
	if err := r.report(ctx, key, in.Export, plan, applyErr); err != nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsConflict(applyErr) || apierrors.IsAlreadyExists(applyErr) {
		return ctrl.Result{RequeueAfter: retryBroker}, nil // somebody else wrote; the watch shows what
	}
	return ctrl.Result{RequeueAfter: wait}, applyErr
}

// logChange writes a line when a service comes to the clusterset or leaves it; what happens in between is in conditions, events and metrics.
func logChange(ctx context.Context, before published, after Plan) {
	log := ctrl.LoggerFrom(ctx)
	switch {
	case before.record == nil && after.Record != nil:
		log.Info("the service is published")
	case before.record != nil && after.Record == nil:
		log.Info("the service is withdrawn", "why", after.Valid.Message)
	}
}

// grace is how long the record of an export whose Service just went is still kept.
func (r *Reconciler) grace(key types.NamespacedName, plan Plan, have published) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have.record == nil || plan.Valid.Reason != string(mcsv1beta1.ServiceExportReasonNoService) {
		delete(r.gone, key)
		return 0
	}
	since, known := r.gone[key]
	if !known {
		if r.gone == nil {
			r.gone = map[types.NamespacedName]time.Time{}
		}
		since = time.Now()
		r.gone[key] = since
	}
	return max(0, replaceGrace-time.Since(since))
}

// published is what the broker holds of this cluster's service.
type published struct {
	record *v1alpha1.ExportRecord
	slices []*discoveryv1.EndpointSlice
}

func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (Input, published, error) {
	in := Input{RegionOf: r.RegionOf}
	var have published
	var err error
	if in.Export, err = getOrNil(ctx, r.Local, key, &mcsv1beta1.ServiceExport{}); err != nil {
		return in, have, err
	}
	if in.Export != nil {
		if in.Service, err = getOrNil(ctx, r.Local, key, &corev1.Service{}); err != nil {
			return in, have, err
		}
		if in.Slices, err = index.SourceSlices(ctx, r.Local, key); err != nil {
			return in, have, err
		}
	}
	settings, connected := r.Settings()
	if !connected {
		return in, have, nil
	}
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return in, have, err
	}
	have.record = own(in.Records, settings.ClusterID)
	all, err := index.BrokerSlices(ctx, r.Broker, key)
	if err != nil {
		return in, have, err
	}
	for _, s := range all {
		if s.Labels[mcsv1beta1.LabelSourceCluster] == settings.ClusterID {
			have.slices = append(have.slices, s)
		}
	}
	return in, have, nil
}

func getOrNil[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, obj T) (T, error) {
	var none T
	if err := c.Get(ctx, key, obj); err != nil {
		return none, client.IgnoreNotFound(err)
	}
	return obj, nil
}

// diff is what has to be written to turn what the broker has into what it should have.
func diff(have published, want Plan) apply.Changes {
	var c apply.Changes
	switch {
	case want.Record == nil && have.record != nil:
		c.Delete = append(c.Delete, have.record)
	case want.Record != nil && have.record == nil:
		c.Create = append(c.Create, want.Record)
	case want.Record != nil && !sameRecord(have.record, want.Record):
		updated := have.record.DeepCopy()
		updated.Spec, updated.Labels, updated.Annotations = want.Record.Spec, want.Record.Labels, want.Record.Annotations
		c.Update = append(c.Update, updated)
	}
	apply.DiffSlices(&c, have.slices, want.Slices)
	return c
}

func sameRecord(a, b *v1alpha1.ExportRecord) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// report writes the conditions of the ServiceExport, all in one write and only when one of them changed.
func (r *Reconciler) report(ctx context.Context, key types.NamespacedName, export *mcsv1beta1.ServiceExport, plan Plan, published error) error {
	updated := export.DeepCopy()
	conditions := &updated.Status.Conditions
	set := func(c metav1.Condition) bool {
		c.ObservedGeneration = export.Generation
		return meta.SetStatusCondition(conditions, c)
	}
	changed := set(plan.Valid)
	changed = set(readiness(export, plan, published, r.ShortageOf(key))) || changed
	switch {
	case plan.Conflict != nil:
		changed = set(*plan.Conflict) || changed
	case plan.Valid.Status != metav1.ConditionTrue:
		changed = meta.RemoveStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionConflict)) || changed
	}
	r.Observed(key, updated)
	if !changed || (published == nil && r.Deferred.Defer(key)) {
		return nil
	}
	if err := r.LocalWriter.UpdateStatus(ctx, key, updated); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // it changed under us: the watch brings us back
		}
		return fmt.Errorf("tell the state of ServiceExport %s: %w", key, err)
	}
	r.announce(export, updated)
	return nil
}

// announce makes an event of each condition that turned.
func (r *Reconciler) announce(before, after *mcsv1beta1.ServiceExport) {
	for _, watched := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionConflict} {
		now := meta.FindStatusCondition(after.Status.Conditions, string(watched))
		old := meta.FindStatusCondition(before.Status.Conditions, string(watched))
		if now == nil || (old != nil && old.Status == now.Status && old.Reason == now.Reason) {
			continue
		}
		bad := (watched == mcsv1beta1.ServiceExportConditionValid) == (now.Status == metav1.ConditionFalse)
		if old == nil && !bad {
			continue // the good start is no news
		}
		kind := corev1.EventTypeNormal
		if bad {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(after, nil, kind, now.Reason, string(watched), "%s", now.Message)
	}
}
