package watch

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// trim removes what no finding needs, which is most of an object's size. Of the managed fields the
// time of the last write stays. Secrets in objects are removed too: the key of beacons, and what
// kubectl apply keeps.
func trim(obj client.Object) {
	if fields := obj.GetManagedFields(); len(fields) > 0 {
		obj.SetManagedFields(lastWrite(fields))
	}
	obj.SetOwnerReferences(nil)
	if annotations := obj.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
	switch typed := obj.(type) {
	case *discoveryv1.EndpointSlice:
		for i := range typed.Endpoints {
			e := &typed.Endpoints[i]
			typed.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Zone: e.Zone}
		}
	case *corev1.Pod:
		typed.Spec = corev1.PodSpec{NodeName: typed.Spec.NodeName}
		typed.Status = corev1.PodStatus{Conditions: typed.Status.Conditions, Phase: typed.Status.Phase}
	case *v1alpha1.Cluster:
		if typed.Status.Beacons != nil {
			typed.Status.Beacons.Key = nil
		}
	}
}

// lastWrite returns the managed fields with nothing but the time of the last write.
func lastWrite(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var last *metav1.Time
	for i := range fields {
		if t := fields[i].Time; t != nil && (last == nil || last.Before(t)) {
			last = t
		}
	}
	if last == nil {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Time: last}}
}
