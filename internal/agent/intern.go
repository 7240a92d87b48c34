package agent

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// internStrings makes equal strings of cached objects share memory. Every decoded object has its
// own copy of the same few label keys, kinds and messages.
func internStrings(obj any) {
	if o, ok := obj.(runtime.Object); ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // the cache sets it in every copy it returns
	}
	if o, ok := obj.(metav1.Object); ok {
		o.SetLabels(internMap(o.GetLabels()))
		o.SetAnnotations(internMap(o.GetAnnotations()))
		o.SetNamespace(intern(o.GetNamespace()))
		owners := o.GetOwnerReferences()
		for i := range owners {
			owners[i].APIVersion, owners[i].Kind = intern(owners[i].APIVersion), intern(owners[i].Kind)
		}
		o.SetOwnerReferences(owners)
	}
	switch o := obj.(type) {
	case *mcsv1beta1.ServiceExport:
		internConditions(o.Status.Conditions)
	case *mcsv1beta1.ServiceImport:
		internConditions(o.Status.Conditions)
		for i := range o.Status.Clusters {
			o.Status.Clusters[i].Cluster = intern(o.Status.Clusters[i].Cluster)
		}
	case *corev1.Service:
		for i := range o.Spec.Ports {
			o.Spec.Ports[i].Name = intern(o.Spec.Ports[i].Name)
		}
	}
}

func internConditions(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		c.Type, c.Status, c.Reason, c.Message = intern(c.Type), intern(c.Status), intern(c.Reason), intern(c.Message)
	}
}

func internMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m)) // assigning to an existing key would keep the memory of the old key
	for key, value := range m {
		out[intern(key)] = intern(value)
	}
	return out
}

func intern[T ~string](s T) T { return unique.Make(s).Value() }
