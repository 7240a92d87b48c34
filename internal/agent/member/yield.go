package member

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// recordPage is how many records are read at once: the broker may hold very many.
const recordPage = 500

// wasSilent reports whether this member's lease was not renewed for so long that others may have
// demoted it. The renewal was written in this cluster too, so the clocks are comparable.
func (h *Heartbeat) wasSilent(lease *coordinationv1.Lease) bool {
	return lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) >= objects.DemoteAfter(objects.LeaseDurationOf(lease))
}

// yieldAfterSilence makes this member's exports the youngest before it renews its lease, if other
// members have demoted it meanwhile. Its old ages would otherwise change the services that run
// without it. Only this member can change them. Another member may demote it while it
// returns, so it looks again for as long as a lease lasts. At other times the lists of others mean
// nothing: no member can make another one younger.
//
// What the watch of Clusters has shown is good enough once it has shown all: it may be behind for a
// moment, but so long others still treat this member as demoted. If each of a thousand members
// listed all others when the broker has been slow for a minute, it would stay slow for ever.
func (h *Heartbeat) yieldAfterSilence(ctx context.Context, lease *coordinationv1.Lease) error {
	if h.wasSilent(lease) {
		h.yieldUntil = time.Now().Add(objects.LeaseDurationOf(lease))
	}
	if time.Now().After(h.yieldUntil) {
		return nil
	}
	demoted, known := h.Demoted()
	if !known {
		var err error
		if demoted, err = h.isDemoted(ctx); err != nil {
			return err
		}
	}
	if !demoted {
		return nil
	}
	return h.yield(ctx)
}

// isDemoted asks the broker whether any other member demotes this one.
func (h *Heartbeat) isDemoted(ctx context.Context) (bool, error) {
	clusters := &v1alpha1.ClusterList{}
	if err := h.Client.List(ctx, clusters, client.InNamespace(h.Namespace)); err != nil {
		return false, fmt.Errorf("list the other members: %w", err)
	}
	return slices.ContainsFunc(clusters.Items, func(c v1alpha1.Cluster) bool {
		return c.Name != h.ClusterID && slices.Contains(c.Status.Demoted, h.ClusterID)
	}), nil
}

// yield makes this member's exports of shared services the youngest, where that changes what runs
// without it. If it ends half-way, it goes on with the rest when it is called again.
func (h *Heartbeat) yield(ctx context.Context) error {
	own := &v1alpha1.ExportRecordList{}
	source := client.MatchingLabels{mcsv1beta1.LabelSourceCluster: h.ClusterID}
	if err := h.Client.List(ctx, own, client.InNamespace(h.Namespace), source); err != nil {
		return fmt.Errorf("list the records of this member: %w", err)
	}
	others, err := h.recordsOfOthers(ctx, own.Items)
	if err != nil {
		return err
	}
	yielded := 0
	for i := range own.Items {
		record := &own.Items[i]
		youngest := youngestOf(others[serviceOf(record)])
		if record.Spec.ExportedAt.After(youngest) {
			continue // no other cluster exports it, or this one has yielded
		}
		decided, err := h.othersDecided(ctx, append(others[serviceOf(record)], record))
		if err != nil {
			return err
		}
		if !decided {
			continue
		}
		record.Spec.ExportedAt = metav1.NewTime(later(time.Now(), youngest.Add(time.Second)).UTC().Truncate(time.Second))
		if err := h.Client.Update(ctx, record); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("make record %s the youngest of its service: %w", record.Name, err)
		}
		yielded++
	}
	if yielded > 0 {
		h.Log.Info("this member was silent for long: its exports no longer have precedence over those of others", "services", yielded)
	}
	return nil
}

// othersDecided reports whether the service is what the other clusters decided while this one was
// demoted.
func (h *Heartbeat) othersDecided(ctx context.Context, records []*v1alpha1.ExportRecord) (bool, error) {
	endpoints := &discoveryv1.EndpointSliceList{}
	service := client.MatchingLabels(objects.Labels(serviceOf(records[0]), ""))
	if err := h.Client.List(ctx, endpoints, client.InNamespace(h.Namespace), service); err != nil {
		return false, fmt.Errorf("list the endpoints of service %s: %w", serviceOf(records[0]), err)
	}
	_, decided := merge.WithDemoted(records, map[string]bool{h.ClusterID: true}, func(merged merge.Result) bool {
		return slices.ContainsFunc(endpoints.Items, func(s discoveryv1.EndpointSlice) bool {
			source := s.Labels[mcsv1beta1.LabelSourceCluster]
			carries := func(name string, protocol corev1.Protocol) bool { return merged.CarriesPort(source, name, protocol) }
			return source != h.ClusterID && slices.Contains(merged.Clusters, source) &&
				reachable.HasReadyEndpoint(&s) && reachable.HasPort(&s, carries)
		})
	})
	return decided, nil
}

// recordsOfOthers returns the records of other clusters for the services of own records.
func (h *Heartbeat) recordsOfOthers(ctx context.Context, own []v1alpha1.ExportRecord) (map[types.NamespacedName][]*v1alpha1.ExportRecord, error) {
	others := make(map[types.NamespacedName][]*v1alpha1.ExportRecord, len(own))
	for i := range own {
		others[serviceOf(&own[i])] = nil
	}
	for next := ""; ; {
		page := &v1alpha1.ExportRecordList{}
		if err := h.Client.List(ctx, page, client.InNamespace(h.Namespace), client.Limit(recordPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list the records of other members: %w", err)
		}
		for i := range page.Items {
			record := &page.Items[i]
			if records, shared := others[serviceOf(record)]; shared && string(record.Spec.ClusterID) != h.ClusterID {
				others[serviceOf(record)] = append(records, record)
			}
		}
		if next = page.Continue; next == "" {
			return others, nil
		}
	}
}

// youngestOf returns when the youngest of some exports was created, the zero time without any.
func youngestOf(records []*v1alpha1.ExportRecord) (youngest time.Time) {
	for _, r := range records {
		youngest = later(youngest, r.Spec.ExportedAt.Time)
	}
	return youngest
}

func serviceOf(record *v1alpha1.ExportRecord) types.NamespacedName {
	return types.NamespacedName{Namespace: record.Spec.ServiceNamespace, Name: record.Spec.ServiceName}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
