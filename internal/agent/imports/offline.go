package imports

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

// LostGrace is how long a service whose records vanished unseen keeps what it has: a broker that was reset to an older state
// gets them back from their members, and a service that runs well must not blink for it. An API server that has just started
// refuses what members write for up to half a minute, until its admission knows the kind that holds their grants, and then
// members need another moment to try again.
const LostGrace = time.Minute

// Lost remembers, for a while, the services whose records were missing when the broker's watch came back.
type Lost struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// NewLost returns an empty memory.
func NewLost() *Lost {
	return &Lost{since: map[types.NamespacedName]time.Time{}}
}

// Note remembers that a record of the service vanished unseen just now.
func (l *Lost) Note(service types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[service] = time.Now()
}

// Wait is how long the service's imports must still be left alone; zero when there is no reason to.
func (l *Lost) Wait(service types.NamespacedName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok := l.since[service]
	if !ok {
		return 0
	}
	if left := LostGrace - time.Since(since); left > 0 {
		return left
	}
	delete(l.since, service)
	return 0
}

// refreshOwn brings this cluster's own endpoints of an import up to date while the broker's view cannot be used: the import
// itself says which ports won.
func (r *Reconciler) refreshOwn(ctx context.Context, key types.NamespacedName, settings Settings, have imported) error {
	si := have.serviceImport
	takesPart := func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == settings.ClusterID }
	if si == nil || si.DeletionTimestamp != nil || !objects.IsManagedImport(si) || !slices.ContainsFunc(si.Status.Clusters, takesPart) {
		return nil
	}
	mode := merge.ModeClusterSetIP
	switch {
	case si.Spec.Type == mcsv1beta1.Headless:
		mode = merge.ModeHeadless
	case si.Annotations[v1alpha1.AnnotationMode] == v1alpha1.ModeClassic:
		mode = merge.ModeClassic
	}
	own, err := r.own(ctx, key, settings.ClusterID)
	if err != nil || own.Service == nil {
		return err
	}
	in := Input{Settings: settings, Service: key, IsNodeAddress: r.IsNodeAddress}
	var want, mine []*discoveryv1.EndpointSlice
	for _, s := range exports.Slices(own, mode) {
		if !slices.Contains(si.Spec.IPFamilies, corev1.IPFamily(s.AddressType)) {
			continue
		}
		slice := importedSlice(in, s, settings.ClusterID)
		slice.OwnerReferences = []metav1.OwnerReference{ownerOf(si)}
		slice.Endpoints = s.Endpoints
		slice.Ports = slices.DeleteFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return !portWon(si, own.Service, p) })
		in.addServiceHints(slice, &si.Spec, mode)
		want = append(want, slice)
	}
	for _, s := range have.slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] == settings.ClusterID {
			mine = append(mine, s)
		}
	}
	var changes apply.Changes
	apply.DiffSlices(&changes, mine, want)
	return r.Writer.Apply(ctx, key, changes)
}

// portWon tells whether the import has the Service's port of that name with the same protocol and number.
func portWon(si *mcsv1beta1.ServiceImport, svc *corev1.Service, p discoveryv1.EndpointPort) bool {
	for _, own := range svc.Spec.Ports {
		if own.Name != ptr.Deref(p.Name, "") {
			continue
		}
		return slices.ContainsFunc(si.Spec.Ports, func(won mcsv1beta1.ServicePort) bool {
			return won.Name == own.Name && won.Port == own.Port && protocol(won.Protocol) == protocol(own.Protocol)
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
