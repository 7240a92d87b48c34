package imports

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// lostDelay is how long imports stay as they are after records disappeared while the broker's watch
// was interrupted. The members of a broker that was restored to an older state publish their
// records again, and services must not be interrupted meanwhile. An API server that has just
// started refuses members' writes for up to half a minute, until its admission policies find their
// parameters; the members then need time to retry.
const lostDelay = time.Minute

// Lost holds the services whose records were missing when the broker's watch was resumed.
type Lost struct {
	brokerIsLive func() bool

	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// NewLost returns a Lost without services. brokerIsLive reports whether this cluster hears from the
// broker now.
func NewLost(brokerIsLive func() bool) *Lost {
	return &Lost{brokerIsLive: brokerIsLive, since: map[types.NamespacedName]time.Time{}}
}

// Note records that a record of the service was found missing just now.
func (l *Lost) Note(service types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[service] = time.Now()
}

// Remaining returns for how long the imports of a service must still stay as they are. While this
// cluster does not hear from the broker that does not end: the records may be back.
func (l *Lost) Remaining(service types.NamespacedName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok := l.since[service]
	if !ok {
		return 0
	}
	if !l.brokerIsLive() {
		since = time.Now()
		l.since[service] = since
	}
	if left := lostDelay - time.Since(since); left > 0 {
		return left
	}
	delete(l.since, service)
	return 0
}

// refreshOwn updates only this cluster's own endpoints of an import, while what the broker has
// cannot be used. The ports that the merge kept are those of the import itself.
func (r *Reconciler) refreshOwn(ctx context.Context, key types.NamespacedName, settings Settings, have imported) error {
	si := have.serviceImport
	exportedHere := func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == settings.ClusterID }
	if si == nil || si.DeletionTimestamp != nil || !objects.IsManagedImport(si) || !slices.ContainsFunc(si.Status.Clusters, exportedHere) {
		return nil
	}
	own, err := r.own(ctx, key, settings.ClusterID)
	if err != nil || own.Service == nil {
		return err
	}
	in := Input{Settings: settings, Service: key, Derived: have.derived}
	var existing []*discoveryv1.EndpointSlice
	for _, s := range have.slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] == settings.ClusterID {
			existing = append(existing, s)
		}
	}
	var changes apply.Changes
	apply.DiffSlices(&changes, existing, in.ownSlicesOf(si, own))
	return r.Writer.Apply(ctx, key, changes)
}

// ownSlicesOf returns the slices of this cluster that an existing import should have.
func (in Input) ownSlicesOf(si *mcsv1beta1.ServiceImport, own exports.Input) []*discoveryv1.EndpointSlice {
	mode := modeOf(si)
	var out []*discoveryv1.EndpointSlice
	for _, s := range exports.Slices(own, mode) {
		if !slices.Contains(si.Spec.IPFamilies, corev1.IPFamily(s.AddressType)) {
			continue
		}
		slice := importedSlice(in, s, in.ClusterID)
		slice.Endpoints = s.Endpoints
		for _, p := range s.Ports { // the cache shares them
			if hasPort(si, own.Service, p) {
				slice.Ports = append(slice.Ports, p)
			}
		}
		in.adaptSlice(slice, &si.Spec, mode)
		out = append(out, slice)
	}
	return out
}

// modeOf returns the mode of an import that exists.
func modeOf(si *mcsv1beta1.ServiceImport) merge.Mode {
	switch {
	case si.Spec.Type == mcsv1beta1.Headless:
		return merge.ModeHeadless
	case si.Annotations[v1alpha1.AnnotationMode] == v1alpha1.ModeClassic:
		return merge.ModeClassic
	}
	return merge.ModeClusterSetIP
}

// hasPort reports whether the import has the Service's port of that name with the same protocol and
// number.
func hasPort(si *mcsv1beta1.ServiceImport, svc *corev1.Service, p discoveryv1.EndpointPort) bool {
	for _, own := range svc.Spec.Ports {
		if own.Name != ptr.Deref(p.Name, "") {
			continue
		}
		return slices.ContainsFunc(si.Spec.Ports, func(merged mcsv1beta1.ServicePort) bool {
			return merged.Name == own.Name && merged.Port == own.Port && protocol(merged.Protocol) == protocol(own.Protocol)
		})
	}
	return false
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
