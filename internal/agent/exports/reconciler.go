package exports

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	"github.com/seamark-dev/seamark/internal/agent/telemetry"
	"github.com/seamark-dev/seamark/internal/agent/trigger"
	"github.com/seamark-dev/seamark/internal/agent/vip"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

const (
	// conflictDelay is when an export is reconciled again after another client wrote first.
	conflictDelay = time.Second
	// replaceTimeout is how long a record outlives its Service. A Service becomes headless, or stops
	// being so, by being deleted and created again; its imports in other clusters, and their
	// clusterset IPs, must survive that. Its endpoints are withdrawn at once.
	replaceTimeout = 2 * time.Second
)

// Reconciler publishes the exports of this cluster.
type Reconciler struct {
	// Local and Broker read from caches.
	Local        client.Client
	Broker       client.Client
	LocalWriter  *apply.Writer
	BrokerWriter *apply.Writer
	// Settings are known once the broker has been reached; until then nothing is published.
	Settings func() (Settings, bool)
	// Taken returns why this cluster may not use its id, nil if it may.
	Taken    func() error
	RegionOf func(node string) string
	// ClusterOf returns what the broker's admin grants a member.
	ClusterOf objects.ClusterOf
	// Admits reports whether a service is within this member's limits, OverLimit says what they
	// are.
	Admits    func(types.NamespacedName) bool
	OverLimit func() string
	Recorder  events.EventRecorder
	// Stale are the clusters that have not been heard from.
	Stale func() map[string]bool
	// Demoted are the stale clusters that have lost their precedence; see member.Liveness.
	Demoted func() map[string]bool
	// Pool allocates the clusterset IPs of this member's blocks.
	Pool *vip.Pool
	// Accepts returns what reports whether a clusterset IP may be used for a service.
	Accepts func(context.Context, types.NamespacedName) func(netip.Addr) bool
	// Remembered returns the clusterset IPs that this cluster last saw of a service.
	Remembered func(context.Context, types.NamespacedName, []*v1alpha1.ExportRecord) []netip.Addr
	// Observed is called with each ServiceExport as its conditions are decided, with nil if there is
	// none.
	Observed func(types.NamespacedName, *mcsv1beta1.ServiceExport)
	// Deferred postpones conditions while services are being published.
	Deferred *trigger.Deferred
	// Withdrawals decides which withdrawals are held.
	Withdrawals *Withdrawals
	// LeavesStatus reports whether the status of ServiceExports is left to an agent of Submariner
	// Lighthouse, from which this cluster is moving.
	LeavesStatus func() bool

	replacements trigger.Delays // of exports whose Service is missing
	takeovers    trigger.Delays // of clusterset IPs that another exporter should claim
	claimed      claimed
}

// Reconcile brings the broker's copy of one service up to date, and the conditions of its
// ServiceExport.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	if !r.LocalWriter.CacheIsCurrent(ctx, key) || !r.BrokerWriter.CacheIsCurrent(ctx, key) {
		telemetry.Wait(ctx, objects.WaitForCache)
		return ctrl.Result{RequeueAfter: apply.CacheTimeout}, nil
	}
	settings, connected := r.Settings()
	read := time.Now()
	in, existing, err := r.gather(ctx, key, settings, connected)
	if err != nil {
		return ctrl.Result{}, err
	}
	if in.Export == nil {
		r.Observed(key, nil)
		r.claimed.set(key, nil)
	}
	if !connected {
		taken := r.Taken()
		telemetry.Wait(ctx, objects.NotConnectedReason(taken))
		if in.Export == nil {
			return ctrl.Result{}, nil // its record is looked for when the broker is reached
		}
		return ctrl.Result{}, r.report(ctx, key, in.Export, Plan{Valid: validityOffline(in)}, cmp.Or(taken, errNotConnected))
	}
	plan, wait := r.decide(ctx, key, in)
	held, err := r.Withdrawals.judge(ctx, key, existing.record, missingPart(in, plan), read)
	if err != nil {
		return ctrl.Result{}, err
	}
	changes, remaining := r.changes(ctx, key, in, existing, &plan, held)
	if !changes.Empty() && (plan.Record != nil || existing.record != nil) {
		r.Deferred.MarkUrgent()
	}
	applyErr := r.publish(ctx, key, changes, plan.Record == nil)
	if applyErr == nil {
		logChange(ctx, existing, plan)
		if plan.Record != nil {
			r.claimed.set(key, objects.ParseAddresses(plan.Record.Spec.ClusterSetIPs))
		}
	}
	if in.Export == nil || in.Export.DeletionTimestamp != nil {
		return ctrl.Result{RequeueAfter: held.recheck}, applyErr
	}
	if err := r.report(ctx, key, in.Export, plan, applyErr); err != nil {
		return ctrl.Result{}, err
	}
	if objects.IsWriteConflict(applyErr) {
		telemetry.Wait(ctx, objects.WaitForConflict)
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: max(remaining, wait)}, applyErr
}

// publish makes the changes on the broker. A service is withdrawn by its record: importers then
// delete at once what they have of it. Its slices go when the importers have had time for that. If
// importers saw those go first, they would delete the endpoints, and the rest only when their
// caches show that.
func (r *Reconciler) publish(ctx context.Context, key types.NamespacedName, c apply.Changes, withdrawn bool) error {
	isRecord := func(obj client.Object) bool { _, ok := obj.(*v1alpha1.ExportRecord); return ok }
	if i := slices.IndexFunc(c.Delete, isRecord); i >= 0 {
		if err := r.BrokerWriter.Delete(ctx, key, c.Delete[i]); err != nil {
			return err
		}
		c.Delete = slices.Delete(c.Delete, i, i+1)
	}
	if withdrawn && !c.Empty() && r.Deferred.Defer(key) {
		telemetry.Wait(ctx, objects.WaitForBurst)
		return nil
	}
	return r.BrokerWriter.Apply(ctx, key, c)
}

// changes returns the writes to the broker, and when to look again if something is kept that the
// plan does not have. It completes the plan with what is kept.
func (r *Reconciler) changes(
	ctx context.Context, key types.NamespacedName, in Input, have published, plan *Plan, held hold,
) (apply.Changes, time.Duration) {
	remaining := r.keepRecordFor(key, *plan, have)
	keepSlices := r.Withdrawals.keepSlices(key, in, have)
	switch {
	case held.keep:
		telemetry.Wait(ctx, objects.WaitForIntent)
		plan.Record, plan.heldUntil = have.record, held.until
		return heldChanges(in, have, held), held.recheck
	case plan.Record != nil && keepSlices > 0:
		telemetry.Wait(ctx, objects.WaitForIntent)
		return diff(published{record: have.record}, Plan{Record: plan.Record}), keepSlices
	case remaining > 0:
		telemetry.Wait(ctx, objects.WaitForService)
		plan.Record = have.record
	}
	return diff(have, *plan), remaining
}

// decide calls Decide with the pool of clusterset IPs. wait is for how long this member still
// leaves it to another exporter to claim a clusterset IP that the service lacks.
func (r *Reconciler) decide(ctx context.Context, key types.NamespacedName, in Input) (plan Plan, wait time.Duration) {
	for _, rec := range in.Records { // the pool's own watch may be behind what was read
		r.Pool.SetRecorded(key, string(rec.Spec.ClusterID), objects.ParseAddresses(rec.Spec.ClusterSetIPs))
	}
	plan = Decide(in)
	if wait = r.takeovers.Remaining(key, plan.Delay); wait > 0 {
		telemetry.Wait(ctx, objects.WaitForOther)
	} else if plan.Delay > 0 {
		in.TakesOver = true
		plan = Decide(in)
	}
	if !plan.Reserved && plan.Shortage == nil {
		r.Pool.Release(key)
	}
	return plan, wait
}

// logChange logs when a service is published or withdrawn. All other changes are in conditions,
// events and metrics.
func logChange(ctx context.Context, before published, after Plan) {
	log := ctrl.LoggerFrom(ctx)
	switch {
	case before.record == nil && after.Record != nil:
		log.Info("the service is published")
	case before.record != nil && after.Record == nil:
		log.Info("the service is withdrawn", "why", after.Valid.Message)
	}
}

// keepRecordFor returns for how long the record of an export whose Service was deleted is still
// kept.
func (r *Reconciler) keepRecordFor(key types.NamespacedName, plan Plan, have published) time.Duration {
	if have.record == nil || plan.Valid.Reason != string(mcsv1beta1.ServiceExportReasonNoService) {
		return r.replacements.Remaining(key, 0)
	}
	return r.replacements.Remaining(key, replaceTimeout)
}

// published is what the broker holds of this cluster's service.
type published struct {
	record *v1alpha1.ExportRecord
	slices []*discoveryv1.EndpointSlice
}

// gather reads everything that Decide needs, and what the broker holds. It reads nothing from the
// broker while this member is not connected.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName, settings Settings, connected bool) (Input, published, error) {
	in := Input{Settings: settings, RegionOf: r.RegionOf}
	var have published
	var err error
	if in.Export, err = index.GetOrNil(ctx, r.Local, key, &mcsv1beta1.ServiceExport{}); err != nil {
		return in, have, err
	}
	if in.Export != nil {
		if err := r.readService(ctx, key, &in); err != nil {
			return in, have, err
		}
	}
	if !connected {
		return in, have, nil
	}
	if in.Export != nil && !r.Admits(key) {
		in.OverLimit = r.OverLimit()
	}
	if in.Records, err = index.Records(ctx, r.Broker, key); err != nil {
		return in, have, err
	}
	in.Addressing = Addressing{
		Stale: r.Stale(), Accepts: r.Accepts(ctx, key), Remembered: slices.Concat(r.Remembered(ctx, key, in.Records), r.claimed.of(key)),
		Offer: func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error) {
			return r.Pool.Reserve(key, family == corev1.IPv6Protocol, wanted)
		},
	}
	have.record = recordFrom(in.Records, settings.ClusterID)
	if in.Export == nil && have.record != nil { // its withdrawal may be held
		if err := r.readService(ctx, key, &in); err != nil {
			return in, have, err
		}
	}
	in.Undemoted = objects.AdmittedRecords(in.Records, r.ClusterOf)
	in.Records = merge.Demote(in.Undemoted, r.Demoted())
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

// readService reads the Service and its slices.
func (r *Reconciler) readService(ctx context.Context, key types.NamespacedName, in *Input) (err error) {
	if in.Service, err = index.GetOrNil(ctx, r.Local, key, &corev1.Service{}); err != nil {
		return err
	}
	in.Slices, err = index.SourceSlices(ctx, r.Local, key)
	return err
}

// Changes returns the writes that turn what the broker has of a cluster's service into a plan.
func Changes(record *v1alpha1.ExportRecord, endpoints []*discoveryv1.EndpointSlice, want Plan) apply.Changes {
	return diff(published{record, endpoints}, want)
}

// diff returns the writes that turn what the broker has into what it should have.
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
	return apply.SameMetadata(a, b) && equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// report writes the conditions of the ServiceExport, all in one write and only if one of them
// changed. published is the result of writing to the broker.
func (r *Reconciler) report(
	ctx context.Context, key types.NamespacedName, export *mcsv1beta1.ServiceExport, plan Plan, published error,
) error {
	updated := export.DeepCopy()
	conditions := &updated.Status.Conditions
	set := func(c metav1.Condition) bool {
		c.ObservedGeneration = export.Generation
		return meta.SetStatusCondition(conditions, c)
	}
	changed := set(plan.Valid)
	ready := readiness(export, plan, published)
	changed = set(ready) || changed
	if stalled, is := stalledBy(plan.Valid, ready); is {
		changed = set(stalled) || changed
	} else {
		changed = meta.RemoveStatusCondition(conditions, string(v1alpha1.ServiceExportConditionStalled)) || changed
	}
	switch {
	case plan.Conflict != nil:
		changed = set(*plan.Conflict) || changed
	case plan.Valid.Status != metav1.ConditionTrue:
		changed = meta.RemoveStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionConflict)) || changed
	}
	r.Observed(key, updated)
	if !changed || r.LeavesStatus() {
		return nil
	}
	if published == nil && r.Deferred.Defer(key) {
		telemetry.Wait(ctx, objects.WaitForBurst)
		return nil
	}
	if err := r.LocalWriter.UpdateStatus(ctx, key, updated); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			telemetry.Wait(ctx, objects.WaitForConflict) // the watch triggers the next reconcile
			return nil
		}
		return fmt.Errorf("update status of ServiceExport %s: %w", key, err)
	}
	r.announce(export, updated)
	return nil
}

// announce emits an event for each condition whose status or reason changed.
func (r *Reconciler) announce(before, after *mcsv1beta1.ServiceExport) {
	for _, t := range []mcsv1beta1.ServiceExportConditionType{
		mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionConflict,
	} {
		now := meta.FindStatusCondition(after.Status.Conditions, string(t))
		old := meta.FindStatusCondition(before.Status.Conditions, string(t))
		if now == nil || (old != nil && old.Status == now.Status && old.Reason == now.Reason) {
			continue
		}
		bad := (t == mcsv1beta1.ServiceExportConditionValid) == (now.Status == metav1.ConditionFalse)
		if old == nil && !bad {
			continue // a new export without problems needs no event
		}
		kind := corev1.EventTypeNormal
		if bad {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(after, nil, kind, now.Reason, string(t), "%s", now.Message)
	}
}
